"""What the user wants to read: topics, a pattern, or named partitions. Pure.

Invariant: a subscription is of one kind at a time; another kind needs `unsubscribe` first. Each
change increments `number`, so that a task can see whether the subscription changed while it waited.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable

from aiokafka08._core.names import glob_hint
from aiokafka08._core.net.cluster import ClusterSnapshot, TopicInfo, check_partitions
from aiokafka08._core.topic_names import check_topic_names
from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.errors import Action, IllegalStateError, action_for
from aiokafka08.structs import TopicPartition


class SubscriptionKind(enum.Enum):
    """How the user names what to read."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    ASSIGNED = "partitions"


class Subscription:
    """Topics, a pattern or partitions; see the module.

    Attributes:
        kind: how the user has named the topics or partitions to read.
        number: the number of changes so far.
        listener: called when partitions are assigned or revoked.
    """

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self.kind = SubscriptionKind.NONE
        self.number = 0
        self.listener: ConsumerRebalanceListener | None = None
        self._exclude_internal = exclude_internal_topics
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()

    @property
    def by_topic(self) -> bool:
        """Whether the membership assigns the partitions, since topics or a pattern are named."""
        return self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)

    @property
    def tracked_topics(self) -> frozenset[str] | None:
        """The topics whose metadata is needed; None: all, since a pattern may match any."""
        return None if self.kind is SubscriptionKind.PATTERN else self._topics

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self._partitions

    def subscribe(
        self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to these topics.

        Raises IllegalStateError if there is a subscription of another kind, or InvalidTopicError if
        a name is invalid.
        """
        names = frozenset(check_topic_names(topics))
        self._set_kind(SubscriptionKind.TOPICS)
        self._topics, self.listener = names, listener

    def subscribe_pattern(
        self, pattern: str | re.Pattern[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to the topics whose names match the pattern, as with `re.match`.

        Raises:
            IllegalStateError: there is a subscription of another kind.
            ValueError: the pattern isn't a regular expression.
            TypeError: the pattern is bytes.
        """
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"pattern={pattern!r}: {error}; expected a regular expression"
                f"{glob_hint(str(pattern))}"
            ) from error
        if not isinstance(compiled.pattern, str):
            raise TypeError(f"pattern={compiled.pattern!r}: expected a string")
        self._set_kind(SubscriptionKind.PATTERN)
        self._pattern, self.listener = compiled, listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; raises as `subscribe` and `check_partitions`."""
        named = frozenset(check_partitions(partitions))
        topics = frozenset(tp.topic for tp in named)
        self._set_kind(SubscriptionKind.ASSIGNED)
        self._partitions, self._topics = named, topics

    def unsubscribe(self) -> None:
        """End the subscription; one of any kind may follow."""
        self.kind = SubscriptionKind.NONE
        self.number += 1
        self.listener = None
        self._topics, self._partitions, self._pattern = frozenset(), frozenset(), None

    def topics(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        if self._pattern is None:
            return self._topics
        return frozenset(
            name
            for name, info in snapshot.topics.items()
            if self._pattern.match(name) and self._may_match(info)
        )

    def partitions(self, snapshot: ClusterSnapshot) -> frozenset[TopicPartition]:
        if self.kind is SubscriptionKind.ASSIGNED:
            return self._partitions
        return frozenset(
            TopicPartition(topic, partition)
            for topic in self.topics(snapshot)
            for partition in snapshot.partitions(topic)
        )

    def unknown(self, snapshot: ClusterSnapshot) -> Collection[str]:
        """Return the named topics without partitions in the snapshot."""
        return sorted(topic for topic in self._topics if not snapshot.partitions(topic))

    def _may_match(self, info: TopicInfo) -> bool:
        if info.is_internal and self._exclude_internal:
            return False
        return action_for(info.error_code) is not Action.FINAL

    def _set_kind(self, kind: SubscriptionKind) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise IllegalStateError(
                f"subscription to {kind.value}: this consumer is subscribed to {self.kind.value}, "
                "and a subscription has only one kind. Call unsubscribe() first"
            )
        self.kind = kind
        self.number += 1
