"""Choose an example: a captured frame or an input of the corpus, with faults. Pure.

Invariant: the example of a number is the same in each run with the same seed and corpus.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.protocol import batch_vectors
from tests.protocol.batch_oracle import BATCHES
from tests.protocol.golden import FETCHES, PRODUCES, VECTORS, message_sets
from tests.protocol.mutations import mutated, signed, signed_batches, wrapped
from tests.tools.fuzz.targets import TARGETS, Target

LARGE_BYTES = 1 << 20
"""About the size of a large example: steps are measured per MiB on these."""
_LARGE_ONE_IN = 2_000
_SIGNED = 0.7
"""How often the CRCs of a mutated set are made right, which else end most reads early."""
_WRAPPED = 0.3
"""How often such a set is put into a wrapper."""


def golden(target: Target) -> list[bytes]:
    """Return the captured bytes that a target reads."""
    match target.kind:
        case "request":
            return [vector.request_body for vector in VECTORS]
        case "stream":
            return [vector.request_frame for vector in VECTORS]
        case "response":
            return [bytes([number]) + vector.response_body for number, vector in enumerate(VECTORS)]
        case "responses":
            return [
                bytes([number]) + vector.response_frame for number, vector in enumerate(VECTORS)
            ]
        case "target responses":
            from tests.tools.fuzz.gateway import responses

            return responses()
        case "batches":
            logs = [log.data for log in batch_vectors.load().values()]
            sets = [one for vector in FETCHES for one in message_sets(vector) if one]
            return [*BATCHES, *logs, *sets]
        case _:
            return [one for vector in FETCHES + PRODUCES for one in message_sets(vector)]


class Mutator:
    """Choose examples.

    Args:
        seed: of all choices.
        corpus: further inputs by target name.
    """

    def __init__(self, seed: int, corpus: dict[str, list[bytes]]) -> None:
        self._seed = seed
        self._pools = {
            target.name: golden(target) + sorted(corpus.get(target.name, []))
            for target in TARGETS.values()
        }
        self._names = list(TARGETS)
        self._weights = [target.weight for target in TARGETS.values()]

    def example(self, number: int) -> tuple[Target, bytes]:
        """Return the target and the bytes of one example."""
        rng = random.Random(f"{self._seed} {number}")
        [name] = rng.choices(self._names, self._weights)
        target = TARGETS[name]
        pool = self._pools[name]
        data = mutated(rng, rng.choice(pool), pool)
        if number % _LARGE_ONE_IN == _LARGE_ONE_IN - 1:
            data = _enlarged(rng, target, data, pool)
        if target.kind == "batches" and rng.random() < _SIGNED:
            data = signed_batches(data)
        if target.kind == "set" and rng.random() < _SIGNED:
            data = signed(data)
            if rng.random() < _WRAPPED:
                data = wrapped(rng, data)
        return target, data


def _enlarged(rng: random.Random, target: Target, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Return about `LARGE_BYTES`: repeat what may be repeated, fill up the rest."""
    if target.kind in ("set", "batches", "stream"):
        whole = rng.choice(pool)
        return whole * (LARGE_BYTES // max(len(whole), 1)) + data
    return data + rng.choice([bytes(LARGE_BYTES), b"\1" * LARGE_BYTES, data * 1000])[:LARGE_BYTES]
