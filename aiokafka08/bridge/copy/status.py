"""`CopyStatus`: what a run has done, and how far it is behind. Written by the loop, read by pages.

Pure: `copy_session` updates it, `status_pages` and the command `bridge status` show it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from aiokafka08.structs import TopicPartition

SESSION: Final = "copy"
"""What fails if a session ends, in `CopyStatus.errors`."""
_SAMPLE_S: Final = 0.2
_MAX_SAMPLES: Final = 500


@dataclass(slots=True)
class PartitionStatus:
    """A partition of the source.

    `position` is the committed offset of the next message, `end` the log's end as far as it is
    known. `stopped` is the reason if the partition isn't copied any more; `skipped` counts offsets
    that were lost.
    """

    position: int
    end: int | None = None
    stopped: str | None = None
    skipped: int = 0
    ends: deque[tuple[float, int]] = field(default_factory=deque)
    """When the log ended where, for ends that aren't copied yet; the sparser the more there are."""

    @property
    def lag(self) -> int | None:
        """Offsets between the position and the end; None if the end isn't known."""
        return None if self.end is None else max(self.end - self.position, 0)

    def observe(self, end: int | None, now: float) -> None:
        """Take note of the log's end, and of which ends the copy has reached."""
        if end is not None:
            self.end = end
            if end > self.position and (
                not self.ends or (now - self.ends[-1][0] >= _SAMPLE_S and end > self.ends[-1][1])
            ):
                self.ends.append((now, end))
        while self.ends and self.ends[0][1] <= self.position:
            self.ends.popleft()
        if len(self.ends) > _MAX_SAMPLES:
            self.ends = deque(list(self.ends)[::2])

    def lag_s(self, now: float) -> float:
        """Return how old the oldest end is that the copy hasn't reached."""
        return max(now - self.ends[0][0], 0.0) if self.ends else 0.0


@dataclass(frozen=True, slots=True)
class RepeatedError:
    """An error that came up `count` times without a success in between.

    `text` is the last one; `since` is the time of the first one, in seconds since 1970. It never
    changes, since it is logged, and a handler may make its text later.
    """

    text: str = ""
    since: float = 0.0
    count: int = 0
    began: float = 0.0
    """The time of the first one, by `time.monotonic()`."""

    def again(self, text: str) -> RepeatedError:
        """Return the error as it is when it came up once more; `text` is what it says now."""
        if self.count == 0:
            return RepeatedError(text, time.time(), 1, time.monotonic())
        return replace(self, text=text, count=self.count + 1)

    @property
    def lasted_s(self) -> float:
        """The time since the first one, whatever became of the system's clock."""
        return time.monotonic() - self.began

    def __str__(self) -> str:
        if self.count == 1:
            return self.text
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.text} ({self.count} times since {since})"


@dataclass(slots=True)
class CopyStatus:
    """A run of a bridge.

    Counters count since the start of the process. `problem` is why the copy doesn't go on at the
    moment, None if it does. `errors` are those that are retried, by what failed.
    """

    partitions: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    refused_topics: dict[str, str] = field(default_factory=dict)
    records: int = 0
    size: int = 0
    transactions: int = 0
    aborts: int = 0
    sessions: int = 0
    problem: str | None = "starting"
    has_begun: bool = False
    """Whether a session of the run has begun to copy."""
    errors: dict[str, RepeatedError] = field(default_factory=dict)
    away: dict[str, RepeatedError] = field(default_factory=dict)
    """The clusters that can't be reached, "source" or "target", with the last reason."""
    committed_at: float = 0.0
    """The loop's time of the last commit."""
    copying_s: float = 0.0
    """How long messages were on their way, in seconds: without the time of waiting for new ones."""
    copying_since: float | None = None
    """The loop's time since when messages are on their way; None if none are."""
    translated_groups: int = 0
    translated_at: float | None = None
    """Seconds since 1970 of the last translation of groups."""
    verified_equal: int | None = None
    """1 if the last verification found no difference, 0 if it did, None without one."""
    verified_at: float | None = None
    """Seconds since 1970 of the last verification."""

    @property
    def stopped(self) -> dict[TopicPartition, str]:
        """The partitions that aren't copied any more, with the reasons."""
        return {
            tp: partition.stopped
            for tp, partition in self.partitions.items()
            if partition.stopped is not None
        }

    def begin_session(self) -> None:
        """Note that the copy goes on."""
        self.problem, self.has_begun = None, True
        self.away.clear()
        self.copying_since = None
        self.note_success(SESSION)

    def observe_copying(self, now: float, *, is_copying: bool) -> None:
        """Add to `copying_s` what has passed.

        Args:
            now: the loop's time.
            is_copying: whether messages are on their way from now on.
        """
        if self.copying_since is not None:
            self.copying_s += now - self.copying_since
        self.copying_since = now if is_copying else None

    def note_error(self, action: str, text: str) -> RepeatedError:
        """Count an error that will be retried.

        Args:
            action: what failed; the same words each time.
            text: the error.
        """
        error = self.errors.get(action, RepeatedError()).again(text)
        self.errors[action] = error
        return error

    def note_away(self, cluster: str, text: str | None) -> None:
        """Note that a cluster can't be reached, or that it has responded.

        Args:
            cluster: "source" or "target".
            text: the reason; None if it has responded.
        """
        if text is None:
            self.away.pop(cluster, None)
        else:
            self.away[cluster] = self.away.get(cluster, RepeatedError()).again(text)

    def note_success(self, action: str) -> None:
        """Forget the errors of what has worked now."""
        self.errors.pop(action, None)

    def lag(self) -> int:
        """Return the messages between positions and ends, over all that is copied: not stopped."""
        return sum(
            partition.lag or 0
            for partition in list(self.partitions.values())
            if partition.stopped is None
        )

    def lag_s(self, now: float) -> float:
        """Return the largest lag of a partition in seconds."""
        return max(
            [partition.lag_s(now) for partition in list(self.partitions.values())], default=0.0
        )
