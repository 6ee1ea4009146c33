"""Open clients of the source cluster from a bridge's configuration.

async with source_admin(config) as admin:
    topics = await admin.list_topics()
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.net.config import net_config
from aiokafka08.net.router import Router
from aiokafka08.net.tls import ssl_context
from aiokafka08.telemetry import Telemetry


def source_admin(config: BridgeConfig) -> AIOKafkaAdminClient:
    """Return an admin client of the source, with ZooKeeper if the file names it.

    Raises:
        KafkaConfigurationError: a file for TLS can't be read.
    """
    return AIOKafkaAdminClient(
        **_network(config),
        zookeeper_connect=config.source.zookeeper,
    )


@asynccontextmanager
async def source_router(config: BridgeConfig) -> AsyncIterator[Router]:
    """Yield a started router of the source for `read_range()`; it creates no topic.

    Raises:
        KafkaError: no broker of the source responds.
    """
    defaults = {
        "request_timeout_ms": 40_000,
        "retry_backoff_ms": 100,
        "metadata_max_age_ms": 300_000,
        "connections_max_idle_ms": 540_000,
        "api_version": None,
        "security_protocol": "PLAINTEXT",
    }
    net = net_config(**{**defaults, **_network(config)})
    router = Router(net, Telemetry(client_id=net.client_id))
    router.metadata.all_topics, router.metadata.may_create_topics = True, False
    await router.start()
    try:
        yield router
    finally:
        await router.stop()


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
