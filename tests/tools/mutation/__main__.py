"""Mutate producer, consumer and net, and list the mutants that the tests don't find.

    nox -s mutation -- --sample 200 --seed 1
    python -m tests.tools.mutation --folder build/mutation --sample 60
    python -m tests.tools.mutation --folder build/mutation --sample 200     # goes on

cosmic-ray makes the mutants, one at a time, in a copy of package and tests; the pure twins run. The
tests are those that need no real broker. They run once with coverage, and one that fails judges no
mutant. Then each mutant meets the tests that reach its line (`selection`), until one fails.
`--folder` keeps copy and results: a run continues where the last one ended, whatever ended it.

A place in the code has one mutant at most, whatever the number of operators that fit there. The
exit code is 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import cosmic_ray.plugins
import coverage
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

import aiokafka08
from tests.support.arguments import positive, positive_number
from tests.tools.mutation.selection import (
    Reach,
    changed_lines,
    is_in_place,
    is_of_interest,
    shortest_within,
)

ROOT = Path(aiokafka08.__file__).resolve().parent.parent
MUTATED = ("producer", "consumer", "net")
SUITES = (
    *("producer", "consumer", "net", "membership", "zookeeper", "headers", "offset_store"),
    "contract/client",
)
ALL_TESTS = (
    *("-q", "--loop=asyncio", "-m", "not real"),
    *("-k", "not embedded_0.8.0 and not embedded_0.8.1 and not embedded_0.9"),
)
LIMIT_S = 20
"""Seconds of CPU time of a mutant's tests: then it is found."""
TEST_LIMIT_S = 30
"""Seconds that one of these tests may wait: then it is found."""
PREPARE_LIMIT_S = 600
"""The same without a mutant, on a machine that has other work."""
WAIT_S = 240
"""Seconds after which it is given up, as a timeout: the machine has too much other work."""
MEMORY_LIMIT = 4 << 30
ORIGINAL = "original"
"""Folder of the package without mutants, for a run that ended while there was one."""
MOST_PLACES = 1000
"""How many places are drawn: the largest sample."""


def prepare(folder: Path) -> None:
    """Copy package and tests, without compiled modules, and run the tests with coverage."""
    for name in ("aiokafka08", "examples", "tests"):
        ignore = shutil.ignore_patterns("__pycache__", "*.so", "build")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copytree(folder / "aiokafka08", folder / ORIGINAL)
    shutil.copy(ROOT / "pyproject.toml", folder)
    covered = [f"--cov=aiokafka08/{name}" for name in MUTATED]
    # CPython 3.11 may fail to parse a test's source deep in a stack: show native tracebacks.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *ALL_TESTS, *covered, "--cov-context=test"),
            *("--cov-report=", "--tb=native", f"--timeout={PREPARE_LIMIT_S}"),
            *("-p", "tests.tools.mutation.durations", *(f"tests/{name}" for name in SUITES)),
        ],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""},
    )
    if not Path("durations.json").exists():
        raise SystemExit(f"the tests without a mutant: pytest ended with {done.returncode}")


def every_mutation() -> Iterator[MutationSpec]:
    """Yield all mutants that cosmic-ray can make, but those without interest."""
    names = filter(is_of_interest, cosmic_ray.plugins.operator_names())
    operators = [(name, cosmic_ray.plugins.get_operator(name)) for name in names]
    for path in sorted(one for name in MUTATED for one in Path("aiokafka08", name).rglob("*.py")):
        nodes = [*ast_nodes(get_ast_from_path(path))]
        for name, operator in operators:
            if operator.arguments():
                continue
            positions = ((one, at) for one in nodes for at in operator().mutation_positions(one))
            for occurrence, (node, (start, end)) in enumerate(positions):
                if is_in_place(name, node.parent.type):
                    yield MutationSpec(path, name, occurrence, start, end)


def draw(session: WorkDB, seed: int) -> None:
    """Add one mutant of each place to the session, in random order.

    The order is that of the job ids, so that a larger sample begins with a smaller one. A change of
    the code changes few of them, since each mutant has a random number of its own.
    """

    def number(one: MutationSpec) -> float:
        name = f"{seed} {one.module_path} {one.operator_name} {one.occurrence}"
        return random.Random(name).random()

    places: dict[tuple[Path, tuple[int, int]], MutationSpec] = {}
    for one in sorted(every_mutation(), key=number):
        places.setdefault((one.module_path, one.start_pos), one)
    session.add_work_items(
        WorkItem.single(f"{number:04}", one)
        for number, one in enumerate([*places.values()][:MOST_PLACES])
    )


