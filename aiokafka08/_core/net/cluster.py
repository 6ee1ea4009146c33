"""The cluster as an immutable snapshot, and how Metadata responses merge into it. Pure.

Invariant: an empty list in a response is a sign of a failure, not of an empty cluster. A response
without brokers keeps all known brokers and topics; a topic without partitions in the response keeps
its known partitions (docs/brokers.md 4.1, 4.4, 4.5). Topics are removed only if all topics were
requested and the response has brokers: then the topics that it doesn't list are dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from aiokafka08._core.net.config import as_integer
from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08._core.topic_names import check_topic_name, may_be_new, too_long_text
from aiokafka08._wording import number_span, shorten
from aiokafka08.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    InvalidTopicError,
    NoError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownTopicOrPartitionError,
    broker_error,
    topic_code,
)
from aiokafka08.protocol.requests.metadata import Broker, MetadataResponse, TopicState
from aiokafka08.structs import TopicPartition

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets"})
"""Topics that brokers use themselves; Metadata 0 doesn't mark them."""


class PartitionInfo(NamedTuple):
    """A partition. `leader` is None during an election. Don't rely on `isr`: it is stale on 0.8."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: int


class TopicInfo(NamedTuple):
    """A topic, with the `error_code` of the last response and the last known `partitions`."""

    topic: str
    error_code: int
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]

    @property
    def error(self) -> BrokerResponseError:
        where = f"topic {self.topic!r}"
        if self.error_code == InvalidTopicError.errno and not may_be_new(self.topic):
            return InvalidTopicError(f"{where} doesn't exist, and {too_long_text(self.topic)}")
        if self.error_code == UnknownTopicOrPartitionError.errno:
            return UnknownTopicOrPartitionError(
                f"{where} doesn't exist and the brokers don't create it, or this principal may not "
                "describe it"
            )
        return broker_error(self.error_code, where)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The brokers and topics at one moment."""

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    controller_id: int = -1
    cluster_id: str | None = None  # None until a broker from 0.10.1 on has responded

    def partitions(self, topic: str) -> Mapping[int, PartitionInfo]:
        info = self.topics.get(topic)
        return {} if info is None else info.partitions

    def is_missing(self, topic: str) -> bool:
        """Return whether a topic may be missing: no partitions known, no authorization error."""
        info = self.topics.get(topic)
        if info is None:
            return True
        # Only an operator can grant authorization, and the next periodic refresh notices it.
        return not info.partitions and info.error_code != TopicAuthorizationFailedError.errno

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the node id of a partition's leader; None if it or its address isn't known."""
        info = self.topics.get(tp.topic)
        partition = None if info is None else info.partitions.get(tp.partition)
        if partition is None or partition.leader not in self.brokers:
            return None
        return partition.leader

    def no_leader_reason(self, tp: TopicPartition) -> str | None:
        """Return why `leader()` is None, as text; None if that isn't known."""
        info = self.topics.get(tp.topic)
        if info is None or self.leader(tp) is not None:
            return None
        partition = info.partitions.get(tp.partition)
        if partition is None and info.error_code:
            return info.error.text
        if partition is None:
            return (
                f"topic {tp.topic!r} has no partition {tp.partition}; it has "
                f"{number_span(sorted(info.partitions))}"
            )
        if partition.leader is None:
            return "the partition has no leader now"
        return f"its leader, node {partition.leader}, isn't among the known brokers"

    def merge(
        self,
        response: MetadataResponse,
        *,
        all_topics: bool,
        merged: Mapping[str, MergedTopic] | None = None,
    ) -> ClusterSnapshot:
        """Return the snapshot after this response.

        `all_topics`: whether all topics were requested. `merged`: topics of the response that were
        merged before; a topic that has changed since is merged again.
        """
        merged = {} if merged is None else merged
        brokers = {broker.node_id: broker for broker in response.brokers}
        topics = dict(self.topics)
        if all_topics and brokers:
            named = {state.topic for state in response.topics}
            topics = {name: info for name, info in topics.items() if name in named}
        if not brokers:
            brokers = dict(self.brokers)
        elif not all_topics and (unnamed := self.brokers.keys() - brokers.keys()):
            # 0.8.0 and 0.8.1 name only the brokers of the requested topics (docs/brokers.md 4.11).
            # Keep the known brokers that lead partitions of other topics.
            for node_id in unnamed & _leaders(topics.keys() - _described(response), topics):
                brokers[node_id] = self.brokers[node_id]
        for state in response.topics:
            known, before = topics.get(state.topic), merged.get(state.topic)
            if before is None or before.known is not known or before.state is not state:
                before = MergedTopic.of(known, state)
            topics[state.topic] = before.info
        return replace(
            self,
            brokers=MappingProxyType(dict(sorted(brokers.items()))),
            topics=MappingProxyType(topics),
            controller_id=response.controller_id if response.brokers else self.controller_id,
            cluster_id=response.cluster_id or self.cluster_id,
        )


