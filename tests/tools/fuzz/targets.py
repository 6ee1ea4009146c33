"""What reads hostile bytes: a function for each, and how it is measured.

Invariant: a target returns or raises nothing: typed errors, which a caller handles, are counted in
`Endured`. Whatever leaves a target is a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol.connection import ClientConnection
from aiokafka08.protocol.record_batch import BatchHeader, parts_of, plain_records
from tests.protocol.decoding import receive
from tests.protocol.golden import VECTORS
from tests.protocol.hostile import (
    DECOMPRESSED_LIMIT,
    Endured,
    endure_batches,
    endure_message_set,
    endure_request,
    endure_response,
)
from tests.protocol.oracle import reader
from tests.protocol.twins import TWINS, twin

STEP_RECORDS = 500
"""How many records a consumer decodes before it yields to the event loop, at least."""
MAX_FRAME_BYTES = 4 << 20


class Steps:
    """Measure what holds an event loop: the CPU time of each step.

    Attributes:
        longest_s: the longest step since it was set to 0.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measure the body."""
        began = time.thread_time()
        yield
        self.longest_s = max(self.longest_s, time.thread_time() - began)


@dataclass(frozen=True, slots=True)
class Target:
    """One reader of bytes.

    Attributes:
        kind: what bytes it reads; see `mutator.golden`.
        weight: how many examples it gets, relative to others.
        run: reads one example.
    """

    name: str
    kind: str
    weight: float
    run: Callable[[bytes, Endured, Steps], None]


def _read_request(data: bytes, seen: Endured, steps: Steps) -> None:
    with steps.step():
        endure_request(data, seen)


def _read_response(data: bytes, seen: Endured, steps: Steps) -> None:
    vector = VECTORS[data[0] % len(VECTORS)] if data else VECTORS[0]
    with steps.step():
        endure_response(vector.request_class, vector.layout, data[1:], seen)


def _read_responses(data: bytes, seen: Endured, steps: Steps) -> None:
    """Give a stream to a client that waits for a response of one kind, twice."""
    vector = VECTORS[data[0] % len(VECTORS)] if data else VECTORS[0]
    connection = ClientConnection("fuzz", max_frame_bytes=MAX_FRAME_BYTES)
    for _ in range(2):
        connection.send(vector.decoded_request(), vector.version)
    stream = bytearray(data[1:])
    stream[4:8] = b"\0\0\0\1"  # the id of the first request, which else ends nearly all examples
    try:
        with steps.step():
            for _ in receive(connection, stream):
                seen.values += 1
    except KafkaProtocolError:
        seen.errors += 1
    assert len(connection.eof()) <= 2


def _read_set(name: str) -> Callable[[bytes, Endured, Steps], None]:
    def run(data: bytes, seen: Endured, steps: Steps) -> None:
        if twin.name != name:
            twin.use(name)
        if len(data) > 100_000:  # by steps, as a consumer does
            _read_by_steps(data, seen, steps)
        else:
            with steps.step():
                endure_message_set(data, 0, seen)

    return run


def _read_by_steps(data: bytes, seen: Endured, steps: Steps) -> None:
    with steps.step():
        whole: Any = reader(data, 0, limit=DECOMPRESSED_LIMIT)
    count = -1
    try:
        while count:
            with steps.step():
                count = len(whole.read(STEP_RECORDS))
            seen.records += count
    except CorruptRecordException:
        seen.corrupt += 1


def _read_batches(name: str) -> Callable[[bytes, Endured, Steps], None]:
    def run(data: bytes, seen: Endured, steps: Steps) -> None:
        if twin.name != name:
            twin.use(name)
        if len(data) > 100_000:
            _read_batch_by_batch(data, seen, steps)
        else:
            with steps.step():
                endure_batches(data, seen)

    return run


def _read_batch_by_batch(data: bytes, seen: Endured, steps: Steps) -> None:
    try:
        for part in parts_of(data):
            if isinstance(part, BatchHeader):
                with steps.step():
                    plain = plain_records(data, part, max_decompressed_bytes=DECOMPRESSED_LIMIT)
                    seen.records += sum(1 for _ in twin.read_records(part, plain))
    except CorruptRecordException:
        seen.corrupt += 1


def _serve(data: bytes, seen: Endured, steps: Steps) -> None:
    from tests.tools.fuzz.server import serve

    serve(data, seen, steps)


def _serve_by_gateway(data: bytes, seen: Endured, steps: Steps) -> None:
    from tests.tools.fuzz.gateway import serve_client

    serve_client(data, seen, steps)


def _pass_by_gateway(data: bytes, seen: Endured, steps: Steps) -> None:
    from tests.tools.fuzz.gateway import pass_responses

    pass_responses(data, seen, steps)


def _read_log(data: bytes, seen: Endured, steps: Steps) -> None:
    from tests.tools.fuzz.calls import read_log

    read_log(data, seen)


TARGETS = {
    target.name: target
    for target in (
        Target("request", "request", 3, _read_request),
        Target("response", "response", 5, _read_response),
        Target("client", "responses", 3, _read_responses),
        Target("server", "stream", 1, _serve),
        Target("gateway", "stream", 0.05, _serve_by_gateway),
        Target("gateway-target", "target responses", 0.05, _pass_by_gateway),
        Target("calls", "set", 0.05, _read_log),
        *(Target(f"set-{name}", "set", 4, _read_set(name)) for name in TWINS),
        *(Target(f"batches-{name}", "batches", 4, _read_batches(name)) for name in TWINS),
    )
}
