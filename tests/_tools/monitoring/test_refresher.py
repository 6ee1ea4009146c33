"""`Refresher` and its status: what is served when refreshes succeed, fail, or hang."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Any, cast

import pytest

from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08._tools.monitoring.refresh_status import (
    KEPT_INTERVALS,
    MIN_KEPT_S,
    ReadyMetrics,
    RefreshStatus,
)
from aiokafka08._tools.monitoring.refresher import Refresher
from aiokafka08.errors import KafkaError, NoBrokersAvailable, UnsupportedVersionError
from tests.support.waiting import until

ALIVE = {1: BrokerSample(1, "a:9092")}
GOOD = ClusterSample(ALIVE, {"t": TopicSample({0: PartitionSample(1, start=0, end=7)})})
HANGS = ClusterSample({}, {})
"""In a script: the sample never ends."""


class ScriptedCluster:
    """In place of admin client and sampler: each sample is the next one of the script.

    The last one is repeated.
    """

    def __init__(self, *script: ClusterSample | KafkaError) -> None:
        self.script = list(script)
        self.now = 1000.0
        self.opened = self.closed = self.samples = 0

    async def start(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def sample(self) -> ClusterSample:
        self.samples += 1
        self.now += 2
        one = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if one is HANGS:
            await asyncio.Event().wait()
        if isinstance(one, KafkaError):
            raise one
        return one

    def refresher(self, interval_s: float = 15, min_kept_s: float = MIN_KEPT_S) -> Refresher:
        return Refresher(
            lambda: cast(Any, self),
            lambda admin: cast(Any, admin),
            client_id="test",
            interval_s=interval_s,
            clock=lambda: self.now,
            min_kept_s=min_kept_s,
        )


def own(status: RefreshStatus, now: float) -> dict[str, float]:
    return {one.name: one.series[0][1] for one in status.families(now, "1.0") if one.series}


async def refreshed(
    cluster: ScriptedCluster, times: int = 1, min_kept_s: float = MIN_KEPT_S
) -> RefreshStatus:
    """Return the status after some refreshes."""
    refresher = cluster.refresher(interval_s=0, min_kept_s=min_kept_s)
    task = asyncio.create_task(refresher.run())
    await until(lambda: refresher.status.refreshes >= times)
    task.cancel()
    await asyncio.wait([task])
    assert (cluster.opened, cluster.closed) == (1, 1)
    return refresher.status


async def test_sample_becomes_ready_metrics() -> None:
    status = await refreshed(ScriptedCluster(GOOD))
    assert status.ready is not None
    assert b"kafka_topic_partition_current_offset" in status.ready.text
    assert gzip.decompress(status.ready.compressed) == status.ready.text
    found = own(status, 1005)
    assert (found["kafka_up"], found["kafka_brokers"], found["kafka_broker_up"]) == (1, 1, 1)
    assert found["kafka_exporter_scrape_duration_seconds"] == 2
    assert found["kafka_exporter_state_age_seconds"] == 3
    assert found["kafka_exporter_history_seconds"] == 3
    assert found["kafka_exporter_scrape_errors"] == 0


async def test_prepare_takes_the_place_of_the_metrics() -> None:
    """The console makes its view of each sample, which the history has already."""
    prepared: list[tuple[ClusterSample, float | None]] = []

    async def prepare(sample: ClusterSample, history: ClusterHistory, taken_at: float) -> None:
        prepared.append((sample, history.begin()))

    cluster = ScriptedCluster(GOOD)
    refresher = Refresher(
        lambda: cast(Any, cluster),
        lambda admin: cast(Any, admin),
        client_id="test",
        interval_s=15,
        clock=lambda: cluster.now,
        prepare=prepare,
    )
    await refresher.refresh_once()
    assert prepared == [(GOOD, refresher.status.history_begin)]
    assert (refresher.status.is_up, refresher.status.ready) == (True, None)


async def test_failed_refresh_is_down_and_keeps_the_metrics() -> None:
    status = await refreshed(ScriptedCluster(GOOD, NoBrokersAvailable("none")), times=2)
    found = own(status, 1004)
    assert (found["kafka_up"], found["kafka_exporter_scrape_errors"]) == (0, 1)
    assert (found["kafka_brokers"], found["kafka_broker_up"]) == (0, 0)
    assert found["kafka_exporter_scrapes_total"] == 2
    assert found["kafka_exporter_scrape_failures_total"] == 1
    assert status.served(1062) is status.ready
    assert status.served(1063) is None


async def test_refresh_that_hangs_has_failed() -> None:
    status = await refreshed(ScriptedCluster(GOOD, HANGS, GOOD), times=3, min_kept_s=0.01)
    assert (status.is_up, status.failures) == (True, 1)
    status = await refreshed(ScriptedCluster(GOOD, HANGS), times=2, min_kept_s=0.01)
    assert "wasn't read within" in str(status.error)
    assert own(status, 1004)["kafka_up"] == 0


async def test_silent_broker_is_down_with_new_metrics(caplog: pytest.LogCaptureFixture) -> None:
    silent = BrokerSample(2, "b:9092", error="no response")
    sample = ClusterSample({**ALIVE, 2: silent}, {}, errors=("broker 2: no response",))
    caplog.set_level(logging.WARNING, "aiokafka08.monitoring")
    status = await refreshed(ScriptedCluster(sample))
    assert [one.getMessage() for one in caplog.records] == [
        "test: refresh incomplete: broker 2: no response"
    ]
    assert (status.is_up, status.gaps) == (False, ("broker 2: no response",))
    assert status.served(1003) is status.ready is not None


async def test_broker_that_is_not_named_any_more_is_down() -> None:
    both = ClusterSample({**ALIVE, 2: BrokerSample(2, "b:9092")}, {})
    status = await refreshed(ScriptedCluster(both, GOOD), times=2)
    assert not status.is_up
    assert status.error is None


async def test_cluster_of_4_ends_the_refresher() -> None:
    cluster = ScriptedCluster(UnsupportedVersionError("the broker is a 4.x broker"))
    with pytest.raises(UnsupportedVersionError, match=r"4\.x"):
        await cluster.refresher().run()
    assert cluster.closed == 1


async def test_problem_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka08.monitoring")
    down = NoBrokersAvailable("none")
    await refreshed(ScriptedCluster(GOOD, down, down, GOOD), times=4)
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("ERROR", "test: refresh failed: none"),
        ("INFO", "test: refresh complete again"),
    ]


def test_status_before_the_first_refresh() -> None:
    status = RefreshStatus(15, ended_at=0)
    assert status.served(1) is None
    found = own(status, 1)
    assert found["kafka_up"] == 0
    assert "kafka_exporter_state_age_seconds" not in found


@pytest.mark.parametrize(("interval_s", "limit_s"), [(15, 60), (1, 60), (60, 240)])
def test_health_ends_after_some_intervals(interval_s: float, limit_s: float) -> None:
    assert limit_s == max(60, KEPT_INTERVALS * interval_s)
    status = RefreshStatus(interval_s, ended_at=100, ready=ReadyMetrics(b"", b"", 100))
    assert status.problem(100 + limit_s) is None
    assert "no refresh has ended" in str(status.problem(101 + limit_s))
    assert status.served(100 + limit_s) is not None
    assert status.served(101 + limit_s) is None


def test_nothing_counts_as_up_without_recent_refreshes() -> None:
    status = RefreshStatus(
        15,
        ended_at=0,
        ready=ReadyMetrics(b"", b"", 0),
        is_up=True,
        brokers=(*ALIVE.values(), BrokerSample(2, "b:9092", error="no response")),
    )
    for now, count in ((60, 1), (61, 0)):
        found = own(status, now)
        assert (found["kafka_up"], found["kafka_brokers"]) == (count, count)
        assert found["kafka_broker_up"] == count
