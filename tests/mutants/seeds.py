"""Run seeds in a process of their own, until one fails: `python -m tests.mutants.seeds 0 100`.

Prints `BEGIN seed` before each one and `FAIL seed anomaly …` for the one that fails; the exit code
is 1 then. A timer ends the process if a seed hangs.
"""

from __future__ import annotations

import logging
import signal
import sys

from tests.mutants.__main__ import SEED_LIMIT_S
from tests.mutants.scenario import run


def main(first: int, count: int) -> int:
    """Run `count` seeds from `first` on."""
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count):
        print("BEGIN", seed, flush=True)
        signal.setitimer(signal.ITIMER_PROF, SEED_LIMIT_S)
        names = sorted({one.name for one in run(seed)})
        if names:
            print("FAIL", seed, *names, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
