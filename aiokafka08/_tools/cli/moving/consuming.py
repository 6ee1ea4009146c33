"""`consume`: read records and write them to stdout in a format.

Invariants: only records go to stdout. The progress and the rate count a record only after it was
written, or left out by `only`. `read_group` has the invariant of the group's offsets. No topic is
created.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, cast

from aiokafka08._core.concurrency.rate import RateLimit
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.ranges.next_readable import find_readable
from aiokafka08._tools.cli.connection import consumer, range_router
from aiokafka08._tools.cli.moving.pipes import Output
from aiokafka08._tools.cli.moving.read_group import GroupReader
from aiokafka08._tools.cli.progress import Progress
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._tools.reading.positions import Bounds, PositionKind
from aiokafka08._tools.reading.read_plan import (
    Note,
    PartitionRange,
    plan_ranges,
    select_partitions,
    select_topics,
)
from aiokafka08._tools.reading.read_records import RecordBatchSource, follow, read_bounded
from aiokafka08._tools.records.formats import BrokerOf
from aiokafka08._tools.records.headers import with_headers
from aiokafka08._tools.records.selection import RecordFilter
from aiokafka08._tools.records.types import (
    BytesRecord,
    ColumnsEncoder,
    RecordEncoder,
    RecordFormatError,
)
from aiokafka08._wording import partition_text, some_of
from aiokafka08.consumer.config import AutoOffsetReset
from aiokafka08.errors import (
    CorruptRecordException,
    KafkaError,
    LeaderNotAvailableError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.message_format import way_out
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Connected, Event, MetadataFailed

# The default of fetch.max.bytes here.
_FETCH_MAX_BYTES: Final = 16 * 1024 * 1024

# A member of a group writes blocks of about this size. If the reader of stdout exits during a
# write, the group reads that block again.
_GROUP_BLOCK_BYTES: Final = 16 * 1024

# How long to wait for leaders, as during an election, before the other partitions are read.
_LEADER_S: Final = 5.0

# After this time without a response of any broker, a command that follows the logs says so.
_OUTAGE_S: Final = 3.0

# Failures that are further apart belong to different outages.
_QUIET_S: Final = 60.0

# Control characters that text doesn't have. ESC isn't one of them: coloured logs have it.
_NOT_TEXT: Final = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")

# ASCII control characters except tab and newline, and the C1 controls in UTF-8.
_ESCAPES: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeJob:
    """The records to read, and how."""

    # Names, or regular expressions that begin with "^".
    topics: Sequence[str]
    # Empty: all.
    partitions: Sequence[int] = ()
    start: Bounds = field(default_factory=Bounds)
    end: Bounds = field(default_factory=Bounds)
    # Stop at the ends that the logs have at the start.
    exit_at_end: bool = False
    # Stop after this many records that `only` accepts.
    count: int | None = None
    # Write only these records; the others count as read.
    only: RecordFilter | None = None
    # Read as a member of this group.
    group: str | None = None
    # Where the group begins in a partition without a committed offset.
    reset: AutoOffsetReset = "earliest"
    bytes_per_s: float | None = None
    # The options that write binary data as text, as errors name them.
    text_options: str = "--format jsonl, hex or base64"
    # The option that names ZooKeeper, as errors name it.
    zookeeper_option: str = "--zookeeper host:2181/chroot"
    # The options that begin a partition at an offset, as errors name them.
    start_options: Callable[[TopicPartition, int], str] = lambda tp, offset: (
        f"--from {tp.partition}={offset}"
    )


async def consume(
    settings: Settings,
    job: ConsumeJob,
    encoder_of: Callable[[BrokerOf], RecordEncoder],
    output: Output,
    *,
    note: Note,
    on_end: Callable[[TopicPartition, int], object] | None = None,
    on_commit: Callable[[int], object] = lambda count: None,
) -> None:
    """Read records and write them to stdout.

    Args:
        settings: the cluster.
        job: the records to read, and how.
        encoder_of: makes the encoder.
        output: stdout.
        note: shows a line on stderr.
        on_end: called when a partition has reached its stop, with that offset (default None).
        on_commit: called after each commit of the group with the number of records that it covers
            (default: nothing).

    Raises:
        UnknownTopicOrPartitionError: a topic or partition doesn't exist.
        OffsetOutOfRangeError: a log doesn't have an offset.
        RecordFormatError: a record can't be written in the format, or isn't text and stdout is a
            terminal.
        BrokenPipeError: the reader of stdout is gone.
        UnsupportedVersionError: brokers before 0.9 have no groups, and there is no ZooKeeper.
        LeaderNotAvailableError: with `exit_at_end`, partitions have no leader. The others were
            read before.
        KafkaError: a request failed.
    """
    async with range_router(settings) as router:
        await router.metadata.refresh()
        _check_group(settings, job, router)

        def leader_of(topic: str, partition: int) -> int:
            leader = router.metadata.snapshot.leader(TopicPartition(topic, partition))
            return -1 if leader is None else leader

        encoder = encoder_of(leader_of)
        ranges, leaderless = await _plan(job, router, note)
        total = sum((range_.stop or 0) - range_.start for range_ in ranges)
        known_end = all(range_.is_in_log for range_ in ranges)
        progress = Progress(
            "consumed", total if known_end else None, "messages", is_shown=not output.is_terminal
        )
        embedded = settings.headers == "embedded"
        copied = _Copied(
            job, encoder, output, progress, embedded_headers=embedded, on_commit=on_commit
        )
        stops = {range_.tp: range_.stop for range_ in ranges}
        outage = _OutageNote(note)
        with progress:
            try:
                async with _source(settings, job, router, ranges, copied, outage) as batches:
                    async for tp, batch in batches:
                        if len(batch):
                            outage.records_arrived()
                            await copied.add(tp, batch)
                            if copied.is_complete:
                                return
                        elif on_end is not None:
                            on_end(tp, stops.get(tp) or 0)
            except CorruptRecordException as error:
                raise await _with_way_out(error, router, job) from error
        if leaderless:
            raise LeaderNotAvailableError(
                f"no leader within {_LEADER_S:g} s for {some_of(leaderless)}: not read. The "
                "other partitions were read"
            )


async def _with_way_out(
    error: CorruptRecordException, router: Router, job: ConsumeJob
) -> CorruptRecordException:
    """Return the error with the options to read on after the damage, or why they are unknown."""
    tp, offset, readable = error.partition, error.offset, error.next_offset
    if tp is None or offset is None:
        return error
    damage = error.text.removesuffix(f"; {way_out(readable)}")
    if readable is None:
        try:
            readable = await find_readable(router, tp, offset)
        except KafkaError as failure:
            return CorruptRecordException(
                f"{error.text}. The search for the next offset that can be read failed: {failure}",
                partition=tp,
                offset=offset,
            )
    options = job.start_options(tp, readable)
    if readable == offset + 1:
        text = f"{damage}. Skip it with {options}"
    else:
        text = (
            f"{damage}. The next offset that can be read is {readable}: go on there with {options}"
        )
    return CorruptRecordException(text, partition=tp, offset=offset, next_offset=readable)


def _check_group(settings: Settings, job: ConsumeJob, router: Router) -> None:
    """Refuse a group in ZooKeeper without an address of ZooKeeper."""
    # The consumer's own error would name its arguments instead of options.
    version = router.version()
    if job.group is None or settings.zookeeper_connect is not None or version is None:
        return
    if version.line < BrokerLine.V0_9:
        from aiokafka08._core.zookeeper.session import how_to_install

        raise UnsupportedVersionError(
            f"group {job.group!r}: brokers before 0.9 don't coordinate groups. Give "
            f"{job.zookeeper_option}{how_to_install()} to join the group "
            "in ZooKeeper"
        )


async def _plan(
    job: ConsumeJob, router: Router, note: Note
) -> tuple[list[PartitionRange], list[TopicPartition]]:
    """Return the range of each partition, and the partitions that can't be read."""
    snapshot = router.metadata.snapshot
    topics = select_topics(job.topics, snapshot)
    tps = select_partitions(topics, job.partitions, snapshot)
    leaderless: list[TopicPartition] = []
    if job.exit_at_end and job.group is None:
        named = job.start.by_partition.keys() | job.end.by_partition.keys()
        leaderless = [tp for tp in await _leaderless(router, tps) if tp.partition not in named]
    ranges = await plan_ranges(
        router,
        [tp for tp in tps if tp not in leaderless],
        job.start,
        job.end,
        stop_at_end=job.exit_at_end,
        note=note,
    )
    return ranges, leaderless


