"""The calls of `AIOKafkaAdminClient` that describe brokers, topics and positions in logs.

The client's methods of the same names document arguments and errors.

Invariant: no call changes anything. No call creates a topic: the metadata of a topic is never
requested by its name, since on 0.8 that would create it. `broker_releases` and `ping_brokers`
return the results of the other brokers even if one doesn't respond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, cast

from aiokafka08._core.concurrency.loop_yield import in_steps
from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.cluster import check_partitions
from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08._core.topic_names import check_topic_names
from aiokafka08._core.zookeeper.topic_states import ClusterNodes, read_cluster_nodes
from aiokafka08.admin.arguments import check_mapping
from aiokafka08.admin.cluster_description import (
    BrokerDescription,
    ClusterDescription,
    TopicDescription,
)
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.offset_positions import OffsetPosition, check_position, find_positions
from aiokafka08.errors import (
    KafkaError,
    KafkaUnavailableError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    topic_code,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import TopicState
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

_POSITIONS: Final = "a mapping of TopicPartition(topic, partition) to positions"


class ClusterCalls:
    """The calls about the cluster as a whole."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._router = connection.router

    async def list_topics(self) -> list[str]:
        # A topic that was just created may be missing.
        return [state.topic for state in await self._all_topics()]

    async def describe_topics(self, topics: list[str] | None) -> list[TopicDescription]:
        states = {state.topic: state for state in await self._all_topics()}
        wanted = list(states) if topics is None else check_topic_names(topics)
        unknown = UnknownTopicOrPartitionError.errno
        found = (states.get(name) or TopicState(unknown, name, False, []) for name in wanted)
        return [
            _description(state)
            async for state in in_steps(found, lambda state: len(state.partitions))
        ]

    async def describe_cluster(self) -> ClusterDescription:
        self._connection.check()
        response = await self._connection.fetch_metadata()
        return {
            "brokers": [cast(BrokerDescription, asdict(broker)) for broker in response.brokers],
            "cluster_id": response.cluster_id,
            "controller_id": response.controller_id,
        }

    async def list_offsets(
        self, positions: Mapping[TopicPartition, OffsetPosition]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._connection.check()
        checked = {
            tp: check_position(tp, position)
            for tp, position in zip(
                check_partitions(check_mapping("positions", positions, _POSITIONS)),
                positions.values(),
                strict=True,
            )
        }
        return await find_positions(self._router, checked)

    async def broker_releases(self) -> dict[int, str | None]:
        described = await self.describe_cluster()
        nodes = [broker["node_id"] for broker in described["brokers"]]
        releases = await run_together(*map(self._release, nodes))
        return dict(zip(nodes, releases, strict=True))

    async def ping(self, timeout_s: float) -> None:
        self._connection.check()
        await self._router.ping(timeout_s)

    async def ping_brokers(self) -> dict[int, BrokerVersion | KafkaError]:
        self._connection.check()

        async def ping(node_id: int) -> BrokerVersion | KafkaError:
            try:
                await self._router.request(ListOffsetsRequest(-1, []), node_id=node_id, version=0)
            except KafkaError as error:
                return error
            unknown = KafkaUnavailableError("its version isn't known")
            return self._router.version(node_id) or unknown

        nodes = list(self._router.metadata.snapshot.brokers)
        return dict(zip(nodes, await run_together(*map(ping, nodes)), strict=True))

    async def describe_cluster_nodes(self) -> ClusterNodes:
        self._connection.check()
        if self._connection.zookeeper is None:
            raise UnsupportedVersionError(
                "describe_cluster_nodes: brokers have no request for it. Give zookeeper_connect="
                "'host:2181/chroot'"
            )
        return await self._connection.run_on_zookeeper(
            read_cluster_nodes,
            self._connection.zookeeper,
            self._router.config.request_timeout_s,
        )

    # --- inside -----------------------------------------------------------------------------------

    async def _release(self, node_id: int) -> str | None:
        limit_s = self._router.config.start_timeout_s
        try:
            return (await self._router.exact_version(node_id, timeout_s=limit_s)).release
        except KafkaError:
            return None

    async def _all_topics(self) -> list[TopicState]:
        self._connection.check()
        return (await self._connection.fetch_metadata()).topics


def _description(state: TopicState) -> TopicDescription:
    # Copy field by field, since `dataclasses.asdict` takes ten times as long.
    return {
        "error_code": topic_code(state.error_code),
        "topic": state.topic,
        "is_internal": state.is_internal,
        "partitions": [
            {
                "error_code": topic_code(partition.error_code),
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
            }
            for partition in state.partitions
        ],
    }
