"""Read messages of a topic for a page: from a position, filtered, and bounded.

`pages` calls `search_messages` with a router of `watch`. Positions and reader are those of
`aiokafka08 consume` (`_tools.reading`).

Invariant: a search ends, by count, bytes or time, and says what it has looked at and where it
stopped. It reads only what the logs have: no topic is created, no group joined, nothing committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from aiokafka08._core.names import did_you_mean
from aiokafka08._core.net.router import Router
from aiokafka08._tools.reading.positions import Bounds, Position, PositionKind, parse_bounds
from aiokafka08._tools.reading.read_plan import PartitionRange, plan_ranges, select_partitions
from aiokafka08._tools.reading.read_records import read_bounded
from aiokafka08._tools.records.avro import AvroReader
from aiokafka08._tools.records.avro_records import DecodedRecord, decoded
from aiokafka08._tools.records.masks import HIDDEN, Masks
from aiokafka08._tools.records.selection import RecordFilter, linear_pattern
from aiokafka08._tools.records.types import BytesRecord, Pick
from aiokafka08._wording import counted, missing_topics_text, some_of
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import TopicPartition

NO_MASKS: Final = Masks()
DEFAULT_COUNT: Final = 50
MAX_COUNT: Final = 500
LIMIT_S: Final = 8.0
SEARCHED_BYTES: Final = 64_000_000
_FETCH_BYTES: Final = 256 * 1024
_FILTERED_FETCH_BYTES: Final = 1024 * 1024
_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_UNPACKED_BYTES: Final = 16 * 1024 * 1024
"""How large a compressed message may be once it is unpacked; brokers don't limit it."""
_JSON_BYTES: Final = 1_000_000
"""The largest value, in bytes, that is parsed as JSON to look for a field."""
_LABELS: Final = {"--grep": "Value contains", "--key": "Key is"}
"""How the pages name the options of `RecordFilter`."""
_TURN_S: Final = 0.005
"""How long messages are filtered or decoded until other pages get their turn."""
_AT_ONCE: Final = 8
"""How many partitions are read at once."""
_MAX_NAMED: Final = 100
"""The most partitions whose positions the link to the next page names; a longer URL may fail."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """The messages to look for.

    Attributes:
        topic: the topic's name.
        partition: the partition to read; None: all.
        start: as `consume --from`; "": the last messages, about `count` in all partitions together.
        count: how many messages to show.
        contains, key, field, header: a part of the value, the whole key, and the conditions of
            `RecordFilter` for a field and a header; "": any.
        is_pattern: `contains` is a regular expression, and so are the others' texts that begin with
            "^".
        most: how many messages to show at most, in place of `count`, if `start` counts back from
            the ends and nothing is filtered.
        limit_bytes: after how many bytes the search stops.
        avro: what decodes Avro, and the parts that are Avro: "key", "value"; None: nothing.
    """

    topic: str
    partition: int | None = None
    start: str = ""
    count: int = DEFAULT_COUNT
    contains: str = ""
    key: str = ""
    field: str = ""
    header: str = ""
    is_pattern: bool = False
    most: int = MAX_COUNT
    limit_bytes: int = SEARCHED_BYTES
    avro: tuple[AvroReader, Sequence[str]] | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether the query has a condition that messages must meet."""
        return bool(self.contains or self.key or self.field or self.header)

    def filter(self) -> RecordFilter:
        """Return the filter that decides which messages are wanted.

        Raises:
            IllegalArgumentError: a regular expression or a path is wrong.
        """
        try:
            return RecordFilter(
                self.key or None,
                self.contains or None,
                [self.field] if self.field else [],
                [self.header] if self.header else [],
                compiler=linear_pattern if self.is_pattern else None,
                json_bytes=_JSON_BYTES,
            )
        except IllegalArgumentError as error:
            option, equals, rest = error.text.partition("=")
            text = f"{_LABELS.get(option, option)}{equals}{rest}"
            raise IllegalArgumentError(text) from None

    def picker(self, masks: Masks, wanted: RecordFilter) -> Pick:
        """Return a function from a message to the shown message, or to None if it isn't wanted."""
        hide = masks.of(self.topic, has_unions=self.avro is not None)

        async def pick(record: BytesRecord) -> BytesRecord | None:
            if self.avro is not None:
                record = await decoded(*self.avro, record, is_masked=hide is not None)
            # Hide before filtering, so that no filter finds out what is hidden.
            if hide is not None:
                record = hide(record)
                if isinstance(record, DecodedRecord):
                    record.forget_hidden(HIDDEN)
            return record if wanted.accepts(record) else None

        return pick


