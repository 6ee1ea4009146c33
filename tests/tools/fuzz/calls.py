"""A log with mutated bytes, read by each call of a client: no byte is lost, and each call ends.

An example is the log of a partition of an embedded broker in a simulation. A consumer reads it by
each of its calls, and a range reader as the command line, Spark and the bridge do. After an error
they go on at its `next_offset`. `tests.protocol.accounting` has the rule; time is virtual, so that
a call that waits for ever takes none.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_router import router_config
from aiokafka08._tools.reading.positions import OffsetSpan
from aiokafka08._tools.reading.read_plan import PartitionRange
from aiokafka08._tools.reading.read_records import read_bounded
from aiokafka08.errors import CorruptRecordException, KafkaError, RecordTooLargeError
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, Columns
from aiokafka08.structs import LAST_OFFSET, TopicPartition
from aiokafka08.telemetry import Telemetry
from aiokafka08.testing.simulation import World, simulate
from tests.protocol.accounting import Raised, account, ends_in_damage, falls, whole_entries
from tests.protocol.hostile import Endured
from tests.tools.fuzz import worlds

EXAMPLES_OF_A_WORLD = 200
_LINES = ("0.8.2", "0.9")
"""Lines of brokers that return a log's bytes unchanged."""
_PATIENCE_S = 300.0
"""Virtual seconds after which a call counts as one that never ends."""
_FETCH_WAIT_S = 30.0
"""Virtual seconds that a fetch waits at the end of a log."""
_THREAD_S = 1.0
"""Virtual seconds until the simulated threads, which have opened wrappers, have ended."""
_MOST_ERRORS = 30
_FETCH_BYTES = 4 << 20
"""More than an example has: what stands behind the end of a fetch, with an offset from before it,
can't be fetched, and so doesn't count."""
_OPTIONS: dict[str, Any] = {"request_timeout_ms": 60_000, "retry_backoff_ms": 20}


class NeverEnds(AssertionError):
    """A call has returned neither the rest of a log nor an error."""


class _Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


Take = Callable[[], Awaitable[list[Any]]]


class Logs:
    """A world whose topic has a partition for each example."""

    def __init__(self, number: int) -> None:
        self._stack = ExitStack()
        self._world: World = self._stack.enter_context(
            simulate(
                number,
                brokers=1,
                version=_LINES[number % len(_LINES)],
                topics={"t": EXAMPLES_OF_A_WORLD},
            )
        )
        self.read = 0

    def read_log(self, data: bytes, seen: Endured) -> None:
        """Store an example, read it by each call, and account for its bytes."""
        tp = TopicPartition("t", self.read)
        self.read += 1
        last = max((entry.offset for entry in whole_entries(data)), default=-1)
        end = min(max(last, -1) + 1 + ends_in_damage(data), LAST_OFFSET)
        self._world.cluster.append_raw(*tp, data, next_offset=end)
        self._world.run(self._read_by_each_call, tp, data, end, seen)

    async def _read_by_each_call(
        self, tp: TopicPartition, data: bytes, end: int, seen: Endured
    ) -> None:
        servers = self._world.cluster.bootstrap_servers
        consumer = AIOKafkaConsumer[bytes, bytes](
            bootstrap_servers=servers,
            fetch_max_wait_ms=int(1000 * _FETCH_WAIT_S),
            max_partition_fetch_bytes=_FETCH_BYTES,
            auto_offset_reset="none",
            **_OPTIONS,
        )
        consumer.assign([tp])
        async with consumer, _routed(servers) as router:
            for name, take in _takes(consumer):
                read_from = partial(_take_all, consumer, tp, take, falls(data))
                await _check(name, read_from, tp, data, end, seen)
            for name, as_columns in (("range", False), ("range as columns", True)):
                read_from = partial(_read_range, router, tp, as_columns)
                await _check(name, read_from, tp, data, end, seen)
        await asyncio.sleep(_THREAD_S)

    def close(self) -> None:
        """End the world."""
        self._stack.close()


