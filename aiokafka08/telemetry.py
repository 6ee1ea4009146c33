"""What the client tells about itself: typed events, counters, log lines.

An event is one small frozen dataclass. `Telemetry.emit` counts it, logs it (state changes at INFO
or WARNING, repeats of the same one at most every 30 s, never payload bytes) and gives it to the
user's `on_event` hook. Gauges belong to whoever owns the thing; `metrics()` of producer and
consumer merge them in.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import TopicPartition

REPEAT_SECONDS = 30.0
"""An event that reads like one logged less than this ago goes to DEBUG; so does a hook's error."""


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. `name` is the counter in `metrics()` that the event raises."""

    name: ClassVar[str] = ""
    level: ClassVar[int] = logging.INFO
    logger: ClassVar[str] = "net"

    @property
    def amount(self) -> int:
        """By how much the counter rises."""
        return 1


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """A lane to a broker is open. `broker` is its line, such as "0.8.2"."""

    name = "connections_opened"
    address: str
    lane: str
    broker: str


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """A lane was closed, by either side; `lost` requests will never be answered."""

    name = "connections_closed"
    address: str
    lane: str
    reason: str
    lost: int


@dataclass(frozen=True, slots=True)
class ConnectFailed(Event):
    """A broker could not be reached, or isn't one."""

    name = "connect_failures"
    level = logging.WARNING
    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class MetadataChanged(Event):
    """A refresh brought other brokers, topics or leaders."""

    name = "metadata_changes"
    brokers: tuple[int, ...]
    topics: int


@dataclass(frozen=True, slots=True)
class MetadataFailed(Event):
    """No broker answered a metadata request."""

    name = "metadata_failures"
    level = logging.WARNING
    reason: str


@dataclass(frozen=True, slots=True)
class BatchRetried(Event):
    """A batch was not acknowledged and goes out again; `may_be_stored` means: perhaps twice."""

    name = "batches_retried"
    level = logging.WARNING
    logger = "producer"
    partition: TopicPartition
    messages: int
    reason: str
    may_be_stored: bool


@dataclass(frozen=True, slots=True)
class BatchFailed(Event):
    """A batch was given up: its messages' futures have the error."""

    name = "batches_failed"
    level = logging.ERROR
    logger = "producer"
    partition: TopicPartition
    messages: int
    reason: str


@dataclass(frozen=True, slots=True)
class Acks0Unknown(Event):
    """The broker closed the lane behind messages sent with acks=0: nobody knows their fate."""

    name = "acks0_unknown"
    level = logging.WARNING
    logger = "producer"
    messages: int
    reason: str

    @property
    def amount(self) -> int:
        return self.messages


@dataclass(frozen=True, slots=True)
class PartitionFailed(Event):
    """Fetching a partition met an error; it is tried again, or told to the caller."""

    name = "fetch_errors"
    level = logging.WARNING
    logger = "consumer"
    partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class OffsetReset(Event):
    """A position outside the log was moved by `auto_offset_reset`."""

    name = "offset_resets"
    level = logging.WARNING
    logger = "consumer"
    partition: TopicPartition
    old_offset: int | None
    new_offset: int


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """A commit that the consumer made by itself failed; the next one comes at its time."""

    name = "auto_commit_failures"
    level = logging.WARNING
    logger = "consumer"
    reason: str


@dataclass(frozen=True, slots=True)
class GroupJoined(Event):
    """A generation of the group was joined; `partitions` are this member's share."""

    name = "group_joins"
    logger = "consumer"
    group: str
    generation: int
    member: str
    leader: bool
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupJoinFailed(Event):
    """Joining the group met an error; it is tried again."""

    name = "group_join_failures"
    level = logging.WARNING
    logger = "consumer"
    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupLeft(Event):
    """This member left its group."""

    name = "group_leaves"
    logger = "consumer"
    group: str
    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rebalanced(Event):
    """The assignment changed."""

    name = "rebalances"
    logger = "consumer"
    assigned: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]


class Telemetry:
    """Counts, logs and passes on the events of one client.

    Args:
        on_event: the user's hook, called in the event loop; it should return quickly. What it
            raises is logged and goes no further.
        clock: monotonic seconds, for the rate limit of the log.

    Raises:
        IllegalArgumentError: the hook can't be called.
    """

    def __init__(
        self,
        on_event: Callable[[Event], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if on_event is not None and not callable(on_event):
            raise IllegalArgumentError(f"on_event={on_event!r}: expected a callable or None")
        self.counters: Counter[str] = Counter()
        self._on_event = on_event
        self._clock = clock
        self._logged: dict[Hashable, float] = {}

    def emit(self, event: Event) -> None:
        """Count the event, log it, and tell the hook."""
        self.counters[event.name] += event.amount
        self._log(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception as error:
                logging.getLogger("aiokafka08").log(
                    self._level(("hook", type(error).__name__), logging.ERROR),
                    "the on_event hook failed on %r",
                    event,
                    exc_info=True,
                )

    def _log(self, event: Event) -> None:
        logging.getLogger(f"aiokafka08.{event.logger}").log(
            self._level(event, event.level), "%s", event
        )

    def _level(self, what: Hashable, level: int) -> int:
        """`level`; DEBUG where the same was logged a little while ago."""
        now = self._clock()
        last = self._logged.get(what)
        if last is not None and now - last < REPEAT_SECONDS:
            return logging.DEBUG
        if len(self._logged) > 1000:  # bounded, whatever the addresses and reasons
            self._logged.clear()
        self._logged[what] = now
        return level
