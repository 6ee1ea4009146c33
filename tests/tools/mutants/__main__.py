"""Plant bugs, one at a time, and count the seeds until the simulation finds each: `nox -s mutants`.

    python -m tests.tools.mutants --seeds 1000 --series 3 --jobs 2
    python -m tests.tools.mutants "a split batch loses its tail"

Each bug is planted in a copy of the package, and the pure twins run. A seed finds it if the run has
an anomaly, and the same seed without the bug has none. What no seed can show is hunted by a test,
which must fail with the bug and pass without it. The exit code is 1 if a bug isn't found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import aiokafka08
from tests.support.arguments import positive
from tests.tools.mutants.planted import MUTANTS, Mutant

ROOT = Path(aiokafka08.__file__).resolve().parent.parent
COPIED = ("aiokafka08", "tests", "examples")
"""The folders of a copy: the package, and what its tests import."""
SEED_LIMIT_S = 60
"""Seconds of CPU time after which a seed counts as hung, which is a way to be found. A simulated
run waits for nothing, and on a busy machine it takes longer by the clock."""
TEST_LIMIT_S = 300
"""Seconds after which a test counts as hung."""


@dataclass(frozen=True, slots=True)
class Found:
    """How many seeds each series took, None if it didn't find the bug; and what was found."""

    seeds: list[int | None]
    names: list[str]


def hunt(mutant: Mutant, seeds: int, series: int) -> Found:
    """Run series of seeds with a bug planted."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for name in COPIED:
            ignore = shutil.ignore_patterns("__pycache__", "*.so", "build", "vectors")
            shutil.copytree(ROOT / name, Path(folder, name), ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", folder)
        planted = Path(folder, "aiokafka08", mutant.path)
        planted.write_text(mutant.apply(planted.read_text()))
        if mutant.is_hunted_by_a_test:
            fails = not passes(Path(folder), mutant.scenario)
            if fails and not passes(ROOT, mutant.scenario):
                raise RuntimeError(f"{mutant.scenario} fails without the bug too")
            return Found([0 if fails else None], [mutant.scenario.rpartition("::")[2]])
        took: list[int | None] = []
        names: set[str] = set()
        for number in range(series):
            first, used = 1000 * number, 0
            took.append(None)
            while used < seeds:
                result = run_seeds(Path(folder), mutant.scenario, first + used, seeds - used)
                if result is None:
                    break
                seed, anomalies = result
                used = seed - first + 1
                if run_seeds(ROOT, mutant.scenario, seed, 1) is None:
                    took[-1] = used
                    names.update(anomalies)
                    break
        return Found(took, sorted(names))


def passes(folder: Path, test: str) -> bool:
    """Run a test in another process; return whether it passes."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, test],
            cwd=folder,
            env=_environment(folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{test}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"AIOKAFKA08_IMPL": "python", "PYTHONPATH": str(folder)}


def run_seeds(folder: Path, scenario: str, first: int, count: int) -> tuple[int, list[str]] | None:
    """Run seeds in another process; return the first that fails, with its anomalies."""
    command = [sys.executable, "-m", "tests.tools.mutants.seeds", scenario, str(first), str(count)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAIL ", "BEGIN "))]
    if done.returncode == 0:
        return None
    if lines and lines[-1].startswith("FAIL "):
        _, seed, *names = lines[-1].split()
        return int(seed), names
    if lines:
        is_killed = done.returncode == -signal.SIGPROF  # by its timer
        return int(lines[-1].split()[1]), ["hangs" if is_killed else "crashes"]
    raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")


def main() -> int:
    """Hunt the mutants of the command line, and print a row of the table for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of mutants; all if none is given")
    parser.add_argument("--seeds", type=positive, default=1000, help="the most seeds of a series")
    parser.add_argument("--series", type=positive, default=3, help="how often each bug is hunted")
    parser.add_argument("--jobs", type=positive, default=2, help="bugs that are hunted at a time")
    options = parser.parse_args()
    if unknown := set(options.names) - {one.name for one in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [one for one in MUTANTS if not options.names or one.name in options.names]
    lost = 0
    print("| planted bug | seeds (median) | found as |\n|---|---:|---|", flush=True)
    with ThreadPoolExecutor(options.jobs) as threads:
        hunts = {threads.submit(hunt, one, options.seeds, options.series): one for one in chosen}
        for done in as_completed(hunts):
            mutant = hunts[done]
            if (error := done.exception()) is not None:  # the others go on
                print(f"{mutant.name}: {error}", file=sys.stderr, flush=True)
                lost += 1
                continue
            found = done.result()
            took = [options.seeds + 1 if one is None else one for one in found.seeds]
            median = statistics.median(took)
            lost += median > options.seeds
            shown = f"> {options.seeds}" if median > options.seeds else f"{median:g}"
            if mutant.is_hunted_by_a_test:
                shown = "not found" if median > options.seeds else "test"
            names = ", ".join(f"`{name}`" for name in found.names)
            print(f"| {mutant.name} | {shown} | {names} |", flush=True)
    print(f"mutants: planted={len(chosen)} found={len(chosen) - lost}")
    return 1 if lost or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
