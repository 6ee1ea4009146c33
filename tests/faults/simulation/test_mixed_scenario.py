"""The mixed scenario: the first 100 seeds here; `nox -s full` runs 2,000.

A failing seed is found again by its number: `python -m tests.faults.simulation --first 17 --seeds
1` shrinks it and prints a test.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08.testing.faults import Answer
from aiokafka08.testing.history import check
from aiokafka08.testing.simulation import LeftoverError
from tests.faults.simulation import explain as explaining
from tests.faults.simulation import strikes
from tests.faults.simulation.explain import explain
from tests.faults.simulation.plan import (
    DAMAGES,
    FRAGMENT,
    KINDS,
    LENGTH_S,
    MEMBERS,
    MIN_EFFECTIVE,
    PARTITIONS,
    VERSIONS,
    Fault,
    Hold,
    Kill,
    MoveController,
    Partition,
    Pause,
    Retention,
    RollSegments,
    Send,
    SlowLink,
    Step,
    StopBroker,
    StoreDamage,
    Strike,
    Upgrade,
    WrongZookeeper,
    kinds_of,
    plan_of,
)
from tests.faults.simulation.runner import SeedResult, Summary, frozen_modules, main, run_seed
from tests.faults.simulation.scenario import _Scenario, run
from tests.faults.simulation.shrink import Shrunk
from tests.support.paths import ROOT

SEEDS = 100
FULL_SEEDS = 300
SEEDS_OF_A_TEST = 5
CHEAP_SEEDS = ("--first", "11", "--seeds", "5")
"""One for each line, which take little CPU time."""


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    with frozen_modules():
        yield


def _firsts(begin: int, end: int) -> pytest.MarkDecorator:
    firsts = range(begin, end, SEEDS_OF_A_TEST)
    return pytest.mark.parametrize("first", firsts, ids="seeds-{}".format)


@pytest.mark.timeout(120)
@_firsts(0, SEEDS)
def test_no_seed_shows_an_anomaly(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + SEEDS_OF_A_TEST)]
    texts = [f"seed {one.seed}: {text}" for one in results for text in one.texts]
    assert not texts, "\n".join(texts)
    assert min(one.requests for one in results) >= 300
    assert min(one.virtual_s for one in results) >= LENGTH_S
    assert min(one.effective for one in results) >= MIN_EFFECTIVE


@pytest.mark.full
@pytest.mark.timeout(120)
@_firsts(SEEDS, FULL_SEEDS)
def test_no_further_seed_shows_an_anomaly(first: int) -> None:
    test_no_seed_shows_an_anomaly(first)


def test_same_seed_gives_the_same_trace() -> None:
    assert run_seed(3).trace_hash == run_seed(3).trace_hash != run_seed(8).trace_hash


@pytest.mark.parametrize("seed", [*range(11, 16), 1466])
def test_trace_is_the_same_wherever_objects_are_in_memory(seed: int) -> None:
    """A set of objects without a hash of their own is ordered by their addresses.

    Seed 1466 had two traces: two tasks waited for one `Notifier`, which kept its waiters in a set.
    """
    hashes = set()
    for number in range(2):
        holes = make_holes(random.Random(number))
        hashes.add(run_seed(seed).trace_hash)
        del holes
    assert len(hashes) == 1


def make_holes(choices: random.Random) -> list[list[bytes]]:
    """Free memory at random places, which new objects fill; return what stays between them."""
    kept = []
    for size in range(0, 480, 16):
        blocks = [bytes(size) for _ in range(3000)]
        choices.shuffle(blocks)
        kept.append(blocks[:1000])
    return kept


@pytest.mark.timeout(120)
def test_hash_is_the_same_however_the_seeds_are_run(tmp_path: Path) -> None:
    """One seed for each line; other processes, hashes of strings and working directories."""
    command = [sys.executable, "-m", "tests.faults.simulation", *CHEAP_SEEDS]
    summaries = {
        subprocess.run(
            [*command, "--jobs", jobs],
            cwd=cwd,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for jobs, hash_seed, cwd in (("1", "0", ROOT), ("2", "1", tmp_path))
    }
    assert len(summaries) == 1
    assert "seeds=5 failed=0" in summaries.pop()


@pytest.mark.parametrize("error", [LeftoverError, ValueError])
def test_task_that_ignores_cancellation_is_an_anomaly(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of `simulate()` raises too, and must not end the run of all seeds."""
    complete = _Scenario.play
    tasks = []

    async def play(scenario: _Scenario) -> None:
        await complete(scenario)
        tasks.append(asyncio.create_task(ignore_cancellation()))
        if error is ValueError:
            raise ValueError("the scenario fails")

    monkeypatch.setattr(_Scenario, "play", play)
    monkeypatch.setattr(
        "tests.faults.simulation.runner.shrink", lambda plan, fails: Shrunk(plan, 0, True)
    )
    assert main(["--seeds", "2", "--first", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failures = [line for line in lines if line.startswith("FAIL")]
    assert failures == [f"FAIL seed={seed} anomaly={error.__name__}" for seed in (2, 3)]
    name = f"test_seed_2_{error.__name__.lower()}"
    assert [line for line in lines if line.startswith("def ")] == [f"def {name}() -> None:"]


async def ignore_cancellation() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def test_members_may_miss_what_retention_has_deleted() -> None:
    steps = [
        *(Step(8.0, Pause(f"c{member}", 4.0)) for member in range(MEMBERS)),
        *(Step(9.0, Send(0, "send_many", 5, partition)) for partition in range(PARTITIONS)),
        *(Step(10.0, Retention(partition, 1.0)) for partition in range(PARTITIONS)),
        *(Step(14.0, Send(0, "send_many", 5, partition)) for partition in range(PARTITIONS)),
    ]
    report = run(replace(plan_of(2), steps=tuple(steps), reserve=()))
    assert report.names == []
    assert report.fired["Retention"] == PARTITIONS
    told = [one for one in report.operations if one.call != "deleted"]
    assert {"lost-write", "unseen"} <= {one.name for one in check(told)}


SENDS = tuple(
    Step(at, Send(0, "send_many", 5, partition))
    for at in (1.0, 12.0, 30.0)
    for partition in range(PARTITIONS)
)


@pytest.mark.parametrize("seed", [2, 3, 4], ids=["0.8.2", "0.9", "0.10"])
def test_members_step_over_each_kind_of_stored_damage(seed: int) -> None:
    damages = tuple(
        Step(5.0 + number, StoreDamage(number % PARTITIONS, damage, good=number % 3))
        for number, damage in enumerate(DAMAGES)
    )
    steps = sorted((*SENDS, *damages), key=lambda step: step.at)
    report = run(replace(plan_of(seed), steps=tuple(steps), reserve=()))
    assert report.names == []
    assert report.fired["StoreDamage"] == len(DAMAGES)
    seeks = [one.offsets for one in report.operations if one.call == "seek"]
    assert len({offsets.popitem() for offsets in map(dict, seeks)}) == len(DAMAGES)


def test_damage_that_is_passed_without_an_error_is_an_anomaly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strikes, "damaged_set", lambda *arguments: b"")
    steps = (*SENDS[:4], Step(5.0, StoreDamage(1, "zeros", good=0)), *SENDS[4:])
    report = run(replace(plan_of(3), steps=steps, reserve=()))
    assert report.names == ["silent-damage"]
    story = explain(replace(plan_of(3), steps=steps, reserve=()), "silent-damage")
    tell_of_the_partition(story)
    assert re.search(r"^ +1005\.000 FAULT StoreDamage\(partition=1,", story, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d+ MENDED all faults$", story, re.MULTILINE)
    assert re.search(r"c0\.0 assigned( mixed/\d)+ in generation \d+$", story, re.MULTILINE)
    assert re.search(r"log  c0\.0: ", story)
    assert ": Metadata × " in story
    monkeypatch.setattr(explaining, "MAX_LINES", story.count("\n") - 20)
    shorter = explain(replace(plan_of(3), steps=steps, reserve=()), "silent-damage")
    tell_of_the_partition(shorter)
    assert ": Metadata × " not in shorter
    assert " lines before" not in shorter


def tell_of_the_partition(story: str) -> None:
    """Assert that a story has the partition's requests, and where reading it began."""
    assert "what happened to mixed/1:" in story
    for line in (
        r"c\d\.0 → broker \d: OffsetFetch mixed/1 × 1",
        r"c\d\.0 → broker \d: ListOffsets mixed/1 by time -2 × 1",
        r"c\d\.0 reads mixed/1 from 0 on",
        r"c\d\.0 reads mixed/1 from [1-9]\d* on",
        r"c\d\.0 → broker \d: Fetch mixed/1 from \d+ × \d+",
        r"c\d\.0 → broker \d: OffsetCommit mixed/1 at \d+ × 1",
        r"p0 → broker \d: Produce mixed/1 × 1",
    ):
        assert re.search(rf"^ +1\d\d\d\.\d+ {line}$", story, re.MULTILINE), line
    assert "mixed/2@" not in story
    assert " reads mixed/2 " not in story


@pytest.mark.parametrize("is_empty", [False, True], ids=["another-cluster", "empty"])
def test_members_wait_for_the_right_zookeeper(is_empty: bool) -> None:
    """A member that meets another cluster's ends, and another one begins in its place."""
    steps = (*SENDS[:4], Step(5.0, WrongZookeeper(10.0, is_empty)), *SENDS[4:])
    report = run(replace(plan_of(2), steps=steps, reserve=()))
    assert report.names == []
    assert report.fired["WrongZookeeper"] == 1
    refused = {one.process for one in report.operations if "ZookeeperMismatchError" in one.error}
    assert refused == (set() if is_empty else {f"c{member}.0" for member in range(MEMBERS)})


def test_change_of_a_wrong_zookeeper_is_an_anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterZookeeper, "verify", lambda self, client, timeout_s: None)
    steps = (*SENDS[:4], Step(5.0, WrongZookeeper(10.0, is_empty=False)), *SENDS[4:])
    report = run(replace(plan_of(2), steps=steps, reserve=()))
    assert "foreign-write" in report.names


def test_fault_without_an_effect_is_not_counted() -> None:
    steps = (
        Step(5.0, StopBroker(1, 10.0)),
        Step(6.0, Pause("broker 1", 2.0)),
        Step(6.0, Partition("p0", "broker 1", both=False, for_s=2.0)),
        Step(6.0, SlowLink("p0", "broker 2", (1.0, 2.0), None, 2.0)),
        Step(7.0, Kill(0, "elect", 1.0, 1.0, elsewhere=False)),
        Step(8.0, MoveController(0)),
        Step(9.0, MoveController(2)),
    )
    report = run(replace(plan_of(2), fragment=False, steps=steps, reserve=()))
    assert +report.fired == {"StopBroker": 1, "MoveController": 1}
    assert report.effective == 2


@pytest.mark.parametrize("struck", [0, 3, 5])
def test_reserve_strikes_for_faults_without_an_effect(struck: int) -> None:
    plan = plan_of(2)
    steps = tuple(Step(5.0 + number, RollSegments()) for number in range(struck))
    sends = Step(1.0, Send(0, "send_many", 5, None))
    report = run(replace(plan, steps=(sends, *steps)))
    assert report.effective == MIN_EFFECTIVE
    fired = Counter([*["RollSegments"] * struck])
    fired.update(type(fault).__name__ for fault in plan.reserve[: MIN_EFFECTIVE - struck])
    assert {**report.fired, FRAGMENT: 0} == {**fired, FRAGMENT: 0}


def test_variants_of_a_fault_are_kinds_of_their_own() -> None:
    kill = Kill(0, "elect", 1.0, 1.0, elsewhere=False)
    kinds: dict[tuple[str, ...], Fault] = {
        ("Kill",): kill,
        ("KillUnflushed",): replace(kill, unflushed=3),
        ("Partition",): Partition("p0", None, both=True, for_s=1.0),
        ("PartitionOneWay",): Partition("p0", None, both=False, for_s=1.0),
        ("Upgrade",): Upgrade("0.10", 1.0, 1.0, back=False),
        ("UpgradeBack",): Upgrade("0.9", 1.0, 1.0, back=True),
        (): SlowLink("p0", "c0", (1.0, 2.0), None, 1.0),
        ("SlowLinkBandwidth",): SlowLink("p0", "c0", (1.0, 2.0), 2000.0, 1.0),
        ("SlowLinkLatency",): SlowLink("p0", "c0", (100.0, 400.0), None, 1.0),
        ("SlowLinkBandwidth", "SlowLinkLatency"): SlowLink("p0", "c0", (100.0, 400.0), 2000.0, 1.0),
        ("Answer",): Strike("ProduceRequest", Answer(6), None, 1, 1),
        ("Hold",): Hold(1.0),
    }
    assert {kinds_of(fault): fault for fault in kinds.values()} == kinds
    assert {*KINDS} >= {kind for some in kinds for kind in some}


def test_seeds_leave_frozen_what_was_frozen_before() -> None:
    """Else the collection after each later test would visit all modules."""
    gc.freeze()
    before = gc.get_freeze_count()
    with frozen_modules():
        pass
    assert gc.get_freeze_count() > before / 2, "all but what was freed in between"


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
