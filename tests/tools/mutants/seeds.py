"""Run a scenario's seeds in a process of their own, until one fails.

    python -m tests.tools.mutants.seeds clients 0 100

Prints `BEGIN seed` before each one and `FAIL seed anomaly …` for the one that fails; the exit code
is 1 then. A timer ends the process if a seed hangs.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable

from aiokafka08.testing.history import Anomaly
from aiokafka08.testing.simulation import SimulationError
from tests.faults.simulation import quiet
from tests.faults.simulation.plan import plan_of
from tests.faults.simulation.scenario import run as run_mixed
from tests.tools.mutants import leases, scenario
from tests.tools.mutants.__main__ import SEED_LIMIT_S

SCENARIOS: dict[str, Callable[[int], list[Anomaly]]] = {
    "clients": scenario.run,
    "leases": leases.run,
    "quiet": quiet.run,
    "mixed": lambda seed: run_mixed(plan_of(seed)).anomalies,
}
"""What a mutant can be hunted by (`planted.Mutant.scenario`)."""


def main(name: str, first: int, count: int) -> int:
    """Run `count` seeds of a scenario from `first` on."""
    run = SCENARIOS[name]
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count):
        print("BEGIN", seed, flush=True)
        signal.setitimer(signal.ITIMER_PROF, SEED_LIMIT_S)
        try:
            names = sorted({one.name for one in run(seed)})
        except SimulationError as error:  # raised when the world is stopped, after the run
            names = [type(error).__name__]
        if names:
            print("FAIL", seed, *names, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
