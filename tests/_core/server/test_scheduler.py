"""`FairScheduler`: slices, the order of jobs, large ones one at a time. A clock passed in."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from aiokafka08 import environment
from aiokafka08._core.server.scheduler import SLICE_S, FairScheduler, Job, TimeAccount
from aiokafka08._core.server.work import ALONE, FEW_ITEMS, PAUSE, Work, in_steps, offload
from tests.support.waiting import until


class Clock:
    """Time that passes only when a job works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def scheduler(clock: Clock) -> AsyncIterator[FairScheduler]:
    scheduler = FairScheduler(lambda: None, clock)
    yield scheduler
    await scheduler.close()


def refuse(error: Exception) -> None:
    raise error


class Run:
    """Starts jobs that log each of their steps."""

    def __init__(self, scheduler: FairScheduler, clock: Clock) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.log: list[str] = []

    def start(
        self,
        name: str,
        steps: int,
        step_s: float,
        account: TimeAccount | None = None,
        *,
        is_behind: bool = False,
    ) -> Job:
        def work() -> Work[None]:
            for _ in range(steps):
                self.clock.now += step_s
                self.log.append(name)
                yield PAUSE

        job = Job(
            account or TimeAccount(),
            work(),
            lambda: self.log.append(f"{name} ended"),
            refuse,
            is_behind=is_behind,
        )
        if self.scheduler.run(job):
            self.log.append(f"{name} ended at once")
        return job


@pytest.fixture
def run(scheduler: FairScheduler, clock: Clock) -> Run:
    return Run(scheduler, clock)


async def test_short_jobs_end_at_once(run: Run) -> None:
    for name in ("a", "b"):
        run.start(name, 2, SLICE_S / 10)
    assert run.log == ["a", "a", "a ended at once", "b", "b", "b ended at once"]


async def test_long_job_lets_the_loop_go_on_after_each_slice(run: Run) -> None:
    steps_at_tick = []

    def tick() -> None:
        steps_at_tick.append(len(run.log))
        if "long ended" not in run.log:
            asyncio.get_running_loop().call_soon(tick)

    run.start("long", 10, SLICE_S / 2)
    assert run.log == ["long"] * 2
    tick()
    await until(lambda: "long ended" in run.log, "the job has ended")
    new = [after - before for before, after in itertools.pairwise(steps_at_tick)]
    assert max(new) <= 3


async def test_who_has_used_the_least_time_is_next(run: Run) -> None:
    run.start("fills the slice", 1, SLICE_S)
    run.start("greedy", 5, SLICE_S)
    run.start("modest", 3, SLICE_S / 5)
    await until(lambda: "greedy ended" in run.log, "all have ended")
    assert run.log[1:6] == ["greedy", *["modest"] * 3, "modest ended"]


async def test_newcomers_wait_behind_those_who_are_here(scheduler: FairScheduler, run: Run) -> None:
    run.start("fills the slice", 1, SLICE_S)
    run.start("new", 1, SLICE_S, scheduler.newcomer())
    run.start("known", 1, SLICE_S)
    await until(lambda: "new ended" in run.log, "all have ended")
    assert run.log.index("known") < run.log.index("new")


async def test_small_requests_overtake_a_crowd_of_large_ones(
    scheduler: FairScheduler, run: Run
) -> None:
    """Each of the crowd has used as much as the next one: none may come first for that."""
    good = scheduler.newcomer()
    for _ in range(20):
        run.start("crowd", 10, SLICE_S, scheduler.newcomer())
    sent = 0

    def send() -> None:
        nonlocal sent
        if sent == run.log.count("good") and sent < 30:
            run.start("good", 1, 0.0001, good)
            sent += 1
        if run.log.count("crowd ended") < 20:
            asyncio.get_running_loop().call_soon(send)

    send()
    await until(lambda: run.log.count("crowd ended") == 20)
    between = [
        list(run_of) for is_good, run_of in itertools.groupby(run.log, "good".__eq__) if not is_good
    ]
    assert run.log.count("good") == 30
    # The last group is what the crowd does after the last small request.
    assert max(group.count("crowd") for group in between[1:-1]) <= 2


async def test_oldest_requests_come_in_turn_with_those_behind_others(run: Run) -> None:
    """Even those of a client that has used more time than each of the others."""
    good = TimeAccount(3600.0)
    for _ in range(1000):
        run.start("crowd", 1, SLICE_S / 10, is_behind=True)
    for number in range(5):
        before = len(run.log)
        run.start(f"good {number}", 1, SLICE_S / 10, good)
        await until(partial(run.log.__contains__, f"good {number}"), "it is its turn", pause_s=0)
        assert run.log[before : run.log.index(f"good {number}")].count("crowd") <= 2
    await until(lambda: run.log.count("crowd") == 1000, "the others have theirs")


