"""The mixed scenario: the first 300 seeds here; `nox -s full` runs 2,000.

A failing seed is found again by its number: `python -m tests.simulation --first 17 --seeds 1
--shrink` shrinks it and prints a test.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.simulation.plan import LENGTH_S, VERSIONS, Send, plan_of
from tests.simulation.runner import KINDS, SeedResult, Summary, frozen_modules, run_seed

SEEDS = 300
SEEDS_OF_A_TEST = 5


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    with frozen_modules():
        yield


@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_A_TEST), ids="seeds-{}".format)
def test_no_seed_shows_an_anomaly(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + SEEDS_OF_A_TEST)]
    texts = [f"seed {one.seed}: {text}" for one in results for text in one.texts]
    assert not texts, "\n".join(texts)
    assert min(one.requests for one in results) >= 300
    assert min(one.virtual_s for one in results) >= LENGTH_S


def test_same_seed_gives_the_same_trace() -> None:
    assert run_seed(3).trace_hash == run_seed(3).trace_hash != run_seed(8).trace_hash


def test_seeds_leave_frozen_what_was_frozen_before() -> None:
    """Else the collection after each later test would visit all modules."""
    gc.freeze()
    before = gc.get_freeze_count()
    with frozen_modules():
        pass
    assert gc.get_freeze_count() >= before


def test_plan_has_faults_and_comes_from_its_seed() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    assert plans == [plan_of(seed) for seed in range(300)]
    assert {plan.version for plan in plans} == {*VERSIONS}
    assert min(sum(not isinstance(step.do, Send) for step in plan.steps) for plan in plans) >= 5


def test_summary_names_faults_that_never_fired() -> None:
    summary = Summary()
    result = run_seed(0)
    summary.add(result)
    assert set(summary.unfired) == {*KINDS} - {kind for kind, n in result.fired.items() if n}
    assert str(summary).startswith("simulate: seeds=1 failed=0 virtual_s=6")
    worse = Summary()
    worse.add(SeedResult(0, ("lost-write",), (), 0.0, 0, result.trace_hash, 0.0, result.fired))
    assert worse.failed == 1
    assert str(worse).rpartition("hash=")[2] == str(summary).rpartition("hash=")[2]
