"""Report what the client does: typed events, counters, log lines.

Invariant: of events that compare equal, at most one in 30 s is logged above DEBUG, unless about
1,000 different ones come in between. `Connected` is also logged once a failure or an end of a
connection to the same address was logged, so that the last line says whether the broker can be
reached. Events and log lines never contain keys or values of messages.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from aiokafka08 import environment
from aiokafka08._wording import (
    counted,
    missing_topics_text,
    partition_name,
    partition_text,
    some_of,
)
from aiokafka08.structs import TopicPartition

REPEAT_SECONDS: Final = 30.0
"""After an event was logged at its own level, equal events are logged at DEBUG for this long.

The same holds for exceptions of one type that the `on_event` hook raises.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of all events. `str()` of an event is a sentence, which is logged.

    The fields of an event can't be changed.

    Attributes:
        client_id: The client that emitted the event. Equality ignores it.
        name: The counter in `metrics()` that the event increases.
        unit: What the counter counts.
        level: The level of its log line.
        logger: Its logger, below "aiokafka08".
    """

    name: ClassVar[str] = ""
    unit: ClassVar[str] = "events"
    level: ClassVar[int] = logging.INFO
    logger: ClassVar[str] = "net"
    client_id: str = field(default="", kw_only=True, compare=False, repr=False)

    @property
    def amount(self) -> int:
        """By how much the event increases its counter."""
        return 1


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """A connection to a broker was opened.

    `lane` is its purpose, such as "fetch". `broker` is the version family of the broker, such as
    "0.8.2".
    """

    name = "connections_opened"
    address: str
    lane: str
    broker: str

    def __str__(self) -> str:
        return f"connected to {self.address} for {self.lane}, broker line {self.broker}"


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """A connection to a broker was closed, by the client or the broker.

    `lost` is the number of requests in flight that their callers still waited for.
    """

    name = "connections_closed"
    address: str
    lane: str
    reason: str
    lost: int

    def __str__(self) -> str:
        lost = f"; no response to {counted(self.lost, 'request')}" if self.lost else ""
        return f"connection to {self.address} for {self.lane} closed: {self.reason}{lost}"


@dataclass(frozen=True, slots=True)
class ConnectFailed(Event):
    """A connection could not be made, or the peer isn't a supported broker."""

    name = "connect_failures"
    level = logging.WARNING
    address: str
    reason: str

    def __str__(self) -> str:
        return f"no connection to {self.address}: {self.reason}"


@dataclass(frozen=True, slots=True)
class MetadataChanged(Event):
    """A metadata response changed brokers, topics or leaders.

    `brokers` has the ids of all known brokers; `topics` is the number of known topics.
    """

    name = "metadata_changes"
    brokers: tuple[int, ...]
    topics: int

    def __str__(self) -> str:
        topics = counted(self.topics, "topic")
        return f"metadata changed: broker ids {some_of(self.brokers)}; {topics}"


@dataclass(frozen=True, slots=True)
class MetadataFailed(Event):
    """No broker responded to a metadata request."""

    name = "metadata_failures"
    level = logging.WARNING
    reason: str

    def __str__(self) -> str:
        return f"metadata not refreshed: {self.reason}"


@dataclass(frozen=True, slots=True)
class BatchRetried(Event):
    """A batch was not acknowledged and is sent again.

    `may_be_stored`: the broker may have stored it, and may then store it twice.
    """

    name = "batches_retried"
    level = logging.WARNING
    logger = "producer"
    partition: TopicPartition
    messages: int
    reason: str
    may_be_stored: bool

    def __str__(self) -> str:
        doubt = "; the broker may have stored them" if self.may_be_stored else ""
        messages = counted(self.messages, "message")
        return f"{partition_text(self.partition)}: {messages} retried{doubt}: {self.reason}"


@dataclass(frozen=True, slots=True)
class BatchFailed(Event):
    """A batch failed: the futures of its messages have the error."""

    name = "batches_failed"
    level = logging.WARNING
    logger = "producer"
    partition: TopicPartition
    messages: int
    reason: str

    def __str__(self) -> str:
        messages = counted(self.messages, "message")
        return f"{partition_text(self.partition)}: {messages} failed: {self.reason}"


@dataclass(frozen=True, slots=True)
class Acks0Unknown(Event):
    """The broker closed the connection after messages with acks=0: they may be stored or lost.

    Messages that were never written fail instead (`BatchFailed`).
    """

    name = "acks0_unknown"
    unit = "messages"
    level = logging.WARNING
    logger = "producer"
    partitions: tuple[TopicPartition, ...]
    messages: int
    reason: str

    @property
    def amount(self) -> int:
        return self.messages

    def __str__(self) -> str:
        messages = counted(self.messages, "message")
        where = some_of(self.partitions)
        return f"{messages} with acks=0 may be lost, for {where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PartitionFailed(Event):
    """Reading a partition failed: the search for its first offset, a fetch, or a deserializer.

    The consumer retries it, or raises the error in the next call that returns messages.
    """

    name = "fetch_errors"
    level = logging.WARNING
    logger = "consumer"
    partition: TopicPartition
    reason: str

    def __str__(self) -> str:
        return f"{partition_text(self.partition)}: reading failed: {self.reason}"


@dataclass(frozen=True, slots=True)
class TopicMissing(Event):
    """A topic to read has been missing for a second. The event is emitted once for a topic.

    The brokers may have it, but not show it to this principal. `similar` has at most three names of
    similar topics. The consumer reads the topic once it exists.
    """

    name = "missing_topics"
    unit = "topics"
    level = logging.WARNING
    logger = "consumer"
    topic: str
    similar: tuple[str, ...]

    def __str__(self) -> str:
        similar = f"Similar topics: {some_of(self.similar)}"
        return (
            f"{missing_topics_text([self.topic])}; waiting for it. "
            f"{similar if self.similar else 'No topic is similar'}"
        )


