"""`CopyStatus`: what a run has done, and how far it is behind. Written by the loop, read by pages.

Pure: `copy` updates it, `pages` and the command `bridge status` show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka08.structs import TopicPartition


@dataclass(slots=True)
class PartitionStatus:
    """A partition of the source.

    `position` is the committed offset of the next message, `end` the log's end as far as it is
    known. `behind_since` is the loop's time since which the copy hasn't reached the end. `stopped`
    is the reason if the partition isn't copied any more; `skipped` counts offsets that were lost.
    """

    position: int
    end: int | None = None
    behind_since: float | None = None
    stopped: str | None = None
    skipped: int = 0

    @property
    def lag(self) -> int | None:
        """Offsets between the position and the end; None if the end isn't known."""
        return None if self.end is None else max(self.end - self.position, 0)

    def observe(self, end: int | None, now: float) -> None:
        """Take note of the log's end, and of whether the copy has reached it."""
        if end is not None:
            self.end = end
        if not self.lag:
            self.behind_since = None
        elif self.behind_since is None:
            self.behind_since = now

    def lag_s(self, now: float) -> float:
        """Return for how many seconds the copy hasn't reached the end."""
        return 0.0 if self.behind_since is None else max(now - self.behind_since, 0.0)


@dataclass(slots=True)
class CopyStatus:
    """A run of a bridge.

    Counters count since the start of the process. `problem` is why the copy doesn't go on at the
    moment, None if it does.
    """

    partitions: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    refused_topics: dict[str, str] = field(default_factory=dict)
    records: int = 0
    size: int = 0
    transactions: int = 0
    aborts: int = 0
    sessions: int = 0
    problem: str | None = "starting"
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
        return {tp: one.stopped for tp, one in self.partitions.items() if one.stopped is not None}

    def lag(self) -> int:
        """Return the messages between positions and ends, over all partitions."""
        return sum(one.lag or 0 for one in list(self.partitions.values()))

    def lag_s(self, now: float) -> float:
        """Return the longest time for which a partition hasn't reached its end."""
        return max([one.lag_s(now) for one in list(self.partitions.values())], default=0.0)