class MergedTopic(NamedTuple):
    """A known topic, its state in a response, and `info`, the topic merged from both."""

    known: TopicInfo | None
    state: TopicState
    info: TopicInfo

    @classmethod
    def of(cls, known: TopicInfo | None, state: TopicState) -> MergedTopic:
        return cls(known, state, _merge_topic(known, state))


class MergeOrder:
    """Remembers which Metadata call last updated each topic, since responses may be out of order.

    Invariant: the response to an older call neither replaces a topic that a newer call has updated
    nor removes a topic. Calls are numbered in the order of their starts.
    """

    def __init__(self) -> None:
        self._last = 0
        self._all = 0  # the call with the last list of all topics
        self._by_topic: dict[str, int] = {}  # the last call that updated the topic, after `_all`

    def merge(
        self,
        snapshot: ClusterSnapshot,
        response: MetadataResponse,
        *,
        call: int,
        all_topics: bool,
        merged: Mapping[str, MergedTopic] | None = None,
    ) -> ClusterSnapshot:
        """Return the snapshot after a response to a call; see `ClusterSnapshot.merge()`."""
        if call < self._last:
            all_topics = False
            by_id = {broker.node_id: broker for broker in response.brokers}
            by_id.update(snapshot.brokers)
            topics = [
                state
                for state in response.topics
                if self._by_topic.get(state.topic, self._all) <= call
            ]
            response = replace(
                response,
                topics=topics,
                brokers=list(by_id.values()),
                controller_id=snapshot.controller_id,
            )
        self._last = max(call, self._last)
        if all_topics and response.brokers:
            self._all = call
            self._by_topic.clear()
        else:
            self._by_topic |= dict.fromkeys((state.topic for state in response.topics), call)
        return snapshot.merge(response, all_topics=all_topics, merged=merged)


