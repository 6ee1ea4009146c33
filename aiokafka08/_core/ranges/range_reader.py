"""Read one bounded range of one partition as raw message sets, with several requests in flight.

Invariant: the sets come in offset order. Of each set only the offsets from `fetch_offset` to before
`end_offset` count, so each message of the range comes exactly once. Even if offsets have no
messages, the read ends: after the last offset, when no message follows, or with an error. What is
fetched and not yielded yet is at most `in_flight` times `max_bytes`, or one message of up to
`limit_bytes`. Readers that share a `RangeFetches` fetch such large messages one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.retry import is_final
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.next_fetch import (
    FAILED_READ_TRIES,
    FetchFinding,
    FetchStep,
    NextFetch,
    fetch_error,
    may_hide_large,
    not_a_message,
    too_large,
    unreadable,
)
from aiokafka08._core.ranges.next_readable import find_readable
from aiokafka08._core.ranges.range_fetches import WAIT_S, RangeFetches
from aiokafka08._wording import partition_name, partition_text
from aiokafka08.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MessageSetReader,
    summarize_set,
)
from aiokafka08.protocol.requests.fetch import FetchedPartition
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition

DEFAULT_FETCH_BYTES: Final = 1048576
_MIN_FETCH_BYTES: Final = 65536
# Fetches are smaller after a timeout; this many must return data before their size is doubled
_FETCHES_OF_A_SIZE: Final = 8
MAX_IN_FLIGHT: Final = 3

# A broker that responds after this share of the wait counts as having waited to the end, since the
# two clocks may run at different speeds
_WAITED_SHARE: Final = 0.8

# How many recent sets are used to guess the next offsets
_SPANS: Final = 8

# How many wrong guesses are allowed at first. After that, one of _WRONG_GUESSES guesses may be
# wrong. If more are, the reader sends one request at a time.
_WRONG_GUESSES: Final = 4

# How many contradictory log ends in a row prove that no message follows (`_count_end`). One isn't
# enough, because the watermark may fall if a broker loses and regains the leadership in between.
_ENDS_OF_EMPTY: Final = 3

# Added to the estimated size of a gap
_SPARE_BYTES: Final = 16 * 1024


class RawSet(NamedTuple):
    """A message set as it was fetched.

    It may begin before `fetch_offset` (with a compressed set) and reach beyond the end of the
    range. So read it with `reader()`, or drop the messages before `fetch_offset` and those from
    `end_offset` on.
    """

    message_set: Buffer
    fetch_offset: int
    end_offset: int  # the offset after the set, but at most the end of the range

    def reader(
        self,
        tp: TopicPartition,
        *,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> MessageSetReader:
        """Return the set's reader, which leaves large compressed messages to the caller."""
        return MessageSetReader(
            tp,
            self.message_set,
            self.fetch_offset,
            check_crcs=True,
            leave_long=True,
            max_decompressed_bytes=max_decompressed_bytes,
            end_offset=self.end_offset,
        )