@dataclass(slots=True)
class MessagePage:
    """The result of a search.

    Attributes:
        messages: the messages found, ordered by time, or by partition and offset if one of them has
            no time.
        newest_first: whether the newest ones come first.
        scanned, scanned_bytes: how many messages were looked at, and their keys' and values' size.
        elapsed_s: how long it took.
        start: where the search began, in the form of a query's `start`.
        stopped: why the search ended early; None if it has read all.
        next_start: the `start` of the next page; None at the end.
        notes: further texts for the page, such as partitions without a leader.
        partitions: all partitions of the topic.
    """

    messages: list[BytesRecord] = field(default_factory=list)
    newest_first: bool = False
    scanned: int = 0
    scanned_bytes: int = 0
    elapsed_s: float = 0.0
    start: str = ""
    stopped: str | None = None
    next_start: str | None = None
    notes: list[str] = field(default_factory=list)
    partitions: Sequence[int] = ()


async def search_messages(
    router: Router,
    query: MessageQuery,
    *,
    limit_s: float = LIMIT_S,
    unpacking: asyncio.Lock | None = None,
    masks: Masks = NO_MASKS,
) -> MessagePage:
    """Return the messages that a query asks for.

    Args:
        router: a started router that requests all topics and creates none.
        query: the messages to look for.
        limit_s: the time after which the search stops.
        unpacking: as for `read_bounded`, shared by all searches that run at the same time.
        masks: hides keys and values, or parts of them.

    Raises:
        IllegalArgumentError: `start`, a regular expression or a path is wrong.
        UnknownTopicOrPartitionError, OffsetOutOfRangeError: there is no such topic, partition or
            offset.
        KafkaTimeoutError: the brokers don't say in time where the logs begin and end.
        KafkaError: a request failed.
    """
    began, page, wanted = time.monotonic(), MessagePage(), query.filter()
    pick = query.picker(masks, wanted)
    try:
        async with asyncio.timeout(limit_s):
            tps = await _partitions(router, query, page)
            start = _start(query, len(tps), page)
            ranges = await plan_ranges(
                router, tps, start, Bounds(), stop_at_end=True, note=page.notes.append
            )
    except TimeoutError:
        raise KafkaTimeoutError(
            f"topic {query.topic!r}: the brokers didn't say within {limit_s:g} s where its logs "
            "begin and end"
        ) from None
    page.newest_first = start.has(PositionKind.FROM_END)
    scan = _Scan(router, query, page, pick, unpacking or asyncio.Lock(), len(ranges))
    try:
        async with asyncio.timeout(max(began + limit_s - time.monotonic(), 0.0)):
            await scan.read(ranges)
    except TimeoutError:
        page.stopped = f"it took {limit_s:g} s"
    page.notes += scan.errors
    if wanted.longer:
        longer = counted(wanted.longer, "value of more than 1 MB")
        page.notes.append(f"Not searched for the field: {longer}")
    page.messages = _in_order(page.messages, newest_first=page.newest_first)
    page.elapsed_s = time.monotonic() - began
    unread = [one for one in ranges if scan.next_offset(one) < (one.stop or 0)]
    if unread:
        found = f"{counted(len(page.messages), 'message')} found"
        page.stopped = page.stopped or ("not all could be read" if scan.errors else found)
        if len(ranges) <= _MAX_NAMED:
            page.next_start = ",".join(
                f"{one.tp.partition}={scan.next_offset(one)}" for one in ranges
            )
    else:
        page.stopped = None
    return page


async def _partitions(
    router: Router, query: MessageQuery, page: MessagePage
) -> list[TopicPartition]:
    """Return the partitions to read: those with a leader."""
    wanted = () if query.partition is None else (query.partition,)
    snapshot = router.metadata.snapshot
    known = snapshot.partitions(query.topic)
    tps = [TopicPartition(query.topic, number) for number in wanted or known]
    if not tps or any(snapshot.leader(tp) is None for tp in tps):
        snapshot = await router.metadata.refresh()
    if query.topic not in snapshot.topics:
        similar = did_you_mean(query.topic, snapshot.topics)
        raise UnknownTopicOrPartitionError(f"{missing_topics_text([query.topic])}{similar}")
    page.partitions = sorted(snapshot.partitions(query.topic))
    tps = select_partitions([query.topic], wanted, snapshot)
    leaderless = [tp for tp in tps if snapshot.leader(tp) is None]
    if leaderless:
        names = some_of([str(tp.partition) for tp in leaderless])
        page.notes.append(f"Not read, because they have no leader: partitions {names}")
    return [tp for tp in tps if tp not in leaderless]


