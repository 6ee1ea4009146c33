"""Open clients of the source cluster from a bridge's configuration.

async with source_admin(config) as admin:
    topics = await admin.list_topics()
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.consumer.range_router import open_range_router
from aiokafka08.net.router import Router
from aiokafka08.net.tls import ssl_context


def source_admin(config: BridgeConfig) -> AIOKafkaAdminClient:
    """Return an admin client of the source, with ZooKeeper if the file names it.

    Raises:
        KafkaConfigurationError: a file for TLS can't be read.
    """
    return AIOKafkaAdminClient(
        **_network(config),
        zookeeper_connect=config.source.zookeeper,
    )


def source_router(config: BridgeConfig) -> AbstractAsyncContextManager[Router]:
    """Return what yields a started router of the source for `read_range()`.

    Raises:
        KafkaConfigurationError: a file for TLS can't be read.
        KafkaError: no broker of the source responds (when it is entered).
    """
    return open_range_router(_network(config))


def _network(config: BridgeConfig) -> dict[str, Any]:
    network = dict(config.source.network)
    if config.source.tls is not None:
        network["security_protocol"] = "SSL"
    return {
        **network,
        "bootstrap_servers": config.source.bootstrap,
        "client_id": config.client_id,
        "ssl_context": ssl_context(config.source.tls, prefix="source.properties."),
    }