async def _leaderless(router: Router, tps: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that still have no leader after `_LEADER_S`."""
    loop = asyncio.get_running_loop()
    deadline, backoff = loop.time() + _LEADER_S, router.config.backoff()
    while True:
        snapshot = router.metadata.snapshot
        leaderless = [tp for tp in tps if snapshot.leader(tp) is None]
        if not leaderless or loop.time() >= deadline:
            return leaderless
        await asyncio.sleep(backoff.next())
        await router.metadata.refresh()


@asynccontextmanager
async def _source(
    settings: Settings,
    job: ConsumeJob,
    router: Router,
    ranges: Sequence[PartitionRange],
    copied: _Copied,
    outage: _OutageNote,
) -> AsyncIterator[RecordBatchSource]:
    """Open the source of the ranges' records."""
    limits = {"fetch_max_bytes": _FETCH_MAX_BYTES, **settings.consumer}
    if job.group is None and all(range_.is_in_log for range_ in ranges):
        source = read_bounded(
            router,
            ranges,
            as_columns=copied.takes_columns,
            fetch_bytes=limits.get("max_partition_fetch_bytes"),
            limit_bytes=limits["fetch_max_bytes"],
        )
        async with aclosing(source) as batches:
            yield batches
        return
    options = {
        **limits,
        "auto_offset_reset": "none" if job.group is None else job.reset,
        "enable_auto_commit": False,
        "group_id": job.group,
        "allow_auto_create_topics": False,
        "on_event": outage.on_event,
    }
    async with consumer(settings, **options) as reading:
        if job.group is None:
            async with aclosing(follow(reading, ranges)) as batches:
                yield batches
            return
        topics = list(dict.fromkeys(range_.tp.topic for range_ in ranges))
        is_given = job.start.default is not None or bool(job.start.by_partition)
        member = GroupReader(
            reading,
            topics,
            ranges,
            copied.output,
            seek=is_given and not job.start.has(PositionKind.STORED),
            on_commit=copied.on_commit,
        )
        copied.on_written = member.written
        try:
            async with aclosing(member.read()) as batches:
                yield batches
        except BrokenPipeError:
            # `connection.run` notices the end of stdout's reader too, and cancels this task. Await
            # the commit nevertheless; a second cancellation, by Ctrl-C, ends it.
            commit = asyncio.create_task(member.commit(), name="consume last commit")
            try:
                await asyncio.shield(commit)
            except asyncio.CancelledError:
                await commit
            raise
        except BaseException:  # a signal, the end of stdout's reader during a read, or an error
            await member.commit()
            raise
        await member.commit(all_written=True)


class _OutageNote:
    """Writes a note, once per outage, that no broker responds.

    An outage begins with the client's first event of a failure; a new connection or a time without
    failures ends it.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._since: float | None = None
        self._last: float | None = None
        self._is_noted = False

    def on_event(self, event: Event) -> None:
        """Handle an event of the client."""
        if isinstance(event, Connected):
            self._since, self._is_noted = None, False
        elif isinstance(event, MetadataFailed):
            now = asyncio.get_running_loop().time()
            # Connections may outlast an outage. Then its end emits no `Connected`.
            if self._last is not None and now - self._last > _QUIET_S:
                self._since, self._is_noted = None, False
            self._last = now
            self._since = now if self._since is None else self._since
            if now - self._since >= _OUTAGE_S and not self._is_noted:
                self._is_noted = True
                self._note(
                    f"no broker has responded for {now - self._since:.0f} s. Reading goes on when "
                    f"one does. The last error: {event.reason}"
                )

    def records_arrived(self) -> None:
        """Put off the note. It isn't repeated, since these may have been received long before."""
        if not self._is_noted:
            self._since = None


class _Copied:
    """Writes records, and counts them.

    Attributes:
        output: the output for the records.
        on_written: called after each write with the partition, an offset, and the number of records
            written. All records that were read before that offset are written now.
        on_commit: see `consume`.
    """

    def __init__(
        self,
        job: ConsumeJob,
        encoder: RecordEncoder,
        output: Output,
        progress: Progress,
        *,
        embedded_headers: bool = False,
        on_commit: Callable[[int], object],
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.on_written: Callable[[TopicPartition, int, int], object] = lambda *written: None
        self.on_commit = on_commit
        self._left = job.count
        self._only = job.only
        # Records that are written in one piece are also committed in one.
        self._block_bytes = None if job.group is None else _GROUP_BLOCK_BYTES
        self._text_options = job.text_options
        self._encoder = encoder
        takes_columns = isinstance(encoder, ColumnsEncoder) and not embedded_headers
        self._columns_encoder = cast(ColumnsEncoder, encoder) if takes_columns else None
        self._embedded_headers = embedded_headers
        self.output = output
        self._progress = progress
        self._limit = None if job.bytes_per_s is None else RateLimit(job.bytes_per_s, now)

    @property
    def is_complete(self) -> bool:
        """Return True if the count of the job is reached."""
        return self._left == 0

    @property
    def takes_columns(self) -> bool:
        """Return True if `add` takes columns, which it writes as a whole."""
        needs_records = self._left is not None or self._limit is not None or self._only is not None
        needs_records = needs_records or self.output.is_terminal
        return self._columns_encoder is not None and not needs_records

    async def add(self, tp: TopicPartition, batch: Sequence[BytesRecord] | Columns) -> None:
        """Write the wanted records of one partition's batch, up to the count."""
        if isinstance(batch, Columns):
            assert self._columns_encoder is not None
            data = self._columns_encoder.encode_columns(batch)
            await self._write(tp, data, len(batch), batch.last_offset, None)
            return
        step = len(batch)
        blocks = [self._block_bytes, None if self._limit is None else self._limit.block_bytes]
        for block_bytes in blocks:
            if block_bytes is not None:
                size = _size(batch) // len(batch) + 1
                step = min(step, max(int(block_bytes // size), 1))
        at = 0
        while at < len(batch) and not self.is_complete:
            end = at + step
            if self._left is not None and self._only is None:
                end = min(end, at + self._left)
            records = batch[at:end]
            damaged: RecordFormatError | None = None
            if self._embedded_headers:
                # `with_headers` returns the records before a damaged one. The error of that one is
                # raised below, when they are written.
                records, damaged = with_headers(records)
            wanted: Sequence[BytesRecord] = records
            if self._only is not None:
                read, wanted = self._only.select(records, self._left)
                records = records[:read]
            if self._left is not None:
                self._left -= len(wanted)
            if records:
                data = self._encoder.encode(wanted) if wanted else b""
                if self.output.is_terminal:
                    self._check_keys(tp, wanted, data)
                after = at + len(records)
                following = batch[after].offset if after < len(batch) else None
                await self._write(tp, data, len(records), records[-1].offset, following)
                if self._limit is not None:
                    size = len(data) if self._only is None else _size(records)
                    delay_s = self._limit.delay_s(size, asyncio.get_running_loop().time())
                    await asyncio.sleep(delay_s)
            if damaged is not None and not self.is_complete:
                raise damaged
            at = end

    def _check_keys(self, tp: TopicPartition, records: Sequence[BytesRecord], data: bytes) -> None:
        """Refuse keys with escape sequences; only values may have colours."""
        for record in records:
            if record.key and _ESCAPES.search(record.key) and record.key in data:
                raise RecordFormatError(
                    f"{partition_text(tp)}, offset {record.offset}: the "
                    "key has control characters, and stdout is a terminal. Redirect stdout, or "
                    f"use {self._text_options}"
                )

    async def _write(
        self, tp: TopicPartition, data: bytes, count: int, last_offset: int, following: int | None
    ) -> None:
        """Write the encoded bytes of `count` records up to an offset.

        `following` is the offset of the next record that was read, if any.
        """
        if self.output.is_terminal and not _is_text(data):
            raise RecordFormatError(
                f"{partition_text(tp)}, {count} records up to offset "
                f"{last_offset}: not text, and stdout is a terminal. Redirect stdout, or use "
                f"{self._text_options}"
            )
        await self.output.write(data)
        # The next record may have the offset of the last one (docs/brokers.md 6.7). Then report
        # that offset, not the one after it, so that the next record isn't skipped.
        next_offset = last_offset + 1
        upto = next_offset if following is None else min(next_offset, following)
        self.on_written(tp, upto, count)
        self._progress.add(count)


def _size(records: Sequence[BytesRecord]) -> int:
    return sum(len(record.value or b"") for record in records)


def _is_text(data: bytes) -> bool:
    """Return True if the bytes are safe for a terminal."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return _NOT_TEXT.search(data) is None
