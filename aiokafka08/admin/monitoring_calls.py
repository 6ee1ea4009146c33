"""The part of `AIOKafkaAdminClient` that shows the health of a cluster: brokers, and ZooKeeper's
view of the topics.

`MonitoringCalls` is a base class of the client. `monitoring.sampler` uses it, and applications may.

Invariant: no call changes anything. A broker that doesn't respond fails none of the others.
"""

from __future__ import annotations

import asyncio

from aiokafka08 import environment
from aiokafka08.errors import KafkaError, KafkaUnavailableError, UnsupportedVersionError
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerVersion
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.zookeeper.topic_states import TopicNode, read_topic_nodes


class MonitoringCalls:
    """The calls about the health of a cluster; `AIOKafkaAdminClient` sets the attributes."""

    _router: Router
    _lifecycle: Lifecycle
    _zookeeper_connect: str | None

    async def ping_brokers(self) -> dict[int, BrokerVersion | KafkaError]:
        """Return for each broker, by node id, its version if it responds, or else its error.

        The brokers are those of the last metadata response: call `describe_cluster` before. Each
        gets one request, ListOffsets without topics, which all lines know. The line of a version
        may be `BrokerLine.V0_8`, which stands for any of 0.8.
        """
        self._lifecycle.check()

        async def ping(node_id: int) -> BrokerVersion | KafkaError:
            try:
                await self._router.request(ListOffsetsRequest(-1, []), node_id=node_id, version=0)
            except KafkaError as error:
                return error
            unknown = KafkaUnavailableError("its version isn't known")
            return self._router.version(node_id) or unknown

        nodes = list(self._router.metadata.snapshot.brokers)
        return dict(zip(nodes, await asyncio.gather(*map(ping, nodes)), strict=True))

    async def describe_topic_nodes(self) -> dict[str, TopicNode]:
        """Return replicas, leaders, in-sync replicas and settings of all topics, by ZooKeeper.

        Unlike a broker's metadata, ZooKeeper also names dead replicas, and its in-sync replicas are
        never stale (docs/brokers.md 4.7, 4.8).

        Raises:
            UnsupportedVersionError: there is no `zookeeper_connect`.
            KafkaConnectionError: ZooKeeper can't be reached.
        """
        self._lifecycle.check()
        if self._zookeeper_connect is None:
            raise UnsupportedVersionError(
                "describe_topic_nodes: brokers have no request for it. Give zookeeper_connect="
                "'host:2181/chroot'"
            )
        return await environment.run_in_thread(
            read_topic_nodes, self._zookeeper_connect, self._router.config.request_timeout_s
        )