async def test_requests_behind_others_get_every_second_turn(run: Run) -> None:
    run.start("fills the slice", 1, SLICE_S)
    for _ in range(10):
        run.start("oldest", 1, SLICE_S / 100)
        run.start("behind", 1, SLICE_S / 100, TimeAccount(3600.0), is_behind=True)
    await until(lambda: run.log.count("behind ended") == 10, "all have ended")
    jobs = [one for one in run.log if one in ("oldest", "behind")]
    assert jobs == ["oldest", "behind"] * 10


@pytest.mark.parametrize("is_crowd_behind", [False, True])
async def test_requests_in_both_queues_get_their_turns(
    scheduler: FairScheduler, clock: Clock, is_crowd_behind: bool
) -> None:
    """Also after the jobs of one queue have used far more time each than those of the other."""
    done = {"crowd": 0, "other": 0, "good": 0, "good behind": 0}

    def start(name: str, account: TimeAccount, cost_s: float, *, is_behind: bool) -> None:
        def work() -> Work[None]:
            clock.now += cost_s
            yield PAUSE

        def ended() -> None:
            done[name] += 1
            if clock.now < 12:
                start(name, account, cost_s, is_behind=is_behind)

        if scheduler.run(Job(account, work(), ended, refuse, is_behind=is_behind)):
            ended()

    for _ in range(100):
        start("crowd", scheduler.newcomer(), SLICE_S / 3, is_behind=is_crowd_behind)
    start("other", scheduler.newcomer(), SLICE_S / 3, is_behind=not is_crowd_behind)
    await until(lambda: clock.now > 10, "time has passed", pause_s=0)
    good = scheduler.newcomer()
    start("good", good, SLICE_S / 30, is_behind=False)
    start("good behind", good, SLICE_S / 30, is_behind=True)
    before, done["good"], done["good behind"] = done["crowd"], 0, 0
    await until(lambda: clock.now > 12, "the good one has had its turns", pause_s=0)
    turns = (done["crowd"] - before) / 100
    assert min(done["good"], done["good behind"]) > turns > 5


async def test_forgiven_connection_waits_for_none_of_its_debts(run: Run) -> None:
    account = TimeAccount(3600.0)
    for number in range(20):
        run.start(f"crowd {number}", 20, SLICE_S)
    account.forgive()
    run.start("lost", 1, SLICE_S / 10, account)
    await until(lambda: "lost" in run.log, "it is its turn", pause_s=0)
    assert run.log.index("lost") <= 40, "after one or two steps of each"


async def test_new_connection_with_a_small_request_comes_soon(
    scheduler: FairScheduler, run: Run
) -> None:
    crowd = [f"crowd {number}" for number in range(20)]
    for name in crowd:
        run.start(name, 30, SLICE_S / 10, scheduler.newcomer())
    await until(lambda: {*crowd} <= {*run.log}, "all have had a account", pause_s=0)
    before = len(run.log)
    run.start("new", 1, 0.0001, scheduler.newcomer())
    await until(lambda: {f"{name} ended" for name in crowd} <= {*run.log})
    assert before < 400  # most of the crowd's 600 steps come after the new request
    assert run.log.index("new") <= before + 11


async def test_time_in_peace_is_no_debt(scheduler: FairScheduler, run: Run) -> None:
    """Who has worked alone for long isn't behind connections that come later."""
    known = TimeAccount()
    run.start("alone", 50, SLICE_S, known)
    await until(lambda: "alone ended" in run.log)
    run.start("fills the slice", 1, SLICE_S)
    for _ in range(3):
        run.start("later", 20, SLICE_S, scheduler.newcomer())
    run.start("known", 1, SLICE_S, known)
    await until(lambda: run.log.count("later ended") == 3)
    assert run.log[: run.log.index("known")].count("later") <= 3


async def test_time_not_used_is_no_credit(run: Run) -> None:
    """Who returns after an hour doesn't hold up the others for an hour."""
    run.start("fills the slice", 1, SLICE_S)
    run.start("busy", 4, SLICE_S, TimeAccount(3600.0))
    await until(lambda: "busy" in run.log, "the busy one has its account")
    run.start("idle", 4, SLICE_S)
    await until(lambda: run.log.count("idle") == 4, "the idle one is done")
    assert run.log.count("busy") >= 3


async def test_offloaded_function_runs_in_another_thread(scheduler: FairScheduler) -> None:
    found: list[Any] = []

    def work() -> Work[None]:
        found.append((yield from offload(threading.get_ident)))

    assert not scheduler.run(Job(TimeAccount(), work(), lambda: found.append("ended"), refuse))
    await until(lambda: "ended" in found, "the job has ended")
    assert found[0] != threading.get_ident()


