"""Open clients of the source cluster from a bridge's configuration.

Invariant: their errors name the keys of the bridge's file (`named_addresses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka08._core.net.router import Router
from aiokafka08._core.net.tls import ssl_context
from aiokafka08._core.ranges.range_router import open_range_router
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.source.addresses import START_TIMEOUT_MS, named_addresses
from aiokafka08.bridge.target.librdkafka_log import LibrdkafkaLog
from aiokafka08.structs import TopicPartition


@asynccontextmanager
async def source_admin(config: BridgeConfig) -> AsyncIterator[AIOKafkaAdminClient]:
    """Yield a started admin client of the source, with ZooKeeper if the file names it.

    Raises:
        KafkaConfigurationError: a file for TLS can't be read.
        KafkaError: no broker of the source responds.
    """
    made = AIOKafkaAdminClient(
        **_network(config),
        zookeeper_connect=config.source.zookeeper,
        zookeeper_check=config.source.zookeeper_check,
        zookeeper_options=config.source.zookeeper_options,
    )
    with named_addresses(config.source):
        async with made as admin:
            yield admin


@asynccontextmanager
async def source_router(config: BridgeConfig) -> AsyncIterator[Router]:
    """Yield a started router of the source for `read_range()`.

    Raises:
        KafkaConfigurationError: a file for TLS can't be read.
        KafkaError: no broker of the source responds.
    """
    with named_addresses(config.source):
        async with open_range_router(_network(config)) as router:
            yield router


class CopiedTopics(NamedTuple):
    """The topics of the source that are copied."""

    # Name at the source → name at the target.
    names: Mapping[str, str]
    # The partitions at the source.
    partitions: Sequence[TopicPartition]

    @property
    def counts(self) -> dict[str, int]:
        """How many partitions each topic of the source has."""
        return dict(Counter(tp.topic for tp in self.partitions))


async def copied_topics(config: BridgeConfig, admin: AIOKafkaAdminClient) -> CopiedTopics:
    """Return the topics of the source that are copied, with their partitions.

    Raises:
        IllegalArgumentError: `topics.rename` gives two topics one name, or one an illegal name.
        KafkaError: no broker of the source responds.
    """
    names = config.topics.pairs(await admin.list_topics())
    described = await admin.describe_topics(sorted(names))
    partitions = [
        TopicPartition(topic["topic"], partition["partition"])
        for topic in described
        for partition in topic["partitions"]
    ]
    return CopiedTopics(names, partitions)


async def source_topic_configs(
    config: BridgeConfig, admin: AIOKafkaAdminClient
) -> dict[str, dict[str, str]]:
    """Return the settings that topics have of their own; none without ZooKeeper's address.

    A topic whose settings can't be read is left out: `unreadable_topics` names it.

    Raises:
        KafkaError: ZooKeeper doesn't respond.
    """
    if config.source.zookeeper is None:
        return {}
    with named_addresses(config.source):
        nodes, _ = await admin.describe_cluster_nodes()
    return {name: dict(node.config) for name, node in nodes.items() if node.config is not None}


async def unreadable_topics(config: BridgeConfig, admin: AIOKafkaAdminClient) -> list[str]:
    """Return the errors of copied topics in ZooKeeper; none without its address.

    Raises:
        KafkaError: ZooKeeper doesn't respond.
    """
    if config.source.zookeeper is None:
        return []
    names = (await copied_topics(config, admin)).names
    with named_addresses(config.source):
        nodes, _ = await admin.describe_cluster_nodes()
    return [error.text for name in names if name in nodes for error in nodes[name].errors]


def source_settings(config: BridgeConfig) -> dict[str, Any]:
    """Return librdkafka's settings for a client of the source, which must be of 0.10 or later."""
    settings: dict[str, Any] = {
        "bootstrap.servers": config.source.bootstrap,
        "client.id": config.client_id,
        "log_level": 3,
        "logger": LibrdkafkaLog(config.client_id),
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
    network = config.source.network
    if "sasl_mechanism" in network:
        options = {
            "sasl.mechanisms": "sasl_mechanism",
            "sasl.username": "sasl_plain_username",
            "sasl.password": "sasl_plain_password",
            "sasl.kerberos.service.name": "sasl_kerberos_service_name",
            "sasl.kerberos.keytab": "sasl_kerberos_keytab",
            "sasl.kerberos.principal": "sasl_kerberos_principal",
        }
        settings |= {name: network[one] for name, one in options.items() if one in network}
        settings["security.protocol"] = "sasl_plaintext" if tls is None else "sasl_ssl"
    return settings


def _network(config: BridgeConfig) -> dict[str, Any]:
    return {
        # This one comes first, so that the file may override it.
        "start_timeout_ms": START_TIMEOUT_MS,
        **config.source.network,
        "bootstrap_servers": config.source.bootstrap,
        "client_id": config.client_id,
        "ssl_context": ssl_context(config.source.tls, prefix="source.properties."),
    }
