"""Gauges tell a leak from ups and downs, and rates a decay; the ledger forgets what is done."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools

import pytest

from tests.tools.soak import __main__ as command
from tests.tools.soak.bridge import soak_bridge
from tests.tools.soak.gateway import PER_SECOND, soak_gateway
from tests.tools.soak.gauges import SLACK, Gauges, Sample, read, slope_of
from tests.tools.soak.rates import Point, Rates
from tests.tools.soak.sampling import report, sample
from tests.tools.soak.workload import Ledger


def samples(values: list[float]) -> Gauges[Sample]:
    """Return samples a minute apart, all of whose gauges have these values."""
    return Gauges([Sample(60.0 * at, *[value] * len(SLACK)) for at, value in enumerate(values)])


def test_a_leak_grows() -> None:
    trends = samples([10.0 + at + at % 3 for at in range(60)]).trends()
    assert not any(trend.is_flat for trend in trends)
    assert trends[0].per_hour == pytest.approx(60, rel=0.05)
    assert str(trends[0]).endswith("GROWS")


def test_ups_and_downs_are_flat() -> None:
    trends = samples([50.0 + 40 * (at % 5 == 0) for at in range(60)]).trends()
    assert all(trend.is_flat for trend in trends)
    assert [trend.highest for trend in trends] == [90.0] * len(SLACK)
    assert str(trends[0]).endswith("flat")


def test_a_single_dip_is_no_growth_afterwards() -> None:
    trends = samples([50.0 - 40 * (at == 30) for at in range(60)]).trends()
    assert all(trend.is_flat for trend in trends)


def test_the_first_third_warms_up() -> None:
    assert all(trend.is_flat for trend in samples([*range(20), *[20.0] * 40]).trends())


def test_a_run_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="5 samples: expected at least 6"):
        samples([1.0] * 5).trends()


def test_slope_of_one_time_is_zero() -> None:
    assert slope_of([1.0, 1.0], [2.0, 3.0]) == 0.0


def rates(per_second: list[float]) -> Rates:
    """Return points a minute apart, between which so many were done a second."""
    counts = itertools.accumulate([0.0, *(60 * one for one in per_second)])
    return Rates("messages", [Point(60.0 * at, count) for at, count in enumerate(counts)])


def test_rate_that_falls_below_half_decays() -> None:
    found = rates([100.0] * 20 + [80.0] * 20 + [49.0] * 20)
    assert not found.is_held
    assert str(found) == "rate: 100 messages/s, in the last third 49: DECAYS"
    flat = samples([10.0] * 6)
    assert report(flat, found) == 1
    assert report(flat) == 0


def test_rate_with_slow_minutes_or_a_slow_machine_holds() -> None:
    found = rates([1.0] * 5 + [0.0] * 5 + [1.0] * 15 + [0.6, 0.4] * 3)
    assert found.is_held
    assert str(found).endswith("holds")
    assert report(samples([10.0] * 6), found) == 0


def test_too_few_points_have_no_thirds() -> None:
    with pytest.raises(ValueError, match="4 points: expected at least 6"):
        rates([1.0] * 3).thirds()


async def test_each_sample_has_a_point() -> None:
    counts = itertools.count(7.0)
    found, done = Gauges[Sample](), Rates("messages")
    task = asyncio.create_task(asyncio.sleep(60))
    await sample(found, [task], 0.05, 0.01, str, read, done, lambda: next(counts))
    task.cancel()
    assert len(done.points) == len(found.samples) + 1
    assert [one.done for one in done.points] == [7.0 + at for at in range(len(done.points))]


@pytest.mark.asyncio_loop  # uvloop doesn't tell its timers
async def test_tasks_and_timers_are_counted() -> None:
    before = read()
    task = asyncio.create_task(asyncio.sleep(3600))
    cancelled = asyncio.get_running_loop().call_later(3600, gc.collect)
    cancelled.cancel()
    await asyncio.sleep(0)
    after = read()
    assert (after.tasks - before.tasks, after.timers - before.timers) == (1, 1)
    task.cancel()


@pytest.mark.asyncio_loop  # uvloop doesn't tell its timers
async def test_memory_in_use_is_counted() -> None:
    before = read()
    kept = [[number] for number in range(5000)]
    assert read().blocks_k >= before.blocks_k + len(kept) / 1000
    buffer = ctypes.create_string_buffer(8 << 20)
    assert read().malloc_mib >= before.malloc_mib + 8
    del buffer, kept
    assert read().malloc_mib < before.malloc_mib + 4


def test_ledger_is_empty_when_all_is_done() -> None:
    ledger = Ledger()
    ledger.on_their_way |= {0, 1, 2}
    assert ledger.read(0)  # before its acknowledgement
    ledger.acknowledge(0)
    ledger.acknowledge(1)
    assert ledger.unread == {1}
    assert ledger.read(1)
    assert not ledger.read(1)  # again
    assert ledger.read(2)
    ledger.fail(2)
    assert ledger == Ledger()


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--minutes"], ["--kill-every"], ["--sample-every"]),
        *(["bridge", "--fault-every"], ["gateway", "--per-second"]),
    ],
)
def test_impossible_times_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([*arguments, "0"])
    assert "0: expected a number > 0" in capsys.readouterr().err


@pytest.mark.real
@pytest.mark.full
@pytest.mark.timeout(600)
async def test_a_short_soak_with_a_kill_loses_nothing() -> None:
    found = await command.soak(["3.9.1"], seconds=30, kill_every_s=10, sample_every_s=1)
    assert [trend.name for trend in found.trends()] == list(SLACK)
    assert min(sample.tasks for sample in found.samples) > 10


@pytest.mark.real
@pytest.mark.full
@pytest.mark.timeout(900)
async def test_bridge_loses_nothing_in_a_short_soak() -> None:
    found = await soak_bridge(seconds=60, fault_every_s=15, sample_every_s=1)
    assert [trend.name for trend in found.trends()] == list(SLACK)


@pytest.mark.real
@pytest.mark.full
@pytest.mark.timeout(1200)
async def test_gateway_stays_flat_in_five_minutes_of_traffic() -> None:
    found, _ = await soak_gateway(seconds=300, per_second=PER_SECOND, sample_every_s=1)
    trends = found.trends()
    assert [trend.name for trend in trends] == ["rss_mib", "fds", "threads"]
    assert all(trend.is_flat for trend in trends), list(map(str, trends))
