"""What the detection of the version leaves in the log of a real broker of each line: nothing.

Only 0.8.0 logs errors, and only if a client needs to know which of the 0.8 lines it is. Starts and
reconnects are both covered (docs/brokers.md 2.5). Left out are the errors of long polls whose
client has gone: a consumer of the same test, or of an earlier one on the same broker (3.13); and
those of brokers up to 0.10 on a newer Java when they delete a topic of an earlier test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from tests._core.net.conftest import MakeConfig, Recorder
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.log_entries import entries
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.every_line]

RELEASES = {
    "0.8.0": BrokerLine.V0_8_0,
    "0.8.1.1": BrokerLine.V0_8_1,
    "0.8.2.2": BrokerLine.V0_8_2,
    "0.9.0.1": BrokerLine.V0_9,
    "0.10.2.2": BrokerLine.V0_10,
    "3.9.1": BrokerLine.V0_10,
}
RECONNECTS = 3
PROBES_OF_0_8_0 = 2
"""How often a probe sends OffsetFetch to 0.8.0: a closed connection may have another reason."""


class LogWatch:
    """What a broker has logged since this object was created."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._start = len(cluster.log(0))

    def errors(self) -> list[str]:
        """Return the entries of level ERROR."""
        return [one for one in self._entries() if "] ERROR " in one]

    def stack_traces(self) -> int:
        """Return how many entries have a stack trace."""
        return sum("\n\tat " in one for one in self._entries())

    def _entries(self) -> list[str]:
        return entries(self._cluster.log(0)[self._start :])


@pytest.fixture
async def cluster(broker_clusters: BrokerClusters, release: str) -> RealCluster:
    return await asyncio.to_thread(broker_clusters.get, release)


@pytest.fixture
async def topic(cluster: RealCluster, unique_topic: Callable[..., str]) -> str:
    name = unique_topic("log")
    await asyncio.to_thread(cluster.create_topic, name)
    return name


async def use_without_exact_line(servers: str, topic: str) -> None:
    """Start and use clients to which all 0.8 lines are the same."""
    options: dict[str, Any] = {"bootstrap_servers": servers}
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        assert (await consumer.getone()).value == b"value"
    async with AIOKafkaAdminClient(**options) as admin:
        assert topic in await admin.list_topics()


async def reconnect(router: Router, lane: Lane = Lane.CONTROL) -> BrokerLine:
    """Use a connection, lose it, and return the line that it was opened with."""
    await router.request(ListOffsetsRequest(-1, []), node_id=0, lane=lane)
    connection = await router.connection(0, lane)
    connection.close("closed by the test")
    await until(lambda: router.open_lane(0, lane) is None, "the connection is lost")
    return connection.version.line


@pytest.mark.parametrize("release", RELEASES)
async def test_clients_without_group_leave_no_error_in_the_log(
    cluster: RealCluster, topic: str, make_config: MakeConfig
) -> None:
    log = LogWatch(cluster)
    await use_without_exact_line(cluster.bootstrap_servers, topic)
    router = Router(make_config(cluster.bootstrap_servers), Recorder())
    router.metadata.add_topics([topic])
    await router.start()
    try:
        for _ in range(RECONNECTS):
            await reconnect(router)
    finally:
        await router.stop()
    assert log.errors() == []
    assert not log.stack_traces()


@pytest.mark.parametrize("release", RELEASES)
async def test_exact_line_leaves_errors_on_0_8_0_only(
    cluster: RealCluster, topic: str, release: str, make_config: MakeConfig
) -> None:
    """0.8.0 is probed twice at first, and once more after the last lane is lost."""
    log = LogWatch(cluster)
    router = Router(make_config(cluster.bootstrap_servers), Recorder())
    router.metadata.add_topics([topic])
    await router.start()
    try:
        assert (await router.exact_version()).line is RELEASES[release]
        assert (await router.exact_version(0)).line is RELEASES[release]
        other = await router.connection(0, Lane.FETCH)
        for _ in range(RECONNECTS):
            assert await reconnect(router) is RELEASES[release]
        other.close("closed by the test")
        assert await reconnect(router) is RELEASES[release]
    finally:
        await router.stop()
    expected = 3 * PROBES_OF_0_8_0 if release == "0.8.0" else 0
    assert log.stack_traces() == expected
    assert len(log.errors()) == expected
    assert all("Unknown api code 9" in line or "Closing socket" in line for line in log.errors())


@pytest.mark.parametrize("release", [release for release in RELEASES if release != "0.8.0"])
async def test_a_group_that_commits_leaves_no_error_in_the_log(
    cluster: RealCluster, topic: str
) -> None:
    log = LogWatch(cluster)
    tp = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=topic, enable_auto_commit=False
    )
    consumer.assign([tp])
    async with consumer:
        await consumer.commit({tp: OffsetAndMetadata(0, "")})
        assert await consumer.committed(tp) == 0
    assert log.errors() == []
    assert not log.stack_traces()
