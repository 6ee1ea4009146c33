"""`metadata` and `topics`: the brokers, topics and partitions of a cluster.

Invariant: no command requests the metadata of a topic by name, which would create it on 0.8.
Commands request the metadata of all topics and filter it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.completing import topic_names
from aiokafka08._tools.cli.declare import Example, command, connection_options, format_option
from aiokafka08._tools.cli.settings import Settings

if TYPE_CHECKING:
    from aiokafka08.admin import AIOKafkaAdminClient, TopicDescription
    from aiokafka08.errors import KafkaError

BROKER_FIELDS: Final = {
    "node": "the broker's node id",
    "host": "its host name, as clients get it",
    "port": "its port",
    "rack": "its rack; null before 0.10",
    "release": 'its release, such as "0.8.2" or "2.5 or 2.6"; null if it doesn\'t respond',
    "controller": "whether it is the controller; null before 0.10",
}
PARTITION_FIELDS: Final = {
    "topic": "the topic",
    "partition": "the partition's number",
    "leader": "the node id of the leader; null if there is none",
    "replicas": (
        "the node ids of the replicas, the preferred leader first; without --zookeeper 0.8.2 and "
        "0.9 leave out dead brokers"
    ),
    "isr": "the node ids of the in-sync replicas; may be stale on 0.8 without --zookeeper",
    "error": "the name of the partition's or topic's error; null if there is none",
}
TOPIC_FIELDS: Final = {
    "topic": "the topic",
    "partitions": "the number of its partitions",
    "replicas": "the number of replicas of its first partition, as the leader sees it",
    "leaderless": "how many partitions have no leader",
    "internal": "whether it is Kafka's own; before 0.10 by its name",
}


@command(
    "metadata",
    fields={**BROKER_FIELDS, **PARTITION_FIELDS},
    examples=[
        Example("The whole cluster", "aiokafka08 metadata -b kafka1:9092"),
        Example(
            "The release of each broker",
            "aiokafka08 metadata -b kafka1:9092 --brokers --format tsv",
        ),
    ],
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=topic_names)
@click.option("--brokers", "only_brokers", is_flag=True, help="Print the brokers only.")
@connection_options
@format_option
def metadata(
    settings: Settings, topics: tuple[str, ...], only_brokers: bool, format: str | None
) -> int:
    """Show brokers and partitions.

    Each broker has its release. The partitions are those of all topics, or of the named ones.

    A table and --format json show brokers and partitions, json as {"brokers": [...],
    "partitions": [...]}. The other formats have rows of one kind: partitions, or brokers with
    --brokers.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import note, note_each
    from aiokafka08._tools.cli.output import default_format, write_json, write_rows, write_text

    format = format or default_format()
    read = _metadata(
        settings,
        topics,
        with_brokers=only_brokers or format in ("table", "json"),
        with_partitions=not only_brokers,
    )
    brokers, partitions, is_0_8, unread = run(read)
    if only_brokers:
        write_rows(brokers, BROKER_FIELDS, format)
        return 0
    if format == "json":
        write_json({"brokers": brokers, "partitions": partitions})
    else:
        if format == "table":
            write_rows(brokers, BROKER_FIELDS, format, title="brokers")
            write_text("\n")
        write_rows(partitions, PARTITION_FIELDS, format, title="partitions")
    if format == "table" and not brokers:
        note("brokers of 0.8 name no broker while the cluster has no topic")
    if is_0_8 and (settings.zookeeper_connect is None or unread):
        note(
            "brokers of 0.8 may report an isr that is stale; ZooKeeper has the true one: give "
            "--zookeeper"
        )
    return note_each(f"not read from ZooKeeper: {error.text}" for error in unread)


async def _metadata(
    settings: Settings, topics: Sequence[str], *, with_brokers: bool, with_partitions: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool, list[KafkaError]]:
    """Return the rows of the brokers and of the partitions.

    Args:
        settings: the cluster.
        topics: only these; without any, all.
        with_brokers: whether the rows of the brokers are wanted.
        with_partitions: whether the rows of the partitions are wanted. Their replicas and in-sync
            replicas come from ZooKeeper if `settings` name it.

    Returns:
        The rows, whether a broker is known to be of 0.8, and the errors of ZooKeeper.
    """
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08.errors import KafkaConfigurationError, KafkaError

    errors: list[KafkaError] = []
    async with admin_client(settings) as admin:
        described = await describe_topics(admin, topics)
        brokers = await broker_rows(admin) if with_brokers else []
        is_0_8 = any(str(broker["release"]).startswith("0.8") for broker in brokers)
        rows = partition_rows(described)
        if not with_partitions:
            return brokers, rows, is_0_8, errors
        if not with_brokers and settings.zookeeper_connect is None:
            is_0_8 = await _has_0_8(admin, settings)
        if settings.zookeeper_connect is not None:
            try:
                nodes, errors = await admin.describe_cluster_nodes()
            except KafkaConfigurationError:
                raise
            except KafkaError as error:
                nodes, errors = {}, [error]
            for row in rows:
                node = nodes.get(row["topic"])
                stored = None if node is None else node.partitions.get(row.get("partition", -1))
                if stored is not None:
                    row["replicas"] = list(stored.replicas)
                    row["isr"] = row["isr"] if stored.isr is None else sorted(stored.isr)
            errors += [
                error
                for topic in described
                if topic["topic"] in nodes
                for error in nodes[topic["topic"]].errors
            ]
    return brokers, rows, is_0_8, errors


