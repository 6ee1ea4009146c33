"""`python -m tests.tools.fuzz.coverage TARGET RUNS CORPUS`: let atheris choose examples of a
target.

What reaches new code of the protocol or of the embedded brokers goes into the corpus, which later
campaigns mutate. Compiled code has no coverage: the pure twins are used.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

os.environ["AIOKAFKA08_IMPL"] = "python"

import atheris

INSTRUMENTED = ["aiokafka08.protocol", "aiokafka08.testing.handlers", "aiokafka08.testing.log"]
_MOST_BYTES = 4096

with atheris.instrument_imports(include=INSTRUMENTED):
    from tests.protocol.hostile import Endured
    from tests.protocol.mutations import mutated, signed
    from tests.tools.fuzz import campaign, corpus
    from tests.tools.fuzz.mutator import golden
    from tests.tools.fuzz.targets import TARGETS, Steps


def main(name: str, runs: str, folder: str) -> None:
    """Fuzz one target."""
    target, own = TARGETS[name], Path(folder, name)
    pool = golden(target)
    for data in pool:
        corpus.keep(Path(folder), name, data)
    seen, steps = Endured(), Steps()

    def run(data: bytes) -> None:
        error = campaign.run_one(target, data, seen, steps, traced=False)
        if error is not None:
            path = corpus.keep_finding(Path(folder), name, data)
            raise AssertionError(f"{path}\n{error}")

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed: Any = (
            mutated(rng, data, pool) if rng.random() < 0.7 else atheris.Mutate(data, most)
        )
        if target.kind == "set" and rng.random() < 0.7:
            changed = signed(changed)
        return bytes(changed[:most])

    options = [f"-runs={runs}", f"-max_len={_MOST_BYTES}", "-timeout=20", "-rss_limit_mb=2048"]
    quiet = ["-print_final_stats=0", f"-artifact_prefix={folder}/", "-verbosity=1"]
    arguments = [sys.argv[0], *options, *quiet, str(own)]
    atheris.Setup(arguments, run, custom_mutator=mutate, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