@dataclass(frozen=True, slots=True)
class PartitionLeaders:
    """The leaders of some partitions, with their addresses and versions. Picklable.

    A router in another process starts with them instead of a Metadata request.
    """

    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)  # node ids
    brokers: Mapping[int, Broker] = field(default_factory=dict)  # the addresses of these nodes
    # The versions of those nodes whose version is known
    versions: Mapping[int, BrokerVersion] = field(default_factory=dict)

    def select(self, partitions: Iterable[TopicPartition]) -> PartitionLeaders:
        """Return the leaders of these partitions, as far as they are known, and their nodes."""
        leaders = {
            tp: self.by_partition[tp] for tp in dict.fromkeys(partitions) if tp in self.by_partition
        }
        nodes = set(leaders.values())
        return PartitionLeaders(
            leaders,
            {node_id: broker for node_id, broker in self.brokers.items() if node_id in nodes},
            {node_id: version for node_id, version in self.versions.items() if node_id in nodes},
        )

    def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot with these partitions and brokers only."""
        topics: dict[str, dict[int, PartitionInfo]] = {}
        for (topic, partition), leader in self.by_partition.items():
            info = PartitionInfo(partition, leader, (), (), NoError.errno)
            topics.setdefault(topic, {})[partition] = info
        return ClusterSnapshot(
            MappingProxyType(dict(self.brokers)),
            MappingProxyType(
                {
                    name: TopicInfo(
                        name, NoError.errno, name in INTERNAL_TOPICS, MappingProxyType(partitions)
                    )
                    for name, partitions in topics.items()
                }
            ),
        )


def _described(response: MetadataResponse) -> set[str]:
    return {state.topic for state in response.topics if state.partitions}


def _leaders(names: Iterable[str], topics: Mapping[str, TopicInfo]) -> set[int]:
    return {
        partition.leader
        for name in names
        for partition in topics[name].partitions.values()
        if partition.leader is not None
    }


def _merge_topic(known: TopicInfo | None, state: TopicState) -> TopicInfo:
    """Return the topic after a response; `known` itself if nothing has changed."""
    partitions: Mapping[int, PartitionInfo]
    if not state.partitions and known is not None:
        partitions = known.partitions
    else:
        partitions = {
            partition.partition: PartitionInfo(
                partition.partition,
                # Error code 9 (ReplicaNotAvailable) with a leader is normal while a replica is
                # down (docs/brokers.md 4.7).
                partition.leader
                if partition.leader >= 0
                and partition.error_code in (NoError.errno, ReplicaNotAvailableError.errno)
                else None,
                tuple(partition.replicas),
                tuple(partition.isr),
                topic_code(partition.error_code),
            )
            for partition in sorted(state.partitions, key=lambda partition: partition.partition)
        }
    merged = TopicInfo(
        state.topic,
        topic_code(state.error_code),
        state.is_internal or state.topic in INTERNAL_TOPICS,
        MappingProxyType(dict(partitions)),
    )
    # Return the same object, so that a change of the topic can be found by identity.
    return known if known is not None and known == merged else merged


def is_failed_by_one_topic(response: MetadataResponse, requested: Collection[str]) -> bool:
    """Return whether a single bad topic may have caused all errors."""
    # On 0.8 a topic whose name is invalid, or that can't be created, gives its error code to every
    # topic of the response, which then has no brokers (docs/brokers.md 4.4, 4.5).
    return len(requested) > 1 and has_only_errors(response)


def has_only_errors(response: MetadataResponse) -> bool:
    """Return whether the response has no brokers, and a bad topic's error for each topic."""
    # A bad topic causes one of these.
    bad_topic_codes = (UnknownError.errno, InvalidTopicError.errno)
    return (
        not response.brokers
        and bool(response.topics)
        and all(state.error_code in bad_topic_codes for state in response.topics)
    )


def check_partitions(partitions: Iterable[object]) -> list[TopicPartition]:
    """Return each partition as a `TopicPartition`; plain pairs are accepted.

    Raises:
        TypeError: an item is something else, or the argument isn't iterable.
        InvalidTopicError: a topic name is invalid.
        IllegalArgumentError: a partition number is invalid.
    """
    return list(iter_partitions(partitions))


def iter_partitions(partitions: Iterable[object]) -> Iterator[TopicPartition]:
    """Yield what `check_partitions` returns, so that callers can check a long list in steps."""
    expected = "expected a list of TopicPartition(topic, partition)"
    if isinstance(partitions, str | TopicPartition) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions={shorten(partitions)}: {expected}")
    for item in partitions:
        if not isinstance(item, tuple) or len(item) != 2:
            raise TypeError(f"partitions: {shorten(item)} in the list; {expected}")
        topic, partition = item
        check_topic_name(topic)
        number = as_integer(partition)
        if number is None or not 0 <= number <= 0x7FFFFFFF:
            raise IllegalArgumentError(
                f"topic {topic!r}, partition {shorten(partition)}: expected an integer >= 0"
            )
        yield TopicPartition(topic, number)
