"""Find where a log can be read again after damage that hides the next message.

Without intact size fields neither a client nor a broker sees where the next message begins. To find
a later offset, a broker reads from the last index entry before it, and fails if the damage is in
between (docs/brokers.md 7.19).

Invariant: the number of fetches grows with the logarithm of the number of unreadable offsets.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.quota import fetch_within_quota
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.ranges.next_fetch import READ_TRIES, fetch_error
from aiokafka08._wording import partition_name
from aiokafka08.errors import (
    CorruptRecordException,
    LeaderNotAvailableError,
    UnknownError,
)
from aiokafka08.protocol.api import Topic, by_partition, left_out
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MessageSetReader,
    summarize_set,
)
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import LATEST
from aiokafka08.structs import TopicPartition

_FETCH_BYTES: Final = 64 * 1024


async def find_readable(router: Router, tp: TopicPartition, offset: int) -> int:
    """Return the first offset from which the leader returns a message, or the end of the log.

    If several places are damaged, the search may miss the messages between them, and return the
    first such offset after a later place. `offset` is the first offset to try. During the search,
    nothing else may use the router's lane for urgent fetches.

    Raises KafkaError if the leader doesn't respond, or responds with an error other than
    UnknownError, which brokers return for damage.
    """
    end = (await list_offsets(router, {tp: LATEST}))[tp][0]
    unreadable, found, step = offset - 1, min(offset, end), 1
    while not await _is_readable(router, tp, found, end):
        unreadable, found = found, min(found + step, end)
        step *= 2
    # Bisect between the last offset that failed and the first that succeeded.
    while found - unreadable > 1:
        middle = (unreadable + found) // 2
        if await _is_readable(router, tp, middle, end):
            found = middle
        else:
            unreadable = middle
    if unreadable >= offset and await _is_readable(router, tp, unreadable, end):
        # The broker has recovered during the search, so what it failed to read may be sound.
        return offset if await _is_readable(router, tp, offset, end) else unreadable
    return found


async def _is_readable(router: Router, tp: TopicPartition, offset: int, end: int) -> bool:
    """Return whether a fetch brings a message, perhaps a cut-off one; True from `end` on."""
    if offset >= end:
        return True
    backoff = router.config.backoff()
    for tries_left in reversed(range(READ_TRIES)):
        fetched = await _fetch(router, tp, offset)
        if not fetched.error_code:
            break
        error = fetch_error(tp, offset, fetched.error_code)
        if not isinstance(error, UnknownError):
            raise router.config.named(error)
        if not tries_left:
            return False
        await asyncio.sleep(backoff.next())
    reader = MessageSetReader(
        tp, fetched.message_set, offset, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES
    )
    try:
        if records := reader.read(1):
            return records[0].offset < end
    except CorruptRecordException:
        return False
    summary = summarize_set(fetched.message_set)
    # Only a cut-off message was fetched. Its first 8 bytes are its offset.
    rest = bytes(fetched.message_set[summary.whole_bytes : summary.whole_bytes + 8])
    return summary.tail_size is not None and offset <= int.from_bytes(rest) < end


async def _fetch(router: Router, tp: TopicPartition, offset: int) -> FetchedPartition:
    leader = router.metadata.snapshot.leader(tp)
    if leader is None:
        raise LeaderNotAvailableError(f"{partition_name(tp)} has no known leader")
    wanted = FetchPartition(tp.partition, offset, _FETCH_BYTES)
    request = FetchRequest(-1, 0, 1, [Topic(tp.topic, [wanted])])
    response = await fetch_within_quota(
        router,
        request,
        node_id=leader,
        lane=Lane.URGENT_FETCH,
        timeout_s=router.config.request_timeout_s,
    )
    fetched = by_partition(response.topics).get(tp)
    if fetched is None:
        raise left_out(partition_name(tp), leader)
    return fetched