async def test_error_in_the_worker_thread_reaches_the_steps(scheduler: FairScheduler) -> None:
    found: list[Any] = []

    def fail() -> None:
        raise ValueError("bad")

    def work() -> Work[None]:
        try:
            yield from offload(fail)
        except ValueError as error:
            found.append(str(error))

    scheduler.run(Job(TimeAccount(), work(), lambda: found.append("ended"), refuse))
    await until(lambda: "ended" in found, "the job has ended")
    assert found == ["bad", "ended"]


async def test_failed_job_reports_and_others_go_on(scheduler: FairScheduler, run: Run) -> None:
    def work() -> Work[None]:
        yield PAUSE
        raise ValueError("bug")

    found: list[Exception] = []
    assert scheduler.run(Job(TimeAccount(), work(), lambda: None, found.append))
    assert [str(error) for error in found] == ["bug"]
    run.start("other", 1, 0.0)
    assert run.log == ["other", "other ended at once"]


def alone(log: list[str], name: str, gate: threading.Event | None = None) -> Callable[[], Any]:
    def work() -> Work[None]:
        yield ALONE
        log.append(f"{name} begins")
        if gate is not None:
            yield from offload(lambda: gate.wait(10))
        yield PAUSE
        log.append(f"{name} ends")

    return work


async def test_large_jobs_run_one_at_a_time(scheduler: FairScheduler) -> None:
    log: list[str] = []
    gate = threading.Event()
    for name in ("one", "two"):
        work = alone(log, name, gate)
        scheduler.run(Job(TimeAccount(), work(), lambda: log.append("ended"), refuse))
    await until(lambda: log == ["one begins"], "the first one has begun")
    gate.set()
    await until(lambda: log.count("ended") == 2, "both have ended")
    assert log == ["one begins", "one ends", "ended", "two begins", "two ends", "ended"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_job_that_waits_for_a_future_holds_up_no_other(
    scheduler: FairScheduler, is_cancelled: bool
) -> None:
    """Not even other large ones."""
    log: list[str] = []
    future = asyncio.get_running_loop().create_future()

    def work() -> Work[None]:
        yield ALONE
        log.append((yield future))

    job = Job(TimeAccount(), work(), lambda: log.append("ended"), refuse)
    assert not scheduler.run(job)
    large = alone(log, "large")
    scheduler.run(Job(TimeAccount(), large(), lambda: log.append("ended"), refuse))
    await until(lambda: "ended" in log)
    assert log == ["large begins", "large ends", "ended"]
    if is_cancelled:
        scheduler.cancel(job)
    future.set_result("found")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log[3:] == ([] if is_cancelled else ["found", "ended"])


@pytest.mark.parametrize("cancelled", ["one", "two"])
async def test_cancelled_large_job_makes_room(scheduler: FairScheduler, cancelled: str) -> None:
    log: list[str] = []
    gate = threading.Event()
    jobs = {}
    for name in ("one", "two", "three"):
        work = alone(log, name, gate if name == "one" else None)
        jobs[name] = Job(TimeAccount(), work(), lambda: log.append("ended"), refuse)
        scheduler.run(jobs[name])
    await until(lambda: log == ["one begins"], "the first one has begun")
    scheduler.cancel(jobs[cancelled])
    gate.set()
    await until(lambda: log.count("ended") == 2, "the others have ended")
    assert f"{cancelled} ends" not in log


async def test_close_waits_for_the_worker_thread(clock: Clock) -> None:
    scheduler = FairScheduler(lambda: None, clock)
    log: list[str] = []
    gate = threading.Event()
    scheduler.run(
        Job(TimeAccount(), alone(log, "one", gate)(), lambda: log.append("ended"), refuse)
    )
    await until(lambda: log == ["one begins"], "it has begun")
    closing = asyncio.create_task(scheduler.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert log == ["one begins"]
    assert not [one for one in threading.enumerate() if "large requests" in one.name]


def test_many_items_ask_to_be_alone() -> None:
    steps = in_steps(str, range(FEW_ITEMS + 1))
    assert next(steps) is ALONE
    needs = list(steps)
    assert set(needs) == {PAUSE}
    assert len(needs) == 10
    with pytest.raises(StopIteration) as ended:
        next(in_steps(str, range(3)))
    assert ended.value.value == ["0", "1", "2"]


async def test_the_clock_of_a_replacement_is_used() -> None:
    """FairScheduler that were made before a replacement read the clock that it brings."""
    scheduler, clock = FairScheduler(lambda: None), Clock()
    run = Run(scheduler, clock)
    with environment.replace(monotonic=clock):
        run.start("long", 2, SLICE_S)
        assert run.log == ["long"]
        await until(lambda: "long ended" in run.log, "the job has ended")
    await scheduler.close()
