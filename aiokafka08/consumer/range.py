"""One bounded range of one partition, as raw message sets, several requests ahead.

For Spark, the demo and the command line, which decode in their own way. Law: the sets come in order
and cover the range once; a range always ends, with its last offset passed or with an error, also
where offsets are empty (`reach`, the same algorithm as the consumer's). Where a log ends before the
range does, it is asked for the range's end, which it refuses if it is shorter: then messages are
gone. Else they are only not committed yet (docs/brokers.md 9.5), and are waited for.

The offset behind a set is known only when the set is there. To have several requests under way all
the same, the next ones begin where sets as long as the shortest of the last ones would end. A guess
that was short costs a few bytes fetched twice, one too long a request for the gap; when guesses are
bad (large compressed sets, wildly varying messages) there is one request at a time. What is fetched
and not taken yet is at most `in_flight` times `max_bytes`, or one message of up to `limit_bytes`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka08.consumer.next_fetch import (
    Finding,
    NextFetch,
    Step,
    may_hide_large,
    not_a_message,
    too_large,
)
from aiokafka08.errors import (
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    broker_error,
)
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.retry import is_final
from aiokafka08.net.router import Lane, Router
from aiokafka08.protocol.api import (
    EARLIEST,
    LATEST,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    Topic,
)
from aiokafka08.protocol.message_set import survey
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition

WAIT_S = 0.5
"""How long a broker may wait for data; what is below the range's end is there at once."""

_WAITED_SHARE = 0.8
_REMEMBERED = 8
_BAD_GUESSES = 4
_SPARE_BYTES = 16 * 1024


class RawSet(NamedTuple):
    """A message set as it was fetched.

    It may begin before `fetch_offset` (with a compressed set) and reach beyond the range's end:
    read it with `MessageSetReader(…, fetch_offset)` and drop what is at or after `end_offset`.
    """

    message_set: Buffer
    fetch_offset: int
    end_offset: int
    """The offset behind it, the range's end at most."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A request under way."""

    offset: int
    max_bytes: int
    task: asyncio.Task[tuple[FetchedPartition, float]]
    node_id: int | None


async def read_range(
    router: Router,
    topic_partition: TopicPartition,
    start: int,
    end: int,
    *,
    max_bytes: int = 1048576,
    limit_bytes: int = 52428800,
    in_flight: int = 3,
    timeout_s: float | None = None,
    missing_s: float | None = None,
) -> AsyncGenerator[RawSet, None]:
    """Yield the message sets of the offsets from `start` to before `end`, in order.

    Close the generator (`contextlib.aclosing`) if it isn't walked to its end.

    Args:
        router: the way to the brokers, started; one without long polls of a consumer on it.
        topic_partition: which partition.
        start: the first offset.
        end: the offset behind the last one; not above the high watermark.
        max_bytes: what one request asks for.
        limit_bytes: up to which size a larger message is fetched.
        in_flight: how many requests may be under way or waiting to be taken.
        timeout_s: seconds without any progress until it gives up; `request_timeout_ms` by default.
        missing_s: for how long Metadata may be without the partition (a broker that just came up
            may not know of all) until it counts as deleted; as `timeout_s` by default.

    Raises:
        OffsetOutOfRangeError: the log doesn't have the range (any more); says what it has.
        UnknownTopicOrPartitionError: the partition was deleted.
        KafkaTimeoutError: no progress in time; says what was seen last.
        RecordTooLargeError: a message is larger than `limit_bytes`.
        CorruptRecordException: no message can be made out at some offset.
        KafkaError: others that trying again can't help.
    """
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    reader = _RangeReader(
        router,
        topic_partition,
        start,
        end,
        max_bytes,
        limit_bytes,
        in_flight,
        limit_s,
        limit_s if missing_s is None else missing_s,
    )
    try:
        while (raw := await reader.next()) is not None:
            yield raw
    finally:
        await reader.drop_flights()