@dataclass(frozen=True, slots=True)
class TopicCreated(Event):
    """A named topic was unknown at first, and exists now: it is new, or a broker had restarted."""

    name = "created_topics"
    unit = "topics"
    topic: str
    partitions: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} was unknown at first; it has "
            f"{counted(self.partitions, 'partition')} now"
        )


@dataclass(frozen=True, slots=True)
class OffsetReset(Event):
    """`auto_offset_reset` moved a position that was outside the log."""

    name = "offset_resets"
    level = logging.WARNING
    logger = "consumer"
    partition: TopicPartition
    old_offset: int
    new_offset: int

    def __str__(self) -> str:
        name = partition_text(self.partition)
        return f"{name}: auto_offset_reset from offset {self.old_offset} to {self.new_offset}"


@dataclass(frozen=True, slots=True)
class StartedAtEnd(Event):
    """Partitions without a committed offset begin at the end (`auto_offset_reset="latest"`).

    `positions` has each of them whose log has had messages, with its start offset. This consumer
    doesn't return the messages before it.
    """

    name = "starts_at_end"
    unit = "partitions"
    logger = "consumer"
    positions: tuple[tuple[TopicPartition, int], ...]

    @property
    def amount(self) -> int:
        return len(self.positions)

    def __str__(self) -> str:
        starts = [f"{partition_name(tp)} at {offset}" for tp, offset in self.positions]
        return (
            "no committed offset, auto_offset_reset 'latest' starts at the end, earlier messages "
            f"aren't returned: {some_of(starts)}"
        )


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """An automatic commit failed; the next one is due after the usual interval."""

    name = "auto_commit_failures"
    level = logging.WARNING
    logger = "consumer"
    reason: str

    def __str__(self) -> str:
        return f"automatic commit failed: {self.reason}"


@dataclass(frozen=True, slots=True)
class GroupJoined(Event):
    """This member joined a generation of its group; `partitions` are assigned to it."""

    name = "group_joins"
    logger = "consumer"
    group: str
    generation: int
    member: str
    leader: bool
    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        role = " as leader" if self.leader else ""
        return (
            f"group {self.group!r}: joined generation {self.generation}{role}, member "
            f"{self.member}; assigned: {some_of(self.partitions)}"
        )


@dataclass(frozen=True, slots=True)
class GroupJoinFailed(Event):
    """Joining the group failed; it is retried."""

    name = "group_join_failures"
    level = logging.WARNING
    logger = "consumer"
    group: str
    reason: str

    def __str__(self) -> str:
        return f"group {self.group!r}: not joined: {self.reason}"


@dataclass(frozen=True, slots=True)
class GroupLeft(Event):
    """This member left its group."""

    name = "group_leaves"
    logger = "consumer"
    group: str
    member: str
    reason: str

    def __str__(self) -> str:
        return f"group {self.group!r}: member {self.member} left: {self.reason}"


@dataclass(frozen=True, slots=True)
class Rebalanced(Event):
    """The consumer's assignment changed."""

    name = "rebalances"
    logger = "consumer"
    assigned: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        new, revoked = some_of(self.assigned), some_of(self.revoked)
        return f"assignment changed: new {new}; revoked {revoked}"


class Telemetry:
    """Count, log and pass on the events of one client.

    Args:
        on_event: The user's hook, called in the event loop. It should return quickly. What it
            raises is logged, and has no other effect.
        clock: Returns monotonic seconds, for the rate limit of the log (default: `environment`'s).
        client_id: The client's id: log lines begin with it, and events have it.

    Attributes:
        counters: The sum of `amount` of all events, by `name`.
    """

    def __init__(
        self,
        on_event: Callable[[Event], object] | None = None,
        clock: Callable[[], float] | None = None,
        *,
        client_id: str = "",
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._on_event = on_event
        self._clock = clock
        self._client_id = client_id
        self._logged: dict[Hashable, float] = {}

    def emit(self, event: Event) -> None:
        """Count the event, log it, and call the hook."""
        event = replace(event, client_id=self._client_id)
        self.counters[event.name] += event.amount
        self._log(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            # A failing hook has no other effect.
            except Exception as error:
                logging.getLogger("aiokafka08").log(
                    self._level(("hook", type(error).__name__), logging.ERROR),
                    "%s: the on_event hook failed on: %s",
                    self._client_id,
                    event,
                    exc_info=True,
                )

    def _log(self, event: Event) -> None:
        level = self._level(event, event.level)
        if isinstance(event, (ConnectFailed, Disconnected)) and level == event.level:
            for one in [one for one in self._logged if isinstance(one, Connected)]:
                if one.address == event.address:
                    del self._logged[one]
        logging.getLogger(f"aiokafka08.{event.logger}").log(level, "%s: %s", self._client_id, event)

    def _level(self, subject: Hashable, level: int) -> int:
        """Return `level`, or DEBUG if an equal `subject` was logged within `REPEAT_SECONDS`."""
        now = (self._clock or environment.monotonic)()
        last = self._logged.get(subject)
        if last is not None and now - last < REPEAT_SECONDS:
            return logging.DEBUG
        if len(self._logged) > 1000:  # limits the memory: reasons are free text
            self._logged.clear()
        self._logged[subject] = now
        return level
