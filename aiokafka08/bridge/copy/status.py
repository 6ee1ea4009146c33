"""`CopyStatus`: the progress and errors of a run.

It does no I/O. The event loop writes it, and threads of pages may read it at the same time.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from aiokafka08.structs import TopicPartition

# The key in `CopyStatus.errors` of an error that ended a session.
SESSION: Final = "copy"
_SAMPLE_S: Final = 0.2
_MAX_SAMPLES: Final = 500


@dataclass(slots=True)
class PartitionStatus:
    """A partition of the source."""

    # The committed offset of the next message.
    position: int
    # The log's end as far as it is known.
    end: int | None = None
    # Why the partition isn't copied any more.
    stopped: str | None = None
    # How many offsets were lost.
    skipped: int = 0
    # Ends of the log that the copy hasn't reached, each with the time when it was seen. If there
    # are too many, every second one is dropped.
    ends: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def lag(self) -> int | None:
        """Offsets between the position and the end; None if the end isn't known."""
        return None if self.end is None else max(self.end - self.position, 0)

    def observe(self, end: int | None, now: float) -> None:
        """Note the log's end, and drop the ends that the copy has reached."""
        if end is not None:
            self.end = end
            if end > self.position and (
                not self.ends or (now - self.ends[-1][0] >= _SAMPLE_S and end > self.ends[-1][1])
            ):
                self.ends.append((now, end))
        while self.ends and self.ends[0][1] <= self.position:
            self.ends.popleft()
        # A copy that is far behind needs no exact times.
        if len(self.ends) > _MAX_SAMPLES:
            self.ends = deque(list(self.ends)[::2])

    def lag_s(self, now: float) -> float:
        """Return how old the oldest end is that the copy hasn't reached."""
        return max(now - self.ends[0][0], 0.0) if self.ends else 0.0


@dataclass(frozen=True, slots=True)
class RepeatedError:
    """An error that has occurred `count` times without a success in between.

    `text` is that of the last occurrence; `since` is the time of the first, in seconds since 1970.
    """

    # Immutable: it is logged, and a log handler may format it later.

    text: str = ""
    since: float = 0.0
    count: int = 0
    # By `time.monotonic()`, so that a change of the system's clock doesn't matter.
    began: float = 0.0

    def again(self, text: str) -> RepeatedError:
        """Return the error with one more repetition, whose text is `text`."""
        if self.count == 0:
            return RepeatedError(text, time.time(), 1, time.monotonic())
        return replace(self, text=text, count=self.count + 1)

    @property
    def lasted_s(self) -> float:
        """The time since the first occurrence, in seconds."""
        return time.monotonic() - self.began

    def __str__(self) -> str:
        if self.count == 1:
            return self.text
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.text} ({self.count} times since {since})"


@dataclass(slots=True)
class CopyStatus:
    """A run of a bridge; counters count since the start of the process."""

    partitions: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    refused_topics: dict[str, str] = field(default_factory=dict)
    records: int = 0
    size: int = 0
    transactions: int = 0
    aborts: int = 0
    sessions: int = 0
    # Why no copy is running at the moment, None if one is.
    problem: str | None = "starting"
    # Whether a session of the run has begun to copy.
    has_begun: bool = False
    # Errors that are retried, by the action that failed.
    errors: dict[str, RepeatedError] = field(default_factory=dict)
    # The clusters that can't be reached, "source" or "target", with the last reason.
    away: dict[str, RepeatedError] = field(default_factory=dict)
    # The loop's time of the last commit.
    committed_at: float = 0.0
    # How long messages were in flight, in seconds: without the waits for new ones.
    copying_s: float = 0.0
    # The loop's time since which messages have been in flight; None if none are.
    copying_since: float | None = None
    translated_groups: int = 0
    # Seconds since 1970 of the last translation of groups.
    translated_at: float | None = None
    # 1 if the last verification found both sides equal, 0 if not, None before the first one.
    verified_equal: int | None = None
    # Seconds since 1970 of the last verification.
    verified_at: float | None = None

    @property
    def stopped(self) -> dict[TopicPartition, str]:
        """The partitions that aren't copied any more, with the reasons."""
        return {
            tp: partition.stopped
            for tp, partition in self.partitions.items()
            if partition.stopped is not None
        }

    def begin_session(self) -> None:
        """Note that a session has begun to copy."""
        self.problem, self.has_begun = None, True
        self.away.clear()
        self.copying_since = None
        self.note_success(SESSION)

    def observe_copying(self, now: float, *, is_copying: bool) -> None:
        """Add the time since the last call to `copying_s`, if messages were in flight.

        `is_copying` says whether they are from now on; `now` is the loop's time.
        """
        if self.copying_since is not None:
            self.copying_s += now - self.copying_since
        self.copying_since = now if is_copying else None

    def note_error(self, action: str, text: str) -> RepeatedError:
        """Count an error that will be retried.

        Args:
            action: the failed action, in the same words each time.
            text: the error.
        """
        error = self.errors.get(action, RepeatedError()).again(text)
        self.errors[action] = error
        return error

    def note_away(self, cluster: str, text: str | None) -> None:
        """Note why "source" or "target" can't be reached; `text` is None once it has responded."""
        if text is None:
            self.away.pop(cluster, None)
        else:
            self.away[cluster] = self.away.get(cluster, RepeatedError()).again(text)

    def note_success(self, action: str) -> None:
        """Forget the errors of an action that has worked."""
        self.errors.pop(action, None)

    def lag(self) -> int:
        """Return how many offsets are between positions and ends, without stopped partitions."""
        return sum(
            partition.lag or 0
            # Make a list first, because a page's thread may read while the loop adds partitions.
            for partition in list(self.partitions.values())
            if partition.stopped is None
        )

    def lag_s(self, now: float) -> float:
        """Return the largest lag of a partition in seconds."""
        return max(
            [partition.lag_s(now) for partition in list(self.partitions.values())], default=0.0
        )
