"""Which store the options and the brokers' line ask for.

The line is known once the router has started; the store stays what it was then, also through an
upgrade of the brokers, since the stores don't see each other's commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafka08.errors import (
    IllegalOperation,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaUnavailableError,
    UnsupportedVersionError,
)
from aiokafka08.net.coordinator import Coordinator
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.offset_store import CommitIdentity, OffsetStore
from aiokafka08.offset_store.answers import Commits, Committed
from aiokafka08.offset_store.dual_store import DualOffsetStore
from aiokafka08.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08.offset_store.no_store import NoOffsetStore
from aiokafka08.offset_store.zookeeper_store import ZookeeperOffsetStore
from aiokafka08.offset_store.zookeeper_v0_store import ZookeeperV0OffsetStore
from aiokafka08.structs import TopicPartition


def choose_offset_store(
    router: Router,
    coordinator: Coordinator | None,
    storage: str | None,
    zookeeper_connect: str | None,
) -> OffsetStore:
    """The store for these options.

    Args:
        router: the way to the brokers.
        coordinator: that of the group; None where there is no group.
        storage: "kafka", "zookeeper", "dual", or None: as `default_storage` says.
        zookeeper_connect: "host:port,host:port/chroot", if given.
    """
    if coordinator is None:
        return NoOffsetStore(IllegalOperation("committed offsets belong to a group: set group_id"))
    return _ByLine(router, coordinator, storage, zookeeper_connect)


def default_storage(line: BrokerLine, zookeeper_connect: str | None) -> str:
    """Where brokers of this line have a group's offsets, unless `offsets_storage` says it.

    ZooKeeper up to 0.8.1, Kafka from 0.8.2 on. An 0.8.2 with `zookeeper_connect` has its groups in
    ZooKeeper, and there the Scala consumers of such a group keep offsets, unless told otherwise.
    """
    if line < BrokerLine.V0_8_2 or (line is BrokerLine.V0_8_2 and zookeeper_connect is not None):
        return "zookeeper"
    return "kafka"


class _ByLine:
    """Becomes the store that fits when it is started."""

    def __init__(
        self,
        router: Router,
        coordinator: Coordinator,
        storage: str | None,
        zookeeper_connect: str | None,
    ) -> None:
        self._router = router
        self._coordinator = coordinator
        self._storage = storage
        self._zookeeper_connect = zookeeper_connect
        self._store: OffsetStore = NoOffsetStore(IllegalStateError("the client isn't started"))

    async def start(self) -> None:
        """Choose, and start the choice.

        Raises:
            UnsupportedVersionError: the brokers' line has no such storage.
            KafkaConfigurationError: it needs `zookeeper_connect`, or kazoo.
        """
        version = self._router.version()
        if version is None:
            raise KafkaUnavailableError("no broker has told its version")
        self._store = self._choose(version.line)
        await self._store.start()

    async def stop(self) -> None:
        """Stop the choice."""
        await self._store.stop()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """See `OffsetStore`."""
        return await self._store.fetch(partitions, timeout_s=timeout_s)

    async def commit(
        self, offsets: Commits, stamp: CommitIdentity, *, timeout_s: float | None = None
    ) -> None:
        """See `OffsetStore`."""
        await self._store.commit(offsets, stamp, timeout_s=timeout_s)

    def check(self) -> None:
        """See `OffsetStore`."""
        self._store.check()

    def _choose(self, line: BrokerLine) -> OffsetStore:
        storage = self._storage or default_storage(line, self._zookeeper_connect)
        if storage == "zookeeper":
            return self._in_zookeeper(line)
        if line < BrokerLine.V0_8_2:
            raise UnsupportedVersionError(
                f"offsets_storage={storage!r} needs brokers from 0.8.2 on; these are of the {line} "
                "line: use offsets_storage='zookeeper'"
            )
        kafka = KafkaOffsetStore(self._router, self._coordinator)
        if storage == "kafka":
            return kafka
        return DualOffsetStore(kafka, self._in_zookeeper(line))

    def _in_zookeeper(self, line: BrokerLine) -> OffsetStore:
        group = self._coordinator.group
        if line > BrokerLine.V0_8_0:
            return ZookeeperV0OffsetStore(self._router, group, line)
        if self._zookeeper_connect is None:
            raise KafkaConfigurationError(
                f"group_id={group!r}: brokers of the 0.8.0 line have no requests for committed "
                "offsets. Give zookeeper_connect='host:2181/chroot' (extra zookeeper) to keep them "
                "in ZooKeeper, or leave group_id out and keep positions yourself: position() and "
                "seek()"
            )
        return ZookeeperOffsetStore(
            self._zookeeper_connect, group, self._router.config.request_timeout_s
        )