def _takes(consumer: AIOKafkaConsumer[bytes, bytes]) -> list[tuple[str, Take]]:
    async def getone() -> list[Any]:
        return [await consumer.getone()]

    async def iterate() -> list[Any]:
        return [await anext(aiter(consumer))]

    async def getmany(max_records: int | None) -> list[Any]:
        got = await consumer.getmany(timeout_ms=1000, max_records=max_records)
        return [record for records in got.values() for record in records]

    async def arrow(max_records: int | None) -> list[Any]:
        batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=max_records)
        columns = [batch[name].to_pylist() for name in _Row._fields]
        return list(map(_Row, *columns))

    return [
        ("getone", getone),
        ("iteration", iterate),
        *((f"getmany of {count}", partial(getmany, count)) for count in (None, 1, 2)),
        *((f"getmany_arrow of {count}", partial(arrow, count)) for count in (None, 1)),
    ]


async def _check(
    name: str,
    read_from: Callable[[int, int, list[Any]], Awaitable[None]],
    tp: TopicPartition,
    data: bytes,
    end: int,
    seen: Endured,
) -> None:
    """Read by one call to the end of the log; `read_from` appends what it returns to a list."""
    records: list[Any] = []
    raised: list[Raised] = []
    start: int | None = 0
    try:
        while start is not None and start < end and len(raised) < _MOST_ERRORS:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await read_from(start, end, records)
                break
            except KafkaError as error:
                raised.append(_raised(error, start, end))
                start = error.next_offset if isinstance(error, CorruptRecordException) else None
    except TimeoutError:
        raise NeverEnds(f"{name}, from {start} on, after {records} and {raised}") from None
    seen.records += len(records)
    seen.corrupt += len(raised)
    if len(raised) < _MOST_ERRORS:
        try:
            account(data, records, raised, 0, limit=DEFAULT_MAX_DECOMPRESSED_BYTES)
        except AssertionError as error:
            error.add_note(f"{name}: {records}, {raised}")
            raise


def _raised(error: KafkaError, start: int, end: int) -> Raised:
    """Return what an error covers; the whole rest, if it names nothing that can be read."""
    if isinstance(error, CorruptRecordException) and error.offset is not None:
        following = error.next_offset
        return Raised.at(error.offset, None if following == end else following)
    return Raised.at(error.args[2] if isinstance(error, RecordTooLargeError) else start, None)


async def _take_all(
    consumer: AIOKafkaConsumer[bytes, bytes],
    tp: TopicPartition,
    take: Take,
    to_error: bool,
    start: int,
    end: int,
    records: list[Any],
) -> None:
    consumer.seek(tp, start)
    while await consumer.position(tp) < end:
        records += await take()
    if to_error:  # that of a message whose offset fell stands behind the end
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * _FETCH_WAIT_S):
                while True:
                    records += await take()


async def _read_range(
    router: Router, tp: TopicPartition, as_columns: bool, start: int, end: int, records: list[Any]
) -> None:
    one = PartitionRange(tp, start, end, OffsetSpan(0, end))
    read = read_bounded(router, [one], as_columns=as_columns, fetch_bytes=_FETCH_BYTES)
    async with aclosing(read) as batches:
        async for _, batch in batches:
            records += _rows(batch) if isinstance(batch, Columns) else batch


def _rows(columns: Columns) -> list[_Row]:
    count = len(columns)
    offsets = memoryview(columns.column_offset().data).cast("B").cast("q").tolist()
    fields = [
        pa.BinaryArray.from_buffers(
            pa.binary(), count, [None if one is None else pa.py_buffer(one) for one in column[:3]]
        ).to_pylist()
        for column in (columns.column_key(), columns.column_value())
    ]
    return list(map(_Row, offsets, *fields))


@asynccontextmanager
async def _routed(servers: str) -> AsyncIterator[Router]:
    router = Router(
        router_config(
            {
                "bootstrap_servers": servers,
                "client_id": "ranges",
                "metadata_max_age_ms": 60_000,
                "connections_max_idle_ms": 60_000,
                **_OPTIONS,
            }
        ),
        Telemetry(),
    )
    await router.start()
    try:
        await router.metadata.wait_for_topic("t", timeout_s=5)
        yield router
    finally:
        await router.stop()


_numbers = itertools.count()
_current: list[Logs] = []


def read_log(data: bytes, seen: Endured) -> None:
    """Read an example by each call in the current world."""
    if not _current:
        worlds.begin(finish)
        _current.append(Logs(next(_numbers)))
    logs = _current[0]
    try:
        logs.read_log(data, seen)
    except BaseException:
        _current.clear()
        logs.close()
        raise
    if logs.read >= EXAMPLES_OF_A_WORLD:
        finish()


def finish() -> None:
    """End the current world, if there is one."""
    while _current:
        _current.pop().close()
