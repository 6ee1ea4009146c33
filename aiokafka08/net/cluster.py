"""The cluster as Metadata last described it: an immutable snapshot, and how answers merge into it.

Pure. Law: a snapshot is never replaced by an emptier one: an answer without brokers, or a topic's
error, leaves what was known (docs/brokers.md 4.1, 4.4, 4.5). When to ask is `metadata`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from aiokafka08.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    InvalidTopicError,
    NoError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
    broker_error,
)
from aiokafka08.net.config import Address
from aiokafka08.protocol.api import Broker, MetadataResponse, TopicState
from aiokafka08.structs import TopicPartition

INTERNAL_TOPICS = frozenset({"__consumer_offsets"})
"""Topics of the brokers' own; Metadata 0 doesn't mark them."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition; `leader` is None in an election. Decide nothing on `isr`: 0.8's is stale."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; `error_code` is that of the last answer, `partitions` those last known."""

    topic: str
    error_code: int
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]

    @property
    def error(self) -> BrokerResponseError:
        """What `error_code` says of the topic."""
        where = f"topic {self.topic!r}"
        if self.error_code == UnknownTopicOrPartitionError.errno:
            return UnknownTopicOrPartitionError(
                f"{where} doesn't exist, and the brokers don't create it"
            )
        return broker_error(self.error_code, where)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Brokers and topics at one moment."""

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    controller_id: int = -1

    def address(self, node_id: int) -> Address | None:
        """Where a broker listens; None where it isn't known (any more)."""
        broker = self.brokers.get(node_id)
        return None if broker is None else (broker.host, broker.port)

    def partitions(self, topic: str) -> Mapping[int, PartitionInfo]:
        """The partitions of a topic by number; empty where the topic isn't known."""
        info = self.topics.get(topic)
        return {} if info is None else info.partitions

    def leader(self, tp: TopicPartition) -> int | None:
        """The node that leads a partition; None in an election, or where it isn't known.

        Also None where Metadata names a leader whose address it doesn't give.
        """
        partition = self.partitions(tp.topic).get(tp.partition)
        if partition is None or partition.leader not in self.brokers:
            return None
        return partition.leader

    def no_leader_reason(self, tp: TopicPartition) -> str | None:
        """Why `leader` knows none, for people; None where the topic's metadata isn't there yet."""
        info = self.topics.get(tp.topic)
        if info is None:
            return None
        partition = info.partitions.get(tp.partition)
        if partition is None and info.error_code:
            return info.error.text
        if partition is None:
            return (
                f"topic {tp.topic!r} has no partition {tp.partition}; it has "
                f"{sorted(info.partitions)}"
            )
        if partition.leader is None:
            return "it has no leader now"
        return f"its leader, node {partition.leader}, isn't among the brokers that are known"

    def merge(self, answer: MetadataResponse, *, everything: bool) -> ClusterSnapshot:
        """The snapshot after this answer; `everything`: all topics were asked for."""
        brokers = {broker.node_id: broker for broker in answer.brokers}
        topics = dict(self.topics)
        if everything and brokers:
            named = {state.topic for state in answer.topics}
            topics = {name: info for name, info in topics.items() if name in named}
        if not brokers:
            brokers = dict(self.brokers)
        elif not everything:
            # 0.8.0 and 0.8.1 name only the brokers of the topics that were asked for.
            for node_id in _leaders(topics.keys() - _described(answer), topics):
                if node_id in self.brokers:
                    brokers.setdefault(node_id, self.brokers[node_id])
        for state in answer.topics:
            topics[state.topic] = _merge_topic(topics.get(state.topic), state)
        return replace(
            self,
            brokers=MappingProxyType(dict(sorted(brokers.items()))),
            topics=MappingProxyType(topics),
            controller_id=answer.controller_id if answer.brokers else self.controller_id,
        )


