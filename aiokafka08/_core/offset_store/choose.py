"""Choose the offset store by the options and the broker line, once the router knows the line.

Invariant: a consumer chooses once. Its store stays through an upgrade of the brokers, because the
stores don't see each other's commits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import OffsetStore
from aiokafka08._core.offset_store.no_store import NoOffsetStore
from aiokafka08.errors import (
    KafkaConfigurationError,
    KafkaUnavailableError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:  # a client without a group imports no other store
    from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
    from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper


async def choose_offset_store(
    router: Router,
    coordinator: CoordinatorLookup | None,
    storage: str | None,
    zookeeper: ClusterZookeeper | None,
    *,
    timeout_s: float | None = None,
    check_session: Callable[[], None] = lambda: None,
) -> OffsetStore:
    """Return a store, not yet started, for these options and the detected broker line.

    `storage` is "kafka", "zookeeper" or "dual"; None for the default of the brokers' line.

    Raises:
        UnsupportedVersionError: the brokers' line doesn't have the storage.
        KafkaConfigurationError: the store needs `zookeeper_connect`, or kazoo.
        KafkaUnavailableError: no broker's version is known yet.
        KafkaError: as `Router.exact_version`.
    """
    if coordinator is None:
        return NoOffsetStore()
    store_for = partial(_store_for, router, coordinator, storage, zookeeper, check_session)
    version = await router.exact_version(timeout_s=timeout_s)
    if version.is_exact:
        return store_for(version.line)

    async def choose() -> OffsetStore:
        version = await router.exact_version()
        if not version.is_exact:
            raise KafkaUnavailableError(
                "offset store: the brokers have no topic yet, so their line isn't known"
            )
        return store_for(version.line)

    from aiokafka08._core.offset_store.deferred_store import DeferredOffsetStore

    return DeferredOffsetStore(choose)


def _store_for(
    router: Router,
    coordinator: CoordinatorLookup,
    storage: str | None,
    zookeeper: ClusterZookeeper | None,
    check_session: Callable[[], None],
    line: BrokerLine,
) -> OffsetStore:
    zookeeper_store = partial(
        _zookeeper_store, router, coordinator.group, line, zookeeper, check_session
    )
    storage = storage or default_storage(line, zookeeper is not None)
    if storage == "zookeeper":
        return zookeeper_store()
    if line < BrokerLine.V0_8_2:
        raise UnsupportedVersionError(
            f"offsets_storage={storage!r}: brokers of the {line} line don't store offsets in "
            "Kafka; expected brokers from 0.8.2 on. Use offsets_storage='zookeeper'"
        )
    from aiokafka08._core.offset_store.kafka_store import KafkaOffsetStore

    kafka = KafkaOffsetStore(router, coordinator)
    if storage == "kafka":
        return kafka
    from aiokafka08._core.offset_store.dual_store import DualOffsetStore

    return DualOffsetStore(kafka, zookeeper_store(), router.config.request_timeout_s)


def default_storage(line: BrokerLine, has_zookeeper: bool) -> str:
    """Return the default of `offsets_storage` for brokers of this line."""
    # With `zookeeper_connect` a group of 0.8.2 is in ZooKeeper, and its Scala consumers keep their
    # offsets there by default.
    if line < BrokerLine.V0_8_2 or (line is BrokerLine.V0_8_2 and has_zookeeper):
        return "zookeeper"
    return "kafka"


def _zookeeper_store(
    router: Router,
    group: str,
    line: BrokerLine,
    zookeeper: ClusterZookeeper | None,
    check_session: Callable[[], None],
) -> OffsetStore:
    """Return a store that writes the nodes itself; without `zookeeper`, brokers write them."""
    if zookeeper is not None:
        from aiokafka08._core.offset_store.zookeeper_store import ZookeeperOffsetStore

        return ZookeeperOffsetStore(zookeeper, group, line, router.config, check_session)
    if line is BrokerLine.V0_8_0:
        from aiokafka08._core.zookeeper.session import how_to_install

        raise KafkaConfigurationError(
            f"group_id={group!r}: brokers of the 0.8.0 line have no requests for committed "
            f"offsets. Give zookeeper_connect='host:2181/chroot'{how_to_install()} to keep "
            "them in ZooKeeper, or leave group_id out and keep positions yourself: position() "
            "and seek()"
        )
    from aiokafka08._core.offset_store.zookeeper_v0_store import ZookeeperV0OffsetStore

    return ZookeeperV0OffsetStore(router, group, line)