async def _has_0_8(admin: AIOKafkaAdminClient, settings: Settings) -> bool:
    """Return whether a broker is of 0.8, by requests that no broker logs as an error."""
    import asyncio

    from aiokafka08._core.net.versions import BrokerLine
    from aiokafka08.errors import KafkaError

    try:
        async with asyncio.timeout(settings.network["start_timeout_ms"] / 1000):
            versions = await admin.ping_brokers()
    except TimeoutError:
        return False
    known = [version for version in versions.values() if not isinstance(version, KafkaError)]
    return any(version.line < BrokerLine.V0_9 for version in known)


async def broker_rows(admin: AIOKafkaAdminClient) -> list[dict[str, Any]]:
    """Return a row with `BROKER_FIELDS` for each broker."""
    cluster = await admin.describe_cluster()
    releases = await admin.broker_releases()
    controller = cluster["controller_id"]
    return [
        {
            "node": broker["node_id"],
            "host": broker["host"],
            "port": broker["port"],
            "rack": broker["rack"],
            "release": releases.get(broker["node_id"]),
            "controller": None if controller < 0 else broker["node_id"] == controller,
        }
        for broker in sorted(cluster["brokers"], key=lambda broker: broker["node_id"])
    ]


async def describe_topics(
    admin: AIOKafkaAdminClient, topics: Sequence[str]
) -> list[TopicDescription]:
    """Return these topics, or all, in order of their names.

    Raises:
        UnknownTopicOrPartitionError: a named topic doesn't exist.
        InvalidTopicError: brokers don't accept a name.
    """
    from aiokafka08.errors import UnknownTopicOrPartitionError

    described = await admin.describe_topics(list(dict.fromkeys(topics)) or None)
    missing = [
        topic["topic"]
        for topic in described
        if topic["error_code"] == UnknownTopicOrPartitionError.errno and topic["topic"] in topics
    ]
    if missing:
        from aiokafka08._core.names import did_you_mean
        from aiokafka08._wording import missing_topics_text

        similar = did_you_mean(missing[0], await admin.list_topics())
        raise UnknownTopicOrPartitionError(f"{missing_topics_text(missing)}{similar}")
    return sorted(described, key=lambda topic: topic["topic"])


def partition_rows(described: Sequence[TopicDescription]) -> list[dict[str, Any]]:
    """Return a row with `PARTITION_FIELDS` for each partition.

    A topic without partitions, such as one that is just being created, has one row with the error.
    """
    return [
        {
            "topic": topic["topic"],
            "partition": part["partition"],
            "leader": part["leader"] if part["leader"] >= 0 else None,
            "replicas": part["replicas"],
            "isr": sorted(part["isr"]),
            "error": _error_name(part["error_code"], part["leader"]),
        }
        for topic in described
        for part in sorted(topic["partitions"], key=lambda part: part["partition"])
    ] + [
        {"topic": topic["topic"], "error": _error_name(topic["error_code"], -1)}
        for topic in described
        if not topic["partitions"]
    ]


def _error_name(code: int, leader: int) -> str | None:
    """Return the name of an error code; None without an error, or if only a replica is down."""
    from aiokafka08.errors import ReplicaNotAvailableError, error_class

    if code == 0 or (code == ReplicaNotAvailableError.errno and leader >= 0):
        return None
    return error_class(code).__name__.removesuffix("Error")


@command(
    "topics",
    fields=TOPIC_FIELDS,
    examples=[
        Example("All topics", "aiokafka08 topics -b kafka1:9092"),
        Example("The names only", "aiokafka08 topics -q -b kafka1:9092"),
    ],
)
@click.option("-q", "--names", is_flag=True, help="Print the names only, one a line.")
@connection_options
@format_option
def topics(settings: Settings, names: bool, format: str | None) -> None:
    """List topics."""
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.output import write_rows, write_text

    rows = run(_topics(settings))
    if names:
        write_text("".join(f"{row['topic']}\n" for row in rows), flush=True)
    else:
        write_rows(rows, TOPIC_FIELDS, format)


async def _topics(settings: Settings) -> list[dict[str, Any]]:
    from aiokafka08._core.net.cluster import INTERNAL_TOPICS
    from aiokafka08._tools.cli.connection import admin_client

    async with admin_client(settings, uses_zookeeper=False) as admin:
        described = await describe_topics(admin, ())
    return [
        {
            "topic": topic["topic"],
            "partitions": len(topic["partitions"]),
            "replicas": len(topic["partitions"][0]["replicas"]) if topic["partitions"] else None,
            "leaderless": sum(part["leader"] < 0 for part in topic["partitions"]),
            "internal": topic["is_internal"] or topic["topic"] in INTERNAL_TOPICS,
        }
        for topic in described
    ]
