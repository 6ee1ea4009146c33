"""`LagTable`: how far one group is behind on each partition, in few objects. Pure.

A large cluster has hundreds of thousands of such rows. They are kept as numbers, and made again
where a page shows them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress, groupby, takewhile
from operator import gt
from typing import Any, Final, NamedTuple

from aiokafka08.structs import TopicPartition

_UNKNOWN: Final = -(2**63)
"""Stands for None, since no offset is as low."""

Partitions = tuple[TopicPartition, ...]


class LagRow(NamedTuple):
    """How far a group is behind on one partition, as a row of `aiokafka08 group lag`.

    `lag_s` says how long the next message has been waiting; with `lag_s_is_least` it is a minimum.
    `deleted` is how many offsets retention took before the group read them.
    """

    group: str
    store: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    first: int | None
    lag_s: float | None
    lag_s_is_least: bool
    deleted: int


class KnownLags(NamedTuple):
    """The partitions of `tps` whose lag is known: those where `mask` has a 1."""

    tps: Partitions
    mask: bytes

    def without(self, other: KnownLags) -> set[TopicPartition]:
        """Return the partitions whose lag is known here, and not in `other`."""
        if self.tps == other.tps:
            return set(compress(self.tps, map(gt, self.mask, other.mask)))
        return {*compress(self.tps, self.mask)}.difference(compress(other.tps, other.mask))


class LagTable:
    """The rows of one group in one store, ordered by topic and partition.

    Args:
        group, store: the group.
        rows: its rows, ordered.
        least_s: a wait that is as long, or longer, is a minimum.
        shared: by their value, the partitions of tables that exist; those of this one are added.

    Attributes:
        known: the partitions whose lag is known.
    """

    __slots__ = ("_group", "_least_s", "_members", "_offsets", "_store", "_waits_s", "known")

    def __init__(
        self,
        group: str,
        store: str,
        rows: Sequence[LagRow],
        least_s: float,
        shared: dict[Partitions, Partitions],
    ) -> None:
        self._group, self._store, self._least_s = group, store, least_s
        tps = tuple(TopicPartition(row.topic, row.partition) for row in rows)
        mask = bytes(row.lag is not None for row in rows)
        self.known = KnownLags(shared.setdefault(tps, tps), mask)
        # Three numbers of each partition, in one array.
        self._offsets = array("q")
        for row in rows:
            for offset in (row.committed, row.end, row.first):
                self._offsets.append(_UNKNOWN if offset is None else offset)
        waits_s = (math.nan if row.lag_s is None else row.lag_s for row in rows)
        self._waits_s = array("d", waits_s)
        members = enumerate(row.member for row in rows)
        self._members = {at: member for at, member in members if member is not None}

    def __len__(self) -> int:
        return len(self._waits_s)

    def __iter__(self) -> Iterator[LagRow]:
        return map(self.row, range(len(self)))

    @property
    def columns(self) -> dict[str, Callable[[int], Any]]:
        """What to sort the rows by: functions of their numbers."""
        tps = self.known.tps
        names = ("committed", "end", "lag", "lag_s", "member")
        return {
            "topic": lambda at: tuple(tps[at]),
            **{name: partial(self._value, name) for name in names},
        }

    def of_topic(self, topic: str) -> Iterator[LagRow]:
        """Yield the rows of a topic."""
        begin = bisect_left(self.known.tps, (topic,))
        rows = map(self.row, range(begin, len(self)))
        return takewhile(lambda row: row.topic == topic, rows)

    def lag_by_topic(self) -> Iterator[tuple[str, int]]:
        """Yield the sum of the lags that are known, of each topic that has one."""
        lags = zip(self.known.tps, self._offsets[::3], self._offsets[1::3], strict=True)
        for topic, known in groupby(compress(lags, self.known.mask), lambda one: one[0].topic):
            yield topic, sum(max(end - committed, 0) for _, committed, end in known)

    def unknown_topics(self) -> set[str]:
        """Return the topics with an unknown lag; that of a log without messages isn't one."""
        rows = zip(self.known.tps, self.known.mask, self._offsets[1::3], strict=True)
        return {tp.topic for tp, is_known, end in rows if not is_known and end != 0}

    def has_committed(self, tp: TopicPartition) -> bool:
        """Return whether the group has a committed offset of a partition."""
        at = bisect_left(self.known.tps, tp)
        found = self.known.tps[at : at + 1]
        return found == (tp,) and self._offsets[3 * at] != _UNKNOWN

    def _value(self, name: str, at: int) -> Any:
        return getattr(self.row(at), name)

    def row(self, at: int) -> LagRow:
        """Return the row with a number, from 0 on."""
        committed, end, first = (
            None if offset == _UNKNOWN else offset for offset in self._offsets[3 * at : 3 * at + 3]
        )
        tp, lag_s = self.known.tps[at], self._waits_s[at]
        return LagRow(
            self._group,
            self._store,
            *tp,
            committed,
            end,
            None if committed is None or end is None else end - committed,
            self._members.get(at),
            first,
            None if math.isnan(lag_s) else lag_s,
            is_least(lag_s, self._least_s),
            deleted_of(first, committed),
        )


def is_least(lag_s: float | None, least_s: float) -> bool:
    """Return whether a wait is only a minimum: it is `least_s` at least, and not 0."""
    return bool(lag_s) and (lag_s or 0.0) >= least_s


def deleted_of(first: int | None, committed: int | None) -> int:
    """Return how many offsets were deleted between a committed offset and a log's first one."""
    return 0 if first is None or committed is None else max(first - committed, 0)