def _described(answer: MetadataResponse) -> set[str]:
    """The topics whose partitions the answer tells."""
    return {state.topic for state in answer.topics if state.partitions}


def _leaders(names: Iterable[str], topics: Mapping[str, TopicInfo]) -> set[int]:
    """The brokers that lead something of these topics."""
    return {
        partition.leader
        for name in names
        for partition in topics[name].partitions.values()
        if partition.leader is not None
    }


def _merge_topic(known: TopicInfo | None, state: TopicState) -> TopicInfo:
    partitions: Mapping[int, PartitionInfo]
    if not state.partitions and known is not None:
        partitions = known.partitions
    else:
        partitions = {
            one.partition: PartitionInfo(
                one.partition,
                # 9 with a leader is normal while a replica is down (docs/brokers.md 4.7)
                one.leader
                if one.leader >= 0
                and one.error_code in (NoError.errno, ReplicaNotAvailableError.errno)
                else None,
                tuple(one.replicas),
                tuple(one.isr),
                one.error_code,
            )
            for one in sorted(state.partitions, key=lambda one: one.partition)
        }
    return TopicInfo(
        state.topic,
        state.error_code,
        state.is_internal or state.topic in INTERNAL_TOPICS,
        MappingProxyType(dict(partitions)),
    )


def is_failed_by_one_topic(answer: MetadataResponse, asked: Collection[str]) -> bool:
    """Whether one topic has spoilt the answer for the others: on 0.8 a bad name, or a topic that
    can't be created, gives every topic its error, and no brokers (docs/brokers.md 4.4, 4.5)."""
    return len(asked) > 1 and rejects_all_topics(answer)


def rejects_all_topics(answer: MetadataResponse) -> bool:
    """Whether it is an answer as one bad topic on 0.8 gets: no brokers, and its error for all."""
    return (
        not answer.brokers
        and bool(answer.topics)
        and all(state.error_code in (-1, InvalidTopicError.errno) for state in answer.topics)
    )


def check_topic_name(topic: object) -> str:
    """`topic`, if brokers would take it as a name.

    Checked before it is sent: one bad name empties the whole answer of an 0.8 broker.

    Raises:
        InvalidTopicError: it isn't text of 1 to 255 letters, digits, ".", "_", "-", or is "."/"..".
    """
    if not isinstance(topic, str) or not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise InvalidTopicError(
            f"{_shortened(topic)} is not a topic name: allowed are 1 to 255 of a-z A-Z 0-9 . _ -, "
            'but not "." and ".."'
        )
    return topic


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:297]}…"


def check_topic_names(topics: Iterable[object]) -> list[str]:
    """`check_topic_name` for each; a single string in place of a list is told, not split."""
    if isinstance(topics, str):
        raise InvalidTopicError(f"a list of topics is wanted, not the string {_shortened(topics)}")
    return [check_topic_name(topic) for topic in topics]


def check_partitions(partitions: Iterable[object]) -> list[TopicPartition]:
    """Each as a `TopicPartition`; a plain pair will do.

    Raises:
        TypeError: something else, or one partition in place of a list.
        InvalidTopicError: a name that brokers don't take.
        IllegalArgumentError: a number that no partition has.
    """
    wanted = "a list of TopicPartition(topic, partition)"
    if isinstance(partitions, str | TopicPartition) or not isinstance(partitions, Iterable):
        raise TypeError(f"{wanted} is wanted, not {_shortened(partitions)}")
    checked = []
    for one in partitions:
        if not isinstance(one, tuple) or len(one) != 2:
            raise TypeError(f"{wanted} is wanted, but {_shortened(one)} is in it")
        topic, partition = one
        check_topic_name(topic)
        if type(partition) is not int or not 0 <= partition <= 0x7FFFFFFF:
            raise IllegalArgumentError(
                f"topic {topic!r} can't have a partition {_shortened(partition)}: allowed are "
                "integers from 0 on"
            )
        checked.append(TopicPartition(topic, partition))
    return checked