@dataclass(slots=True, eq=False)
class _RangeFetch:
    """A fetch request in flight, or with a response that wasn't used yet."""

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
    fetches: RangeFetches | None = None,
    max_bytes: int = DEFAULT_FETCH_BYTES,
    limit_bytes: int = 52428800,
    in_flight: int = MAX_IN_FLIGHT,
    timeout_s: float | None = None,
    missing_s: float | None = None,
) -> AsyncGenerator[RawSet, None]:
    """Yield the message sets of the offsets from `start` to before `end`, in order.

    Close the generator (`contextlib.aclosing`) if you don't iterate to its end.

    Args:
        router: a started router whose fetch lanes no consumer uses for long polls.
        topic_partition: the partition to read.
        start: the first offset.
        end: the offset after the last one; not above the high watermark.
        fetches: sends the fetches; by default, no other reader shares the requests.
        max_bytes: the usual size of a fetch. Each time that a request has timed out it is divided
            by 8, down to 64 KiB; after every eight smaller fetches with data it is doubled again.
        limit_bytes: the limit for the size of a message; a larger one is an error.
        in_flight: how many fetches may be in flight or waiting to be yielded.
        timeout_s: seconds without progress until the read fails; by default `request_timeout_ms`.
        missing_s: seconds for which metadata may lack the partition until it counts as deleted (a
            broker that has just started may not know it yet); by default as `timeout_s`.

    Raises:
        OffsetOutOfRangeError: the log doesn't have the range (any more); names what it has.
        UnknownTopicOrPartitionError: the partition was deleted.
        KafkaTimeoutError: no progress in time; names the last failure.
        RecordTooLargeError: a message is larger than `limit_bytes`.
        CorruptRecordException: the bytes at an offset are no message, or the leader fails to read
            there; names the next offset that can be read, if it was found.
        KafkaError: another error that a retry can't fix.
    """
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    reader = _RangeReader(
        router,
        fetches or RangeFetches(router),
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
        while (raw := await reader.next_set()) is not None:
            yield raw
    finally:
        reader.release_large()
        await reader.cancel_fetches()


class _RangeReader:
    def __init__(
        self,
        router: Router,
        shared: RangeFetches,
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
        self._shared = shared
        self._holds_large = False
        self._tp = topic_partition
        self._end = end
        self._usual_bytes = self._max_bytes = max_bytes
        self._smaller_fetches = 0  # how many had data since a request timed out
        self._limit_bytes = max(limit_bytes, max_bytes)
        self._in_flight = in_flight
        self._limit_s = limit_s
        self._missing_s = missing_s
        self._missing_since: float | None = None
        self._refusals = 0  # how often in a row the same offset was refused
        self._read_failures = 0  # how often in a row the same offset got the error -1
        self._next_fetch = NextFetch(start)
        self._ends = 0  # see _count_end
        self._ends_at: tuple[int, int | None] = (-1, None)
        self._node_id: int | None = None  # the broker of the last response that was applied
        self._fetches: deque[_RangeFetch] = deque()  # in the order of their offsets
        self._spans: deque[int] = deque(maxlen=_SPANS)  # how many offsets each recent set had
        self._guesses = self._wrong_guesses = 0

    async def next_set(self) -> RawSet | None:
        """Return the next set; None at the end of the range. Call this after using the last set."""
        self.release_large()
        limit_s = self._limit_s
        loop = asyncio.get_running_loop()
        backoff = self._router.config.backoff()
        deadline = loop.time() + limit_s
        while self._next_fetch.offset < self._end:
            offset = refused = self._next_fetch.offset
            try:
                fetch, (fetched, elapsed_s) = await self._next_response()
                self._raise_error_code(fetched, fetch.offset)
                finding = self._apply_response(fetch, fetched, elapsed_s)
                if finding.step is FetchStep.END:
                    # Fetch at the end of the range. If the broker refuses that offset, the log is
                    # shorter, and the messages are gone. Otherwise they exist, and the watermark
                    # lags for a moment after a failover (docs/brokers.md 9.5).
                    refused = self._end
                    probe = self._send(refused, 1)
                    at_end, _ = await self._response_to(probe)
                    self._raise_error_code(at_end, refused)
                    self._count_end(fetch, fetched, probe, at_end)
                    if self._ends == _ENDS_OF_EMPTY:
                        return None
            except KafkaError as error:
                self._ends = 0  # the leader may have changed in between
                if isinstance(error, OffsetOutOfRangeError):
                    await self._verify_bounds(offset, refused)
                elif is_final(error):
                    raise
                elif isinstance(error, UnknownError) and error.errno == UnknownError.errno:
                    await self._verify_readable(offset, error)
                if loop.time() >= deadline:
                    raise self._timed_out(error) from error
                self.release_large()
                await self.cancel_fetches()
                if isinstance(error, KafkaTimeoutError):
                    self._fetch_less()
                await self._refresh_leader(deadline)
                await asyncio.sleep(backoff.next())
                continue
            self._refusals = self._read_failures = 0
            if finding.step is FetchStep.DATA:
                end = min(self._next_fetch.offset, self._end)
                self._send_ahead()  # requests are in flight while the caller decodes this set
                assert finding.message_set is not None
                return RawSet(finding.message_set, offset, end)
            if finding.step is FetchStep.TOO_LARGE:
                raise too_large(self._tp, offset, finding.message_bytes, self._limit_bytes)
            if finding.step is FetchStep.CORRUPT:
                next_offset = finding.next_offset
                if next_offset is None:
                    next_offset = await self._find_readable(offset + 1)
                raise not_a_message(self._tp, offset, next_offset)
            if finding.step is FetchStep.END:
                if loop.time() >= deadline:
                    reason = KafkaError(f"the log ends at {fetched.high_watermark}")
                    raise self._timed_out(reason)
                self.release_large()
                await asyncio.sleep(backoff.next())
            elif self._next_fetch.offset != offset:
                deadline = loop.time() + limit_s  # passing a hole is progress too
        if self._next_fetch.offset == self._end and self._next_fetch.lacks_dropped:
            raise not_a_message(self._tp, self._end, self._end)
        return None

    async def cancel_fetches(self) -> None:
        """Cancel all fetches, and wait until they have ended."""
        tasks = [fetch.task for fetch in self._fetches]
        self._fetches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def release_large(self) -> None:
        if self._holds_large:
            self._shared.large.release()
            self._holds_large = False

    # --- fetches and responses --------------------------------------------------------------------

    async def _next_response(self) -> tuple[_RangeFetch, tuple[FetchedPartition, float]]:
        """Return the fetch to apply next, with its response."""
        wanted, fetches = self._next_fetch, self._fetches
        while fetches and fetches[0].offset < wanted.offset:
            fetch = fetches.popleft()
            fetched, elapsed_s = await self._response_to(fetch)
            next_offset = summarize_set(fetched.message_set).next_offset
            if next_offset is not None and next_offset > wanted.offset:
                # The response to this earlier offset reaches beyond the wanted one.
                return fetch, (fetched, elapsed_s)
            self._wrong_guesses += 1
        size = max(self._max_bytes, wanted.size_bytes)
        if size > self._max_bytes:
            if not self._holds_large:
                await self._shared.large.acquire()
                self._holds_large = True
            size = min(max(size, DEFAULT_FETCH_BYTES), self._limit_bytes)
        if wanted.alone:
            # Let the other fetches end first. A broker responds to one request at a time, so it
            # would seem to wait for data while it responds to the others.
            await asyncio.gather(*(fetch.task for fetch in fetches), return_exceptions=True)
            fetches.clear()
        elif fetches and fetches[0].offset == wanted.offset and fetches[0].max_bytes < size:
            fetches.popleft().task.cancel()
        elif fetches and fetches[0].offset > wanted.offset:
            self._wrong_guesses += 1
            gap_bytes = size * (fetches[0].offset - wanted.offset) // min(self._spans)
            size = max(wanted.size_bytes, min(size, gap_bytes + _SPARE_BYTES))
        if not fetches or fetches[0].offset != wanted.offset:
            fetches.appendleft(self._send(wanted.offset, size, alone=wanted.alone))
        self._send_ahead()
        fetch = fetches.popleft()
        return fetch, await self._response_to(fetch)

    def _raise_error_code(self, fetched: FetchedPartition, offset: int) -> None:
        if fetched.error_code:
            error = fetch_error(self._tp, offset, fetched.error_code)
            raise self._router.config.named(error)

    def _apply_response(
        self, fetch: _RangeFetch, fetched: FetchedPartition, elapsed_s: float
    ) -> FetchFinding:
        if fetch.node_id is None or fetch.node_id != self._node_id:
            self._next_fetch.reset_search()
        self._node_id = fetch.node_id
        alone = self._next_fetch.alone
        finding = self._next_fetch.apply_response(
            fetched.message_set,
            fetched.high_watermark,
            requested_bytes=fetch.max_bytes,
            limit_bytes=self._limit_bytes,
            waited=elapsed_s >= WAIT_S * _WAITED_SHARE if alone else None,
            hides_large=may_hide_large(self._router.version(fetch.node_id)),
        )
        if finding.step is FetchStep.DATA and fetch.max_bytes == self._max_bytes:
            # Count the span even if the guess was too low. Otherwise one short set, such as at the
            # end of a segment, would stay in `_spans`, and make all later guesses too low.
            self._spans.append(self._next_fetch.offset - fetch.offset)
            if self._max_bytes < self._usual_bytes:
                self._fetch_more()
        return finding

    def _send_ahead(self) -> None:
        """Send fetches at the offsets where the following sets are guessed to begin."""
        wanted = self._next_fetch
        if not self._spans or wanted.alone or wanted.size_bytes > self._max_bytes:
            return
        if self._wrong_guesses > _WRONG_GUESSES + self._guesses // _WRONG_GUESSES:
            return
        # The offset after a set is known only when the set is there. A guess that is too low costs
        # a few bytes that are fetched twice; one that is too high costs a request for the gap.
        span = min(self._spans)
        while len(self._fetches) < self._in_flight:
            offset = self._fetches[-1].offset + span if self._fetches else wanted.offset
            if offset >= self._end:
                return
            self._guesses += bool(self._fetches)
            self._fetches.append(self._send(offset, self._max_bytes))

    def _send(self, offset: int, max_bytes: int, *, alone: bool = False) -> _RangeFetch:
        leader = self._router.metadata.snapshot.leader(self._tp)
        work = self._fetch(leader, offset, max_bytes, alone)
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _RangeFetch(offset, max_bytes, task, leader)

    async def _response_to(self, fetch: _RangeFetch) -> tuple[FetchedPartition, float]:
        """Wait for a response; if this is cancelled, cancel the fetch."""
        try:
            return await fetch.task
        except asyncio.CancelledError:
            fetch.task.cancel()
            await asyncio.gather(fetch.task, return_exceptions=True)
            raise

    async def _fetch(
        self, leader: int | None, offset: int, max_bytes: int, alone: bool
    ) -> tuple[FetchedPartition, float]:
        """Send one fetch; return the partition's response, and the seconds that it took."""
        if leader is None:
            # Wait for a part of `_missing_s` only, because the caller retries until it is over.
            await self._router.metadata.wait_for_topic(
                self._tp.topic, timeout_s=self._missing_s / 4
            )
            leader = self._router.metadata.snapshot.leader(self._tp)
        if leader is None:
            raise LeaderNotAvailableError(f"{partition_name(self._tp)} has no known leader")
        # A leader that hangs must leave time to find and use the next one.
        attempt_s = min(self._router.config.request_timeout_s, self._limit_s / 2)
        return await self._shared.fetch(
            leader, self._tp, offset, max_bytes, timeout_s=attempt_s, alone=alone
        )

    def _count_end(
        self,
        fetch: _RangeFetch,
        fetched: FetchedPartition,
        probe: _RangeFetch,
        at_end: FetchedPartition,
    ) -> None:
        """Count contradictions in a row: a watermark at `fetch.offset`, then not below `_end`."""
        # A leader's watermark never falls. So if a fetch finds it at the offset again, although a
        # probe found it at or after the end of the range, no message follows. A gateway responds
        # like this if only control batches follow, because an old client can't get past these.
        place = (fetch.offset, fetch.node_id)
        is_contradiction = (
            fetched.high_watermark == fetch.offset
            and at_end.high_watermark >= self._end
            and fetch.node_id == probe.node_id
        )
        if not is_contradiction:
            self._ends = 0
        else:
            self._ends = self._ends + 1 if self._ends_at == place else 1
        self._ends_at = place

    # --- failures ---------------------------------------------------------------------------------

    def _fetch_less(self) -> None:
        """Make fetches smaller, in case the link is too slow for their size."""
        self._max_bytes = max(self._max_bytes // 8, min(self._max_bytes, _MIN_FETCH_BYTES))
        self._smaller_fetches = 0
        self._spans.clear()

    def _fetch_more(self) -> None:
        """Double the reduced size after some fetches of it, since perhaps only a broker hung."""
        self._smaller_fetches += 1
        if self._smaller_fetches == _FETCHES_OF_A_SIZE:
            self._smaller_fetches = 0
            self._max_bytes = min(2 * self._max_bytes, self._usual_bytes)
            self._spans.clear()

    async def _refresh_leader(self, deadline: float) -> None:
        """Refresh the metadata; raise if the partition has been missing for `missing_s`."""
        try:
            left_s = deadline - asyncio.get_running_loop().time()
            snapshot = await self._router.metadata.refresh(left_s)
        except (KafkaError, TimeoutError):
            self._missing_since = None
            return  # the refresh logs it; the next request shows what is wrong
        now = asyncio.get_running_loop().time()
        if self._tp.partition in snapshot.partitions(self._tp.topic):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since >= self._missing_s:
            raise UnknownTopicOrPartitionError(
                f"{partition_text(self._tp)}: no longer in the cluster; the range from "
                f"{self._next_fetch.offset} to {self._end} wasn't read"
            )

    async def _verify_bounds(self, offset: int, refused: int) -> None:
        """Raise if the log doesn't have `offset`, or ends before `refused`."""
        limit_s, tp = self._limit_s, self._tp
        first = (await list_offsets(self._router, {tp: EARLIEST}, timeout_s=limit_s))[tp]
        last = (await list_offsets(self._router, {tp: LATEST}, timeout_s=limit_s))[tp]
        # A refusal alone proves nothing (KAFKA-2477); the bounds of the log do. A log end before
        # `refused` must be seen twice, because the first one may come from a former leader.
        self._refusals += 1
        if not first or not last:
            return
        if offset < first[0] or (last[0] < refused and self._refusals > 1):
            raise OffsetOutOfRangeError(
                f"{partition_text(self._tp)}: offset {offset} of the range up to "
                f"{self._end} isn't there any more; the log goes from {first[0]} to {last[0]}"
            )

    async def _verify_readable(self, offset: int, error: KafkaError) -> None:
        """Raise if an offset that the log has can't be read; to be called after each error -1."""
        is_damaged = self._next_fetch.meets_damage
        self._read_failures += 1
        if not is_damaged:
            if self._read_failures < FAILED_READ_TRIES:
                return
            last = await list_offsets(self._router, {self._tp: LATEST}, timeout_s=self._limit_s)
            if last[self._tp] and last[self._tp][0] <= offset:
                return  # a new leader, whose watermark isn't there yet (docs/brokers.md 7.10)
        next_offset = await self._find_readable(offset + is_damaged)
        if next_offset == offset:
            return  # the broker can read the offset again
        raise unreadable(
            self._tp, offset, is_damaged=is_damaged, next_offset=next_offset
        ) from error

    async def _find_readable(self, offset: int) -> int | None:
        """Return the first offset from here on that can be read; None if the search fails."""
        try:
            return await find_readable(self._router, self._tp, offset)
        except KafkaError:
            return None

    def _timed_out(self, reason: KafkaError) -> KafkaError:
        if isinstance(reason, OffsetOutOfRangeError):
            return reason
        return KafkaTimeoutError(
            f"{partition_text(self._tp)}: no progress at offset "
            f"{self._next_fetch.offset} of the range up to {self._end} within "
            f"{self._limit_s * 1000:.0f} ms; last error: {reason.nested_text(KafkaTimeoutError)}"
        )
