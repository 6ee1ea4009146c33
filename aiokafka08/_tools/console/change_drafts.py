"""Make a `Draft` of each change that the console can make: check it, and say what it will do.

Invariant: nothing is changed before `Draft.carry_out`. It refuses the change if the topic, its
partitions or settings, or the group's members or offsets differ from what was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiokafka08._core.net.config import address_text
from aiokafka08._core.zookeeper.cluster_check import ClusterIdentity
from aiokafka08._tools.console.changes import ChangeOutcome, Draft
from aiokafka08._tools.console.cluster_view import TopicRow
from aiokafka08._tools.console.query_table import url_of
from aiokafka08._tools.group_reset import TargetMoves, commit_plan, no_partition
from aiokafka08._tools.similar_names import errors_of_topics
from aiokafka08._wording import counted, partition_name, some_of
from aiokafka08.admin import (
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    PlannedOffset,
    StoredGroup,
    TopicErrors,
)
from aiokafka08.admin.offset_reset import PlanTarget
from aiokafka08.embedded_headers import Headers
from aiokafka08.errors import (
    IllegalArgumentError,
    IllegalStateError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.structs import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to produce; without `partition` the producer's partitioner chooses."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


async def produce_draft(
    admin: AIOKafkaAdminClient, network: Mapping[str, Any], message: NewMessage
) -> Draft:
    """Return the draft of a message; `network` has the options of the producer."""
    topic, partition, key, value = message.topic, message.partition, message.key, message.value
    await _check_partition(admin, message)
    where = "by key" if partition is None else f"partition {partition}"
    sizes = ["null" if one is None else counted(len(one), "byte") for one in (key, value)]

    async def carry_out(admin: AIOKafkaAdminClient, cluster: ClusterIdentity) -> ChangeOutcome:
        await _check_partition(admin, message)
        # Connect only to the brokers that were compared with those shown, so that no other cluster
        # gets the message.
        servers = [address_text(one) for some in cluster.brokers.values() for one in some]
        mode = "embedded" if message.headers else "refuse"
        options = {**network, "bootstrap_servers": servers, "acks": "all", "headers": mode}
        async with AIOKafkaProducer(**options) as producer:
            headers = message.headers or None
            sent = await producer.send_and_wait(topic, value, key, partition, headers=headers)
        return ChangeOutcome(
            f"The message has offset {sent.offset} in partition {sent.partition}",
            f"{_path(topic)}/messages/{sent.partition}/{sent.offset}",
        )

    return Draft(
        f"Produce a message to {topic}",
        f"produce to topic {topic!r}, {where}: key {sizes[0]}, value {sizes[1]}",
        carry_out,
        f"{_path(topic)}/produce",
        parts=[("Key", key), ("Value", value), *((f"Header {n}", v) for n, v in message.headers)],
    )


async def _check_partition(admin: AIOKafkaAdminClient, message: NewMessage) -> None:
    """Raise if there is no such partition, since the brokers would create a missing topic."""
    count = await _partition_count(admin, message.topic)
    if message.partition is not None and message.partition >= count:
        raise UnknownTopicOrPartitionError(
            f"topic {message.topic!r} has no partition {message.partition}; it has "
            f"{counted(count, 'partition')}"
        )


async def _partition_count(admin: AIOKafkaAdminClient, topic: str) -> int:
    [described] = await admin.describe_topics([topic])
    if described["error_code"]:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r} any more")
    return len(described["partitions"])


async def reset_draft(
    admin: AIOKafkaAdminClient, group: str, store: str, target: PlanTarget, topic: str
) -> Draft:
    """Return the draft of a reset, with its plan.

    Args:
        admin: a started client.
        group, store: the group, and the store of its offsets.
        target: the position to reset to.
        topic: only this topic; "": all partitions in which the group has an offset.
    """
    place = StoredGroup(group, "kafka" if store == "kafka" else "zookeeper", "")
    moves = TargetMoves(group, target, {topic: ()} if topic else {}, store)
    if not (targets := await moves.find_in(admin, place)):
        raise no_partition()
    plan = await admin.plan_group_reset(place, targets)
    await admin.check_group_change(place)

    async def carry_out(admin: AIOKafkaAdminClient, cluster: ClusterIdentity) -> ChangeOutcome:
        shown = {
            TopicPartition(one.topic, one.partition): OffsetAndMetadata(one.new, one.metadata)
            for one in plan
        }
        now = await admin.plan_group_reset(place, dict(shown))
        changed = [_difference(old, new) for old, new in zip(plan, now, strict=True)]
        if texts := [text for text in changed if text]:
            raise IllegalStateError(
                f"nothing was changed, since the plan no longer holds: {some_of(texts)}. Plan again"
            )
        await commit_plan(admin, place, plan)
        return ChangeOutcome(f"{counted(len(plan), 'offset')} committed", back)

    # List all offsets unshortened, since only the record of this text tells how to undo the reset.
    moved = ", ".join(f"{partition_name(one)} {one.current} → {one.new}" for one in plan)
    back = url_of("/group", {"name": group, "store": store})
    notes = ["The group has no members now. They will go on from the new offsets."]
    if moves.uncommitted:
        notes.append(
            f"No offset is committed for {some_of(sorted(moves.uncommitted))}: not moved. Name the "
            "topic to include all its partitions."
        )
    return Draft(
        f"Reset group {group}",
        f"reset group {group!r} in {store}: {moved}",
        carry_out,
        back,
        notes,
        plan=plan,
    )


def _difference(shown: PlannedOffset, now: PlannedOffset) -> str | None:
    """Return a text with the value that differs from what was shown; None if none does."""
    if now.current != shown.current or now.error != shown.error:
        return f"{partition_name(now)}: committed is {now.current}, not {shown.current}"
    if now.new != shown.new:
        return f"{partition_name(now)}: the log has no offset {shown.new} any more"
    return None


async def create_draft(
    admin: AIOKafkaAdminClient, name: str, partitions: int, replicas: int
) -> Draft:
    """Return the draft of a new topic."""
    new = NewTopic(name, partitions, replicas)
    await _raise_first(admin, await admin.create_topics([new], validate_only=True))

    async def carry_out(admin: AIOKafkaAdminClient, cluster: ClusterIdentity) -> ChangeOutcome:
        await _raise_first(admin, await admin.create_topics([new]))
        return ChangeOutcome("The topic was created, and has its leaders", _path(name))

    parts = f"{counted(partitions, 'partition')}, {counted(replicas, 'replica of each')}"
    what = f"create topic {name!r} with {parts}"
    return Draft(f"Create topic {name}", what, carry_out, "/create-topic")


async def grow_draft(admin: AIOKafkaAdminClient, topic: str, partitions: int) -> Draft:
    """Return the draft that adds partitions to a topic."""
    count, change = await _partition_count(admin, topic), {topic: NewPartitions(partitions)}
    await _raise_first(admin, await admin.create_partitions(change, validate_only=True))

    async def carry_out(admin: AIOKafkaAdminClient, cluster: ClusterIdentity) -> ChangeOutcome:
        _expect(count, await _partition_count(admin, topic), "number of partitions")
        await _raise_first(admin, await admin.create_partitions(change))
        return ChangeOutcome("The topic has its new partitions, and their leaders", _path(topic))

    return Draft(
        f"Grow topic {topic}",
        f"grow topic {topic!r} from {count} to {partitions} partitions",
        carry_out,
        f"{_path(topic)}/change",
        [
            "Partitions can't be taken away again.",
            "New messages of a key may go to another partition than its old ones.",
        ],
    )


async def configure_draft(
    admin: AIOKafkaAdminClient, topic: str, name: str, value: str | None
) -> Draft:
    """Return the draft of a topic's new setting; the value None restores the brokers' default."""
    before = await _setting(admin, topic, name)
    if before == value:
        has = "has no value of its own" if value is None else f"is {value!r} already"
        raise IllegalArgumentError(f"topic {topic!r}: {name} {has}")
    await admin.alter_topic_overrides(topic, {name: value}, validate_only=True)

    async def carry_out(admin: AIOKafkaAdminClient, cluster: ClusterIdentity) -> ChangeOutcome:
        _expect(before, await _setting(admin, topic, name), name)
        await admin.alter_topic_overrides(topic, {name: value})
        return ChangeOutcome("The setting was changed", _path(topic))

    old, new = ("the brokers' default" if one is None else repr(one) for one in (before, value))
    what = f"configure topic {topic!r}: {name} from {old} to {new}"
    return Draft(f"Change {name} of topic {topic}", what, carry_out, f"{_path(topic)}/change")


async def delete_draft(admin: AIOKafkaAdminClient, row: TopicRow) -> Draft:
    """Return the draft of a topic's deletion."""
    topic, count = row.topic, await _partition_count(admin, row.topic)
    messages = "all messages" if row.messages is None else counted(row.messages, "message")
    notes = [f"Nothing brings it back. Groups that read it, by the last sample: {row.groups}."]
    if row.internal:
        notes.append("It is internal: the brokers keep the offsets of groups in it.")

    async def carry_out(admin: AIOKafkaAdminClient, cluster: ClusterIdentity) -> ChangeOutcome:
        _expect(count, await _partition_count(admin, topic), "number of partitions")
        await _raise_first(admin, await admin.delete_topics([topic]))
        return ChangeOutcome("The topic was deleted", "/topics")

    what = f"delete topic {topic!r} with {counted(count, 'partition')} and {messages}"
    back = f"{_path(topic)}/change"
    return Draft(f"Delete topic {topic}", what, carry_out, back, notes, typed_name=topic)


async def _setting(admin: AIOKafkaAdminClient, topic: str, name: str) -> str | None:
    return (await admin.list_topic_overrides([topic]))[topic].get(name)


def _expect(shown: object, now: object, what: str) -> None:
    if now != shown:
        raise IllegalStateError(
            f"nothing was changed, since the {what} is {now!r} now, not {shown!r}. Begin again"
        )


async def _raise_first(admin: AIOKafkaAdminClient, results: TopicErrors) -> None:
    for _, error in await errors_of_topics(admin, results):
        if error is not None:
            raise error


def _path(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"
