"""What the user wants to read: topics, a pattern, or partitions by name; one kind at a time.

Pure: given a snapshot of the cluster it says which topics and partitions that means now. Who reads
which of them is `membership`'s business, fetching them `assignment`'s.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable

from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.errors import Action, IllegalStateError, action_for
from aiokafka08.net.cluster import ClusterSnapshot, TopicInfo, check_partitions, check_topic_names
from aiokafka08.structs import TopicPartition


class Kind(enum.Enum):
    """How the user named what to read."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    ASSIGNED = "partitions"


class Subscription:
    """The user's wish.

    Attributes:
        kind: how it was expressed.
        number: rises with each change.
        listener: is told of changes of the assignment.
    """

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self.kind = Kind.NONE
        self.number = 0
        self.listener: ConsumerRebalanceListener | None = None
        self._exclude_internal = exclude_internal_topics
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()

    @property
    def by_topic(self) -> bool:
        """Whether it is topics or a pattern: then a membership decides on the partitions."""
        return self.kind in (Kind.TOPICS, Kind.PATTERN)

    @property
    def tracked_topics(self) -> frozenset[str] | None:
        """The topics whose metadata is needed; None: of all, since a pattern may match any."""
        return None if self.kind is Kind.PATTERN else self._topics

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the user named."""
        return self._partitions

    def subscribe(
        self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Read these topics.

        Raises:
            IllegalStateError: there is a subscription of another kind.
            InvalidTopicError: a name that brokers don't take.
        """
        names = frozenset(check_topic_names(topics))
        self._become(Kind.TOPICS)
        self._topics, self.listener = names, listener

    def subscribe_pattern(
        self, pattern: str | re.Pattern[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Read the topics whose names the pattern matches from their beginning (`re.match`).

        Raises:
            IllegalStateError: there is a subscription of another kind.
            ValueError: it isn't a regular expression.
            TypeError: it is one of bytes.
        """
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        if not isinstance(compiled.pattern, str):
            raise TypeError(f"the pattern {compiled.pattern!r} is bytes; topic names are text")
        self._become(Kind.PATTERN)
        self._pattern, self.listener = compiled, listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions.

        Raises:
            IllegalStateError: there is a subscription of another kind.
            TypeError, InvalidTopicError, IllegalArgumentError: as `check_partitions`.
        """
        named = frozenset(check_partitions(partitions))
        topics = frozenset(tp.topic for tp in named)
        self._become(Kind.ASSIGNED)
        self._partitions, self._topics = named, topics

    def unsubscribe(self) -> None:
        """Read nothing; any kind may come next."""
        self.kind = Kind.NONE
        self.number += 1
        self.listener = None
        self._topics, self._partitions, self._pattern = frozenset(), frozenset(), None

    def topics(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """The topics that are meant, as the cluster is now."""
        if self._pattern is None:
            return self._topics
        return frozenset(
            name
            for name, info in snapshot.topics.items()
            if self._pattern.match(name) and self._may_match(info)
        )

    def partitions(self, snapshot: ClusterSnapshot) -> frozenset[TopicPartition]:
        """The partitions that are meant, as the cluster is now."""
        if self.kind is Kind.ASSIGNED:
            return self._partitions
        return frozenset(
            TopicPartition(topic, partition)
            for topic in self.topics(snapshot)
            for partition in snapshot.partitions(topic)
        )

    def unknown(self, snapshot: ClusterSnapshot) -> Collection[str]:
        """The topics of which the snapshot knows no partition."""
        return sorted(topic for topic in self._topics if not snapshot.partitions(topic))

    def _may_match(self, info: TopicInfo) -> bool:
        if info.is_internal and self._exclude_internal:
            return False
        return action_for(info.error_code) is not Action.FINAL

    def _become(self, kind: Kind) -> None:
        if self.kind not in (Kind.NONE, kind):
            raise IllegalStateError(
                f"subscriptions to topics, patterns and partitions exclude each other: there is "
                f"one to {self.kind.value}; call unsubscribe() first"
            )
        self.kind = kind
        self.number += 1