def judge(mutation: MutationSpec, reach: Reach, seconds: float) -> WorkResult:
    """Run the tests that reach a mutant's line; return cosmic-ray's result."""
    chosen = shortest_within(
        reach.tests(str(mutation.module_path), mutation.start_pos[0]), reach.seconds, seconds
    )
    Path("chosen.txt").write_text("".join(f"{one}\n" for one in chosen))
    tests = (
        f"{sys.executable} -m pytest -x -q --loop=asyncio --tb=line --timeout={TEST_LIMIT_S} "
        "-p no:cacheprovider @chosen.txt"
    )
    command = f"sh -c 'ulimit -t {LIMIT_S} && exec {tests}'"
    return mutate_and_test([mutation], command if chosen else "true", WAIT_S)


def is_open(result: WorkResult) -> bool:
    """Return whether a mutant may live: no test failed, or there wasn't the time to see it."""
    return result.test_outcome == TestOutcome.SURVIVED or result.output == "timeout"


def show(session: WorkDB, sample: int) -> int:
    """Print the survivors, as rows of a table, and the counts; return the number of survivors."""
    counts = {"killed": 0, "timeouts": 0, "survived": 0}
    print("| place | code | mutant |\n|---|---|---|")
    results = dict(session.results)
    for item in sorted(session.work_items, key=lambda one: one.job_id)[:sample]:
        [mutation] = item.mutations
        result = results.get(item.job_id)
        if result is None:
            continue
        if result.test_outcome == TestOutcome.SURVIVED:
            counts["survived"] += 1
            before, after = changed_lines(result.diff)
            place = f"{mutation.module_path}:{mutation.start_pos[0]}"
            print(f"| {item.job_id} {place} | `{before}` | `{after}` |")
        else:
            counts["timeouts" if result.output == "timeout" else "killed"] += 1
    judged = sum(counts.values())
    print(f"mutation: mutants={judged}", *(f"{name}={count}" for name, count in counts.items()))
    return counts["survived"]


def main() -> int:
    """Judge the mutants of a sample that have no result yet."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.mutation", description=__doc__)
    parser.add_argument("--sample", type=positive, default=200, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample, in a new folder")
    parser.add_argument(
        "--folder", type=Path, help="where copy and results stay (default: nowhere)"
    )
    parser.add_argument("--again", action="store_true", help="judge survivors and timeouts again")
    parser.add_argument(
        "--seconds",
        type=positive_number,
        default=3.0,
        help="of the tests for one mutant, the shortest first (%(default)s)",
    )
    parser.add_argument(
        "--minutes", type=positive_number, default=math.inf, help="begin no mutant after so many"
    )
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    with contextlib.ExitStack() as stack:
        folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        folder = Path(folder).resolve()
        folder.mkdir(exist_ok=True)
        stack.enter_context(contextlib.chdir(folder))
        os.environ |= {"AIOKAFKA08_IMPL": "python", "PYTHONPATH": str(folder)}
        if not Path("durations.json").exists():
            prepare(folder)
        shutil.copytree(ORIGINAL, "aiokafka08", dirs_exist_ok=True)
        session = WorkDB("session.sqlite", WorkDB.Mode.create)
        stack.callback(session.close)
        if not session.num_work_items:
            draw(session, options.seed)
        data = coverage.CoverageData(".coverage")
        data.read()
        reach = Reach(data, folder, json.loads(Path("durations.json").read_text()))
        results = dict(session.results)
        end = time.monotonic() + 60 * options.minutes
        for item in sorted(session.work_items, key=lambda one: one.job_id)[: options.sample]:
            if time.monotonic() > end:
                break
            result = results.get(item.job_id)
            if result is None or (options.again and is_open(result)):
                found = judge(item.mutations[0], reach, options.seconds)
                session.set_result(item.job_id, found)
        return 1 if show(session, options.sample) else 0


if __name__ == "__main__":
    sys.exit(main())
