"""A `Node` behind a proxy that cuts connections at random bytes: no response is mismatched."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiokafka08._core.net.config import parse_bootstrap_servers
from aiokafka08._core.net.limits import NetLimits
from aiokafka08._core.net.node import Lane, Node
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.telemetry import Connected, Disconnected
from aiokafka08.testing import EmbeddedCluster
from tests._core.net.conftest import MakeConfig, Recorder
from tests.brokers.proxy import TcpProxy
from tests.support.full import in_full

pytestmark = pytest.mark.both_loops

PARTITIONS = 8


@pytest.mark.parametrize("version", ["0.8.1", "0.8.2", "0.9", "0.10"])
@pytest.mark.parametrize("seed", [1, *in_full(2, 3, 4)])
async def test_responses_match_requests_on_cut_connections(
    make_config: MakeConfig, version: str, seed: int
) -> None:
    limits = NetLimits(reconnect_backoff_s=0.001, reconnect_backoff_max_s=0.01)
    chance = random.Random(seed)
    telemetry = Recorder()
    async with (
        EmbeddedCluster(version=version, topics={"t": PARTITIONS}) as cluster,
        TcpProxy(cluster.bootstrap_servers, seed=seed) as proxy,
    ):
        for partition in range(PARTITIONS):
            cluster.append("t", partition, [b"x"] * (partition + 1))
        (address,) = parse_bootstrap_servers(proxy.address)
        node = Node(0, address, make_config(request_timeout_ms=2000, limits=limits), telemetry)
        right = lost = 0

        async def ask(lane: Lane) -> None:
            nonlocal right, lost
            for _ in range(25):
                partition = chance.randrange(PARTITIONS)
                question = [ListOffsetsPartition(partition, -1, 1)]
                request = ListOffsetsRequest(-1, [Topic("t", question)])
                asking = node.request(request, lane=lane, version=0)
                try:
                    if chance.random() < 0.2:
                        async with asyncio.timeout(chance.random() / 100):
                            answer = await asking
                    else:
                        answer = await asking
                except (KafkaError, TimeoutError) as error:
                    assert not isinstance(error, KafkaError) or error.retriable, error  # noqa: PT017
                    lost += 1
                    continue
                (one,) = answer.topics[0].partitions
                assert (one.partition, one.offsets) == (partition, [partition + 1])
                right += 1

        await node.exact_version()  # what it is, it can tell once undisturbed
        proxy.close_after(200, 3000, repeat=True)
        await asyncio.gather(*(ask(lane) for lane in Lane for _ in range(3)))
        assert right > 20
        assert lost > 0
        assert {event.broker for event in telemetry.of(Connected)} == {version}
        await node.stop()
        assert len(telemetry.of(Connected)) == len(telemetry.of(Disconnected))