class _RangeReader:
    def __init__(
        self,
        router: Router,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        max_bytes: int,
        limit_bytes: int,
        in_flight: int,
        limit_s: float,
        missing_s: float,
    ) -> None:
        self._router = router
        self._tp = topic_partition
        self._end = end
        self._max_bytes = max_bytes
        self._limit_bytes = max(limit_bytes, max_bytes)
        self._in_flight = in_flight
        self._limit_s = limit_s
        self._missing_s = missing_s
        self._missing_since: float | None = None
        self._refusals = 0  # of the same offset, one after the other
        self._reach = NextFetch(start)
        self._flights: deque[_Flight] = deque()  # by offset
        self._spans: deque[int] = deque(maxlen=_REMEMBERED)  # offsets per answer
        self._guesses = self._bad_guesses = 0

    async def next(self) -> RawSet | None:
        """The next set; None at the range's end."""
        limit_s = self._limit_s
        loop = asyncio.get_running_loop()
        config = self._router.config
        backoff = config.backoff()
        deadline = loop.time() + limit_s
        while self._reach.offset < self._end:
            offset = refused = self._reach.offset
            try:
                flight, (fetched, elapsed_s) = await self._answer()
                self._check(fetched, flight.offset)
                finding = self._take_in(flight, fetched, elapsed_s)
                if finding.step is Step.END:
                    # Not committed yet, or gone: a log that is shorter refuses the range's end.
                    refused = self._end
                    self._check((await self._result(self._launch(refused, 1)))[0], refused)
            except KafkaError as error:
                if isinstance(error, OffsetOutOfRangeError):
                    await self._check_bounds(offset, refused)
                elif is_final(error):
                    raise
                if loop.time() >= deadline:
                    raise self._too_late(error) from error
                await self.drop_flights()
                await self._find_leader(deadline)
                await asyncio.sleep(backoff.next())
                continue
            self._refusals = 0
            if finding.step is Step.DATA:
                end = min(self._reach.offset, self._end)
                self._fly()
                assert finding.message_set is not None
                return RawSet(finding.message_set, offset, end)
            if finding.step is Step.TOO_LARGE:
                raise too_large(self._tp, offset, finding.message_bytes, self._limit_bytes)
            if finding.step is Step.CORRUPT:
                raise not_a_message(self._tp, offset, finding.next_offset)
            if finding.step is Step.END:
                if loop.time() >= deadline:
                    reason = KafkaError(f"the log ends at {fetched.high_watermark}")
                    raise self._too_late(reason)
                await asyncio.sleep(backoff.next())
            elif self._reach.offset != offset:
                deadline = loop.time() + limit_s  # over a hole: that is progress too
        return None

    async def drop_flights(self) -> None:
        """Give up what is under way."""
        tasks = [flight.task for flight in self._flights]
        self._flights.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- inside -----------------------------------------------------------------------------------

    async def _answer(self) -> tuple[_Flight, tuple[FetchedPartition, float]]:
        """The next answer that begins at the offset, or before it and reaches beyond."""
        reach, flights = self._reach, self._flights
        while flights and flights[0].offset < reach.offset:
            flight = flights.popleft()
            fetched, elapsed_s = await self._result(flight)
            next_offset = survey(fetched.message_set).next_offset
            if next_offset is not None and next_offset > reach.offset:
                return flight, (fetched, elapsed_s)
            self._bad_guesses += 1
        size = max(self._max_bytes, reach.size_bytes)
        if reach.alone:  # answers under way would count as its wait
            await asyncio.gather(*(flight.task for flight in flights), return_exceptions=True)
            flights.clear()
        elif flights and flights[0].offset == reach.offset and flights[0].max_bytes < size:
            flights.popleft().task.cancel()
        elif flights and flights[0].offset > reach.offset:
            self._bad_guesses += 1
            gap = flights[0].offset - reach.offset
            size = max(reach.size_bytes, min(size, size * gap // min(self._spans) + _SPARE_BYTES))
        if not flights or flights[0].offset != reach.offset:
            flights.appendleft(self._launch(reach.offset, size))
        self._fly()
        flight = flights.popleft()
        return flight, await self._result(flight)

    def _check(self, fetched: FetchedPartition, offset: int) -> None:
        if fetched.error_code:
            topic, partition = self._tp
            where = f"fetch of {topic}/{partition} at offset {offset}"
            raise broker_error(fetched.error_code, where)

    def _take_in(self, flight: _Flight, fetched: FetchedPartition, elapsed_s: float) -> Finding:
        reach, offset = self._reach, self._reach.offset
        finding = reach.answered(
            fetched.message_set,
            fetched.high_watermark,
            asked_bytes=flight.max_bytes,
            limit_bytes=self._limit_bytes,
            waited=elapsed_s >= WAIT_S * _WAITED_SHARE if reach.alone else None,
            hides_large=may_hide_large(self._router.version(flight.node_id)),
        )
        if finding.step is Step.DATA and (flight.offset, flight.max_bytes) == (
            offset,
            self._max_bytes,
        ):
            self._spans.append(reach.offset - offset)
        return finding

    def _fly(self) -> None:
        """Send requests for where the following sets may begin."""
        if not self._spans or self._reach.alone or self._reach.size_bytes > self._max_bytes:
            return
        if self._bad_guesses > _BAD_GUESSES + self._guesses // _BAD_GUESSES:
            return
        span = min(self._spans)
        while len(self._flights) < self._in_flight:
            offset = self._flights[-1].offset + span if self._flights else self._reach.offset
            if offset >= self._end:
                return
            self._guesses += bool(self._flights)
            self._flights.append(self._launch(offset, self._max_bytes))

    def _launch(self, offset: int, max_bytes: int) -> _Flight:
        leader = self._router.metadata.snapshot.leader(self._tp)
        task = asyncio.get_running_loop().create_task(self._fetch(leader, offset, max_bytes))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _Flight(offset, max_bytes, task, leader)

    async def _result(self, flight: _Flight) -> tuple[FetchedPartition, float]:
        try:
            return await flight.task
        except asyncio.CancelledError:
            flight.task.cancel()
            await asyncio.gather(flight.task, return_exceptions=True)
            raise

    async def _fetch(
        self, leader: int | None, offset: int, max_bytes: int
    ) -> tuple[FetchedPartition, float]:
        topic, partition = self._tp
        # A leader that hangs leaves time to learn of the next one.
        patience_s = min(self._router.config.request_timeout_s, self._limit_s / 2)
        if leader is None:
            await self._router.metadata.wait_for_topic(topic, timeout_s=self._missing_s / 4)
            leader = self._router.metadata.snapshot.leader(self._tp)
        if leader is None:
            raise LeaderNotAvailableError(f"{topic}/{partition} has no leader that is known")
        loop = asyncio.get_running_loop()
        request = FetchRequest(
            -1,
            round(WAIT_S * 1000),
            1,
            [Topic(topic, [FetchPartition(partition, offset, max_bytes)])],
        )
        connection = await self._router.connection(leader, Lane.FETCH, timeout_s=patience_s)
        sent = loop.time()
        answer = await connection.request(request, timeout_s=WAIT_S + patience_s)
        for answered in answer.topics:
            for fetched in answered.partitions:
                if (answered.topic, fetched.partition) == self._tp:
                    return fetched, loop.time() - sent
        raise KafkaProtocolError(f"node {leader} left {topic}/{partition} out of its answer")

    async def _find_leader(self, deadline: float) -> None:
        """Learn who leads now, if that can be learnt in time: the old one may hang for as long."""
        try:
            async with asyncio.timeout_at(deadline):
                snapshot = await self._router.metadata.refresh()
        except (KafkaError, TimeoutError):
            self._missing_since = None
            return  # told by the refresh; the next request says what is wrong
        topic, partition = self._tp
        now = asyncio.get_running_loop().time()
        if partition in snapshot.partitions(topic):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since >= self._missing_s:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r}, partition {partition} isn't there any more; the range from "
                f"{self._reach.offset} to {self._end} wasn't read"
            )

    async def _check_bounds(self, offset: int, refused: int) -> None:
        """A refusal alone proves nothing (KAFKA-2477): the log's bounds do. Its end twice, with new
        metadata in between: it may have been another's than the leader's."""
        limit_s, tp = self._limit_s, self._tp
        first = (await list_offsets(self._router, {tp: EARLIEST}, timeout_s=limit_s))[tp]
        last = (await list_offsets(self._router, {tp: LATEST}, timeout_s=limit_s))[tp]
        self._refusals += 1
        if not first or not last:
            return
        if offset < first[0] or (last[0] < refused and self._refusals > 1):
            topic, partition = self._tp
            raise OffsetOutOfRangeError(
                f"topic {topic!r}, partition {partition}: offset {offset} of the range up to "
                f"{self._end} isn't there any more; the log goes from {first[0]} to {last[0]}"
            )

    def _too_late(self, reason: KafkaError) -> KafkaError:
        topic, partition = self._tp
        if isinstance(reason, OffsetOutOfRangeError):
            return reason
        return KafkaTimeoutError(
            f"topic {topic!r}, partition {partition}: no progress at offset {self._reach.offset} "
            f"of the range up to {self._end} within {self._limit_s * 1000:.0f} ms; last seen: "
            f"{reason}"
        )
