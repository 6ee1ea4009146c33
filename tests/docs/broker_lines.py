"""Render docs/reference/broker_lines.md from the client's tables of broker lines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka08 import AIOKafkaProducer
from aiokafka08._core.net.versions import LINE_APIS, BrokerLine, BrokerVersion
from aiokafka08._core.offset_store.choose import default_storage
from aiokafka08.admin.topic_changes import CANNOT_DELETE_TOPICS
from aiokafka08.admin.topic_config import TOPIC_CONFIGS
from aiokafka08.producer.options import ProducerOptions, producer_options
from aiokafka08.protocol.api import ApiKey
from aiokafka08.testing import LINES as EMBEDDED_LINES
from tests.docs.tables import MADE, table

COLUMNS = [line for line in BrokerLine if line is not BrokerLine.V0_8]
"""V0_8 is one of the next three."""

FIRST_WITH_TLS = BrokerLine.V0_9
"""Brokers before it have no TLS listener: no table of the client says so."""

Ability = Callable[[BrokerLine], str]


def _yes(can: bool) -> str:
    return "✓" if can else "—"


def _with_zookeeper(can: bool) -> str:
    return "ZK" if can else "—"


def _speaks(api: ApiKey, version: int = 0) -> Ability:
    return lambda line: _yes(version in LINE_APIS[line].get(api, ()))


def _sends(**options: object) -> Ability:
    """Return whether the producer accepts a line with these options."""
    found = _options(**options)
    return lambda line: _yes(line in found.supported_lines)


def _options(**options: object) -> ProducerOptions:
    names = inspect.signature(producer_options).parameters
    parameters = inspect.signature(AIOKafkaProducer).parameters
    defaults: dict[str, Any] = {name: parameters[name].default for name in names}
    defaults["max_block_ms"] = 0  # the producer computes it from another option
    return producer_options(**defaults | options)


def _config(name: str) -> Ability:
    return lambda line: _yes(name in TOPIC_CONFIGS[line])


def _groups(line: BrokerLine) -> str:
    return "✓" if ApiKey.JOIN_GROUP in LINE_APIS[line] else "ZK"


def _offsets_in_zookeeper(line: BrokerLine) -> str:
    """Return ✓ where a consumer without `zookeeper_connect` keeps them there, by the brokers."""
    by_broker = ApiKey.OFFSET_COMMIT in LINE_APIS[line]
    return "✓" if by_broker and default_storage(line, False) == "zookeeper" else "ZK"


ABILITIES: Mapping[str, Ability] = {
    "produce, consume, metadata": lambda line: _yes(
        {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS}
        <= LINE_APIS[line].keys()
    ),
    "gzip, snappy": lambda line: _yes(
        all(line in _options(compression_type=one).supported_lines for one in ("gzip", "snappy"))
    ),
    "lz4": _sends(compression_type="lz4"),
    "`acks` above 1": _sends(acks=2),
    "timestamps of messages": lambda line: _yes(BrokerVersion.of(line).magic > 0),
    "offsets by time, exactly": _speaks(ApiKey.LIST_OFFSETS, 1),
    "headers": lambda line: "embedded",
    "groups": _groups,
    "committed offsets in Kafka": _speaks(ApiKey.OFFSET_COMMIT, 1),
    "committed offsets in ZooKeeper": _offsets_in_zookeeper,
    "list groups by a request": _speaks(ApiKey.LIST_GROUPS),
    "delete groups by a request": _speaks(ApiKey.DELETE_GROUPS),
    "topic config `min.insync.replicas`": _config("min.insync.replicas"),
    "topic config `unclean.leader.election.enable`": _config("unclean.leader.election.enable"),
    "compaction": _config("cleanup.policy"),
    "read and set topic configs": lambda line: _with_zookeeper(bool(TOPIC_CONFIGS[line])),
    "create and grow topics": lambda line: _with_zookeeper(True),
    "delete topics": lambda line: _with_zookeeper(line not in CANNOT_DELETE_TOPICS),
    "TLS": lambda line: _yes(line >= FIRST_WITH_TLS),
    "Kerberos": lambda line: (
        "HDP's" if line is BrokerLine.V0_8_2 else _yes(line >= BrokerLine.V0_9)
    ),
    "PLAIN, SCRAM, OAUTHBEARER": _speaks(ApiKey.SASL_HANDSHAKE),
    "transactions, idempotence": lambda line: "—",
    "an embedded cluster of this line": lambda line: _yes(str(line) in EMBEDDED_LINES),
}
"""What can be done, and how on a line."""


def broker_lines_page() -> str:
    """Return the matrix of abilities and lines."""
    names = [*map(str, COLUMNS[:-1]), f"{COLUMNS[-1]} – 3.9"]
    rows = [(what, *map(how, COLUMNS)) for what, how in ABILITIES.items()]
    return (
        f"# What each broker line can do\n\n{MADE}\n\n"
        "The client detects the line of each broker. ✓: works; ZK: with `zookeeper_connect`; —: "
        "the brokers don't have it, or the client refuses it. [What real brokers do]"
        "(../brokers.md) has the details, [The protocol](protocol.md) the requests.\n\n"
        + table(("", *names), rows)
        + "\nWithin the last column: offsets by time are exact from 0.10.1 on, groups are deleted "
        "by a request from 1.1 on; SCRAM is there from 0.10.2, OAUTHBEARER from 2.0 on "
        "([SASL](../guides/sasl.md)). Brokers from 0.11 on have headers, idempotence and "
        "transactions, which the requests of this client don't. 4.0 and later don't answer the "
        "requests of Kafka 0.8.\n"
    )
