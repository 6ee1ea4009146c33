"""Offset stores on embedded and real clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka08._core.net.config import NETWORK_DEFAULTS, NetConfig, net_config
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.router import Router
from aiokafka08._core.offset_store import OffsetStore
from aiokafka08._core.offset_store.choose import choose_offset_store
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.telemetry import Telemetry
from tests.support.zookeeper import UncheckedZookeeper

NewStore = Callable[..., Awaitable[OffsetStore]]


def store_config(bootstrap_servers: str = "127.0.0.1:1", **options: Any) -> NetConfig:
    """Return checked options of the network layer; a store without brokers needs no address."""
    settings: dict[str, Any] = {
        **NETWORK_DEFAULTS,
        "client_id": "tests",
        "request_timeout_ms": 10_000,
        "retry_backoff_ms": 20,
    } | options
    return net_config(bootstrap_servers=bootstrap_servers, **settings)


@pytest.fixture
async def new_store() -> AsyncIterator[NewStore]:
    """Return a factory for started stores of the group "g"; all are stopped at the end."""
    stores: list[OffsetStore] = []
    routers: list[Router] = []

    async def make(
        bootstrap_servers: str,
        storage: str | None = None,
        zookeeper_connect: str | None = None,
        *,
        group: str = "g",
        **options: Any,
    ) -> OffsetStore:
        router = Router(store_config(bootstrap_servers, **options), Telemetry())
        routers.append(router)
        await router.start()
        zookeeper = None if zookeeper_connect is None else UncheckedZookeeper(zookeeper_connect)
        store = await choose_offset_store(
            router, CoordinatorLookup(router, group), storage, zookeeper
        )
        stores.append(store)
        await store.start()
        return store

    yield make
    for store in stores:
        await store.stop()
    for router in routers:
        await router.stop()


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """`at(p0=5)`: offset 5 for partition 0 of "t"."""
    return {tp(int(name[1:])): OffsetAndMetadata(offset, "") for name, offset in offsets.items()}