def _start(query: MessageQuery, partitions: int, page: MessagePage) -> Bounds:
    """Return where to begin; without a filter, no further back from the ends than `most`."""
    share = max(-(-query.count // max(partitions, 1)), 1)
    text = query.start.strip() or f"-{share}"
    start, _ = parse_bounds(
        [one.strip() for one in text.split(",")], [], now_ms=time.time_ns() // 1_000_000
    )
    if start.has(PositionKind.STORED):
        raise IllegalArgumentError(f"from={text!r}: the console reads without a group")
    most = max(query.most // max(partitions, 1), 1)
    default = start.default
    is_from_end = default is not None and default.kind is PositionKind.FROM_END
    if is_from_end and not query.is_filtered and default is not None and default.number > most:
        page.notes.append(
            f"The last {most} of each partition: a page shows {query.most} messages at most"
        )
        start = Bounds(Position(PositionKind.FROM_END, most), start.by_partition)
        text = f"-{most}"
    page.start = text
    return start


class _Scan:
    """Reads ranges, and adds the messages that are wanted to a page.

    `errors` says why partitions weren't read to their end.
    """

    def __init__(
        self,
        router: Router,
        query: MessageQuery,
        page: MessagePage,
        pick: Pick,
        unpacking: asyncio.Lock,
        partitions: int,
    ) -> None:
        self._router, self._page, self._pick, self._unpacking = router, page, pick, unpacking
        self._limit_bytes = query.limit_bytes
        self._count = self._share = query.count
        self._fetch_bytes = _FILTERED_FETCH_BYTES
        if not query.is_filtered:
            self._count = query.most if page.newest_first else query.count
            self._share = -(-self._count // max(partitions, 1))
            self._fetch_bytes = _FETCH_BYTES
        self._next: dict[TopicPartition, int] = {}
        self._kept_bytes = 0  # of the shown messages; decoded Avro may exceed what was scanned
        self.errors: list[str] = []

    def next_offset(self, range_: PartitionRange) -> int:
        """Return the first offset of a range that isn't read yet."""
        return self._next.get(range_.tp, range_.start)

    async def read(self, ranges: Sequence[PartitionRange]) -> None:
        """Read the ranges, several at a time; one that can't be read doesn't end the others."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def read_one(range_: PartitionRange) -> None:
            async with limit:
                try:
                    if range_.start < (range_.stop or 0):
                        await self._read(range_)
                except KafkaError as error:
                    self.errors.append(error.text)

        async with asyncio.TaskGroup() as tasks:
            for range_ in ranges:
                tasks.create_task(read_one(range_))

    async def _read(self, range_: PartitionRange) -> None:
        source = read_bounded(
            self._router,
            [range_],
            fetch_bytes=self._fetch_bytes,
            limit_bytes=_MESSAGE_BYTES,
            max_decompressed_bytes=_UNPACKED_BYTES,
            unpacking=self._unpacking,
        )
        kept, page, turn_ends = 0, self._page, time.monotonic() + _TURN_S
        async with aclosing(source) as batches:
            async for tp, batch in batches:
                assert not isinstance(batch, Columns)
                for record in batch:
                    if kept == self._share or len(page.messages) >= self._count:
                        return
                    if max(page.scanned_bytes, self._kept_bytes) >= self._limit_bytes:
                        page.stopped = f"{self._limit_bytes // 10**6} MB were read"
                        return
                    page.scanned += 1
                    page.scanned_bytes += _size(record)
                    picked = await self._pick(record)
                    if picked is not None and len(page.messages) >= self._count:
                        return  # other partitions were read meanwhile
                    self._next[tp] = record.offset + 1
                    if picked is not None:
                        kept += 1
                        self._kept_bytes += _size(picked)
                        page.messages.append(picked)
                    if time.monotonic() >= turn_ends:
                        await asyncio.sleep(0)  # let other requests run
                        turn_ends = time.monotonic() + _TURN_S
        self._next[range_.tp] = range_.stop or 0


def _size(record: BytesRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _in_order(records: Sequence[BytesRecord], *, newest_first: bool) -> list[BytesRecord]:
    """Return records by their time if all have one, else by partition and offset."""
    have_times = all(record.timestamp is not None and record.timestamp >= 0 for record in records)
    return sorted(
        records,
        key=lambda record: (
            record.timestamp if have_times and record.timestamp is not None else 0,
            record.partition,
            record.offset,
        ),
        reverse=newest_first,
    )
