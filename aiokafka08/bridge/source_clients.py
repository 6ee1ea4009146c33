"""Open clients of the source cluster from a bridge's configuration.

async with source_admin(config) as admin:
    topics = await admin.list_topics()
"""

from __future__ import annotations

import logging
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


def source_settings(config: BridgeConfig) -> dict[str, Any]:
    """Return librdkafka's settings for a client of the source, which must be of 0.10 or later.

    Args:
        config: the file of the bridge.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": config.source.bootstrap,
        "client.id": config.client_id,
        "log_level": 3,
        "logger": logging.getLogger("aiokafka08.bridge.librdkafka"),
    }
    if (tls := config.source.tls) is not None:
        files = {
            "ssl.ca.location": tls.cafile,
            "ssl.certificate.location": tls.certfile,
            "ssl.key.location": tls.keyfile or tls.certfile,
            "ssl.key.password": tls.password,
        }
        settings |= {name: value for name, value in files.items() if value is not None}
        settings |= {
            "security.protocol": "ssl",
            "enable.ssl.certificate.verification": tls.verify,
            "ssl.endpoint.identification.algorithm": "https" if tls.check_hostname else "none",
        }
    return settings


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
