"""`AdminConnection`: the cluster of an admin client, as all parts of the client share it.

Invariant: nothing here looks up a coordinator, since the first lookup would create
`__consumer_offsets` (docs/brokers.md 8.9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from aiokafka08 import environment
from aiokafka08._core.concurrency.loop_yield import in_steps
from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._core.net.lifecycle import Lifecycle
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.group_nodes import GroupNodes
from aiokafka08._core.zookeeper.session import how_to_install
from aiokafka08._core.zookeeper.topic_nodes import TopicNodes
from aiokafka08.admin.group_requests import list_groups
from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.protocol.requests.metadata import MetadataResponse
from aiokafka08.structs import TopicPartition


class _SharedMetadata:
    """The metadata of one `same_metadata()` block; None until a call needs it, and after the end.

    `connection` is None after the end of the block.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self.connection: AdminConnection | None = connection
        self.lock = asyncio.Lock()
        self.response: MetadataResponse | None = None
        self.partitions: Mapping[TopicPartition, TopicPartition] | None = None


_shared: Final[ContextVar[_SharedMetadata | None]] = ContextVar("_shared", default=None)

P = ParamSpec("P")
T = TypeVar("T")


class AdminConnection:
    """The brokers of a cluster, and its ZooKeeper if it is known.

    `request_timeout_ms`: the timeout of a call that has none of its own.
    """

    def __init__(
        self,
        router: Router,
        lifecycle: Lifecycle,
        request_timeout_ms: int,
        zookeeper: ClusterZookeeper | None,
    ) -> None:
        self.router = router
        self.request_timeout_ms = request_timeout_ms
        self.zookeeper = zookeeper
        # `topic_nodes`, `group_nodes`: topics and groups in ZooKeeper, for `run_on_zookeeper`; None
        # without `zookeeper_connect`
        self.topic_nodes: TopicNodes | None = None
        self.group_nodes: GroupNodes | None = None
        self._lifecycle = lifecycle
        if zookeeper is not None:
            limit_s = router.config.request_timeout_s
            self.topic_nodes = TopicNodes(zookeeper, limit_s)
            self.group_nodes = GroupNodes(zookeeper, limit_s)

    def check(self) -> None:
        """Raise if the client may not be used here and now; see `Lifecycle.check`."""
        self._lifecycle.check()

    async def run_on_zookeeper(
        self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Run in a thread, once brokers are known, a function that opens ZooKeeper sessions."""

        def run() -> Awaitable[T]:
            return environment.run_in_thread(function, *arguments, **options)

        if self.zookeeper is None:
            return await run()
        return await self.zookeeper.run(run, self.router.config.request_timeout_s)

    def has_coordinators(self) -> bool:
        version = self.router.version()
        return version is not None and version.line >= BrokerLine.V0_9

    async def has_offsets_topic(self, metadata: MetadataResponse | None = None) -> bool:
        """Return True if the offsets topic exists, without which no group is in Kafka.

        An authorizer, or a gateway, may hide the topic: then it exists if brokers list a group.

        Args:
            metadata: a response of `fetch_metadata()`, if the caller has one (default None).
        """
        response = await self.fetch_metadata() if metadata is None else metadata
        if any(topic.topic in INTERNAL_TOPICS for topic in response.topics):
            return True
        if not self.has_coordinators():
            return False
        listed = await asyncio.gather(
            *(list_groups(self.router, broker.node_id) for broker in response.brokers),
            return_exceptions=True,
        )
        return any(isinstance(found, list) and found for found in listed)

    @contextmanager
    def same_metadata(self) -> Iterator[None]:
        """Let all calls in the block, and in tasks that it starts, use one Metadata response."""
        shared = _SharedMetadata(self)
        token = _shared.set(shared)
        try:
            yield
        finally:
            _shared.reset(token)
            # Connections opened in the block, and cancelled timers until their time, keep its
            # context: not the metadata, which is large.
            shared.connection = shared.response = shared.partitions = None

    async def fetch_metadata(self) -> MetadataResponse:
        """Return the metadata of all topics; in a `same_metadata()` block, the block's response."""
        shared = _shared.get()
        if shared is None or shared.connection is not self:
            return await self.router.metadata.fetch_all()
        async with shared.lock:
            if shared.response is not None:
                return shared.response
            response = await self.router.metadata.fetch_all()
            if shared.connection is self:  # the block may have ended meanwhile
                shared.response = response
        return response

    async def partitions_of(
        self, response: MetadataResponse
    ) -> Mapping[TopicPartition, TopicPartition]:
        """Return all partitions of a response of `fetch_metadata()`, in its order, by themselves.

        So a large result can have these objects in place of equal ones.
        """
        shared = _shared.get()
        is_shared = shared is not None and shared.response is response
        if shared is not None and is_shared and shared.partitions is not None:
            return shared.partitions
        partitions: dict[TopicPartition, TopicPartition] = {}
        # In steps, since a cluster may have very many partitions.
        async for topic in in_steps(response.topics, lambda topic: len(topic.partitions)):
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition)
                partitions[tp] = tp
        if shared is not None and is_shared and shared.response is response:
            shared.partitions = partitions
        return partitions

    def require_group_nodes(self, call: str) -> GroupNodes:
        """Return the groups in ZooKeeper, or raise UnsupportedVersionError for `call`."""
        if self.group_nodes is None:
            raise UnsupportedVersionError(
                f"{call}: brokers of 0.8 don't know their groups, ZooKeeper does. Give "
                f"zookeeper_connect='host:2181/chroot'{how_to_install()}"
            )
        return self.group_nodes
