"""Sample the partition logs for the doctor's rules: formats, 0.8 releases, searches, keys, damage.

Invariant: the sampler reads little: heads of messages, whole fetches only where searches are slow,
and one fetch from each of a few partitions of a compacted topic. Partitions that can't be read are
left out, because a broker or a partition that doesn't respond is a finding of its own.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from aiokafka08._core.net.list_offsets import list_offsets_of_leader
from aiokafka08._core.net.quota import fetch_within_quota
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.ranges.next_readable import find_readable
from aiokafka08._tools.doctor.compaction import KeyScan, is_compacted
from aiokafka08._tools.doctor.group_health import NextReadable
from aiokafka08._tools.doctor.message_sets import LONG_SEARCH_S, SearchCost, shows_formats
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08.errors import KafkaError, TopicAuthorizationFailedError, UnknownError, topic_code
from aiokafka08.protocol.api import by_partition, by_topic
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MessageSetReader,
    summarize_set,
)
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import LATEST
from aiokafka08.structs import TopicPartition

# Enough for the header of a message, which has its format.
_HEAD_BYTES: Final = 64
_MAGIC_AT: Final = 16
_FETCH_BYTES: Final = 1 << 20
# The maximum wait of fetches that show whether a broker responds at once.
_WAIT_MS: Final = 300
# The places in a log, from 0 to 1, where searches are measured.
_PLACES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
# A log is measured only if a whole MiB follows at least this many of these places.
_MIN_PLACES: Final = 3
# In a log of fewer messages no search takes long.
_MIN_MESSAGES: Final = 500
_EMPTY_REPEATS: Final = 5
_REPEATS: Final = 20
# How many slow responses in a row prove that a broker waits.
_PROOFS: Final = 3
_MANY_SEGMENTS: Final = 10_000
# How many partitions of a compacted topic are scanned.
_SCANNED_PARTITIONS: Final = 10
_MANY_MESSAGES: Final = 100_000
# The time of a fetch that failed.
_FAILED_S: Final = float("inf")


class LogSampler:
    """Read samples of a cluster's logs.

    Args:
        router: a started router that nothing else uses meanwhile, because fetches are timed.
        timeout_s: seconds for each request.
        search_clock: returns seconds, to measure searches.

    Attributes:
        refused_topics: Topics whose messages a broker has refused to this client.
    """

    def __init__(self, router: Router, timeout_s: float, search_clock: Callable[[], float]) -> None:
        self._router = router
        self._timeout_s = timeout_s
        self._search_clock = search_clock
        self.refused_topics: set[str] = set()

    # --- formats ----------------------------------------------------------------------------------

    async def formats(
        self, cluster: ClusterSample, releases: Mapping[int, str]
    ) -> dict[str, set[int]]:
        """Return per topic the formats of the first and the last message of each partition.

        Partitions on brokers that convert messages for this client are left out.
        """
        first: dict[int, dict[TopicPartition, int]] = {}
        last: dict[int, dict[TopicPartition, int]] = {}
        for tp, leader, start, end in _readable(cluster):
            if shows_formats(releases.get(leader)):
                first.setdefault(leader, {})[tp] = start
                last.setdefault(leader, {})[tp] = end - 1
        formats: dict[str, set[int]] = {}
        for fetched in await asyncio.gather(
            *(
                self._fetch(leader, offsets, _HEAD_BYTES)
                for of_leader in (first, last)
                for leader, offsets in of_leader.items()
            )
        ):
            for tp, partition in fetched.items():
                # The bytes may be cut off, but the format is in the header.
                if len(partition.message_set) > _MAGIC_AT:
                    formats.setdefault(tp.topic, set()).add(partition.message_set[_MAGIC_AT])
        return formats

    # --- releases of 0.8 --------------------------------------------------------------------------

    async def tell_0_8_apart(
        self, cluster: ClusterSample, releases: Mapping[int, str]
    ) -> dict[int, str]:
        """Return the releases, with "0.8.2" and "0.8.0 or 0.8.1" in place of "0.8".

        Brokers that lead no message keep "0.8".
        """
        # Only 0.8.2 responds to a fetch of 0 bytes before the wait is over, if there is a message
        # at the offset (docs/brokers.md 7.2). Requests that show the exact line leave errors in the
        # log of 0.8.0.
        messages = {leader: (tp, start) for tp, leader, start, _ in _readable(cluster)}
        unknown = [
            node_id
            for node_id, release in releases.items()
            if release == str(BrokerLine.V0_8) and node_id in messages
        ]
        results = await asyncio.gather(
            *(self._is_0_8_2(node_id, *messages[node_id]) for node_id in unknown)
        )
        told = {True: str(BrokerLine.V0_8_2), False: "0.8.0 or 0.8.1"}
        return {
            **releases,
            **{
                node_id: told[is_0_8_2]
                for node_id, is_0_8_2 in zip(unknown, results, strict=True)
                if is_0_8_2 is not None
            },
        }

    async def _is_0_8_2(self, leader: int, tp: TopicPartition, offset: int) -> bool | None:
        """Return whether a broker of 0.8 is of 0.8.2; None if that isn't certain."""
        clock = asyncio.get_running_loop().time
        # One slow response may have other reasons.
        for _ in range(_PROOFS):
            began = clock()
            fetched = await self._fetch(leader, {tp: offset}, 0, wait_ms=_WAIT_MS)
            if tp not in fetched:
                return None
            if clock() - began < _WAIT_MS / 2000:
                return True
        return False

    # --- searches ---------------------------------------------------------------------------------

    async def searches(self, cluster: ClusterSample) -> dict[TopicPartition, SearchCost]:
        """Return the cost of the broker's search in the longest partition of each topic, where the
        search is long.
        """
        longest: dict[str, tuple[int, TopicPartition, int, int]] = {}
        for tp, leader, start, end in _readable(cluster):
            if end - start >= _MIN_MESSAGES:
                candidate = (end - start, tp, leader, start)
                longest[tp.topic] = max(candidate, longest.get(tp.topic, candidate))
        costs: dict[TopicPartition, SearchCost] = {}
        for length, tp, leader, start in longest.values():
            cost = await self._search_cost(
                leader, tp, [start + int(length * place) for place in _PLACES]
            )
            if cost is not None:
                costs[tp] = cost
        return costs

    async def _search_cost(
        self, leader: int, tp: TopicPartition, offsets: Collection[int]
    ) -> SearchCost | None:
        """Return the cost of fetches at these offsets; None unless the search is long and takes
        most of a fetch of 1 MiB.
        """
        # Use the shortest time of each fetch, which has no waits for the disk or other processes.
        empty_s = min([await self._time(leader, {}) for _ in range(_EMPTY_REPEATS)])
        search_s = dict.fromkeys(offsets, _FAILED_S)
        for _ in range(_REPEATS):
            empty_s = min(empty_s, await self._time(leader, {}))
            for offset in offsets:
                elapsed_s = await self._time(leader, {tp: offset})
                search_s[offset] = min(search_s[offset], elapsed_s)
            typical_s = statistics.median(search_s.values())
            # More repeats make times only shorter, so a short search stays short.
            if not LONG_SEARCH_S <= typical_s - empty_s < _FAILED_S:
                return None
        # Only offsets from which a whole MiB can be fetched count. Next to a smaller fetch any
        # search looks long, and a log that short is read in a few fetches.
        offsets = [offset for offset in offsets if await self._fills_fetch(leader, tp, offset)]
        if len(offsets) < _MIN_PLACES:
            return None
        typical_s = statistics.median(search_s[offset] for offset in offsets)
        fetch_s = dict.fromkeys(offsets, _FAILED_S)
        for _ in range(_REPEATS):
            for offset in offsets:
                elapsed_s = await self._time(leader, {tp: offset}, _FETCH_BYTES)
                fetch_s[offset] = min(fetch_s[offset], elapsed_s)
            cost = SearchCost(empty_s, typical_s, statistics.median(fetch_s.values()))
            if cost.is_mostly_search:
                return cost
        return None

    async def _fills_fetch(self, leader: int, tp: TopicPartition, offset: int) -> bool:
        """Return whether a fetch of 1 MiB at this offset returns as much."""
        fetched = await self._fetch(leader, {tp: offset}, _FETCH_BYTES)
        return tp in fetched and len(fetched[tp].message_set) >= _FETCH_BYTES

    async def _time(
        self, leader: int, offsets: dict[TopicPartition, int], size: int = _HEAD_BYTES
    ) -> float:
        """Return the seconds that a fetch takes; infinity if it fails."""
        began = self._search_clock()
        fetched = await self._fetch(leader, offsets, size)
        return self._search_clock() - began if fetched.keys() == offsets.keys() else _FAILED_S

    # --- keys -------------------------------------------------------------------------------------

    async def key_scans(self, cluster: ClusterSample) -> dict[TopicPartition, KeyScan]:
        """Read the keys at the beginning of compacted logs that have more than one segment."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, leader, _, _ in _readable(cluster):
            if is_compacted(cluster, tp.topic):
                by_leader.setdefault(leader, []).append(tp)
        scans: dict[TopicPartition, KeyScan] = {}
        scanned: dict[str, int] = {}
        for leader, tps in by_leader.items():
            for tp, (start, stop) in (await self._first_segments(leader, tps)).items():
                if scanned.get(tp.topic, 0) < _SCANNED_PARTITIONS:
                    scanned[tp.topic] = scanned.get(tp.topic, 0) + 1
                    fetched = (await self._fetch(leader, {tp: start}, _FETCH_BYTES)).get(tp)
                    if fetched is not None:
                        scans[tp] = _scan(tp, fetched, start, stop)
        return scans

    async def _first_segments(
        self, leader: int, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return start and end of the first segment, where it isn't the last one."""
        segments = await list_offsets_of_leader(
            self._router,
            leader,
            tps,
            dict.fromkeys(tps, LATEST),
            _MANY_SEGMENTS,
            timeout_s=self._timeout_s,
        )
        # The response has the end of the log and the starts of the segments, the newest first.
        return {
            tp: (offsets[-1], offsets[-2])
            for tp, offsets in segments.items()
            if not isinstance(offsets, KafkaError) and 3 <= len(offsets) < _MANY_SEGMENTS
        }

    # --- damage -----------------------------------------------------------------------------------

    async def damaged_positions(
        self, cluster: ClusterSample
    ) -> Mapping[TopicPartition, NextReadable]:
        """Return the next readable offset for each committed offset that damage hides, by
        partition.
        """
        # The broker may log an error for a fetch at damage, as for each fetch of the group.
        unread: dict[int, dict[TopicPartition, set[int]]] = {}
        for tp, leader, start, end in _readable(cluster):
            offsets = {group.committed.get(tp, end) for group in cluster.groups}
            if wanted := {offset for offset in offsets if start <= offset < end}:
                unread.setdefault(leader, {})[tp] = wanted
        damaged: dict[TopicPartition, dict[int, int]] = {}
        for leader, of_leader in unread.items():
            while of_leader:
                positions = {tp: wanted.pop() for tp, wanted in of_leader.items()}
                of_leader = {tp: wanted for tp, wanted in of_leader.items() if wanted}
                fetched = await self._fetch_all(leader, positions, _HEAD_BYTES)
                for tp, partition in fetched.items():
                    offset = positions[tp]
                    readable = await self._next_readable(tp, offset, partition)
                    if readable > offset:
                        damaged.setdefault(tp, {})[offset] = readable
        return damaged

    async def _next_readable(
        self, tp: TopicPartition, offset: int, fetched: FetchedPartition
    ) -> int:
        """Return the offset itself, unless damage is known to hide its message."""
        if not _hides_message(fetched):
            return offset
        try:
            return await find_readable(self._router, tp, offset)
        except KafkaError:
            return offset

    # --- fetches ----------------------------------------------------------------------------------

    async def _fetch(
        self, leader: int, offsets: dict[TopicPartition, int], size: int, *, wait_ms: int = 0
    ) -> dict[TopicPartition, FetchedPartition]:
        """Fetch from partitions of one leader; those that fail are left out."""
        fetched = await self._fetch_all(leader, offsets, size, wait_ms=wait_ms)
        return {tp: partition for tp, partition in fetched.items() if not partition.error_code}

    async def _fetch_all(
        self, leader: int, offsets: dict[TopicPartition, int], size: int, *, wait_ms: int = 0
    ) -> dict[TopicPartition, FetchedPartition]:
        """Fetch from partitions of one leader; nothing if the request fails."""
        request = FetchRequest(
            -1,
            wait_ms,
            1,
            by_topic(
                (tp.topic, FetchPartition(tp.partition, offset, size))
                for tp, offset in offsets.items()
            ),
        )
        try:
            response = await fetch_within_quota(
                self._router, request, node_id=leader, lane=Lane.FETCH, timeout_s=self._timeout_s
            )
        except KafkaError:
            return {}
        fetched = by_partition(response.topics)
        self.refused_topics.update(
            topic
            for (topic, _), partition in fetched.items()
            if topic_code(partition.error_code) == TopicAuthorizationFailedError.errno
        )
        return {tp: fetched[tp] for tp in offsets if tp in fetched}


def _hides_message(fetched: FetchedPartition) -> bool:
    """Return whether the broker or this client finds damaged bytes in place of a message."""
    if fetched.error_code:
        return fetched.error_code == UnknownError.errno
    head = summarize_set(fetched.message_set)
    return bool(len(fetched.message_set)) and not head.whole_bytes and head.tail_size is None


def _readable(cluster: ClusterSample) -> Iterator[tuple[TopicPartition, int, int, int]]:
    """Yield partition, leader, start and end of the logs that have offsets and can be read."""
    for tp, partition in cluster.partitions():
        if (
            partition.start is not None
            and partition.end is not None
            and partition.start < partition.end
        ):
            broker = None if partition.leader is None else cluster.brokers.get(partition.leader)
            if broker is not None and broker.error is None:
                yield tp, broker.node_id, partition.start, partition.end


def _scan(tp: TopicPartition, fetched: FetchedPartition, start: int, stop: int) -> KeyScan:
    """Count the messages of a set, below `stop`, whose keys are repeated."""
    reader = MessageSetReader(
        tp,
        fetched.message_set,
        start,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
        end_offset=stop,
    )
    try:
        records = reader.read(_MANY_MESSAGES)
    except KafkaError:
        return KeyScan(start, start, 0)
    keys = [record.key for record in records if record.key is not None]
    end = records[-1].offset + 1 if records else start
    return KeyScan(start, end, len(keys) - len(set(keys)))
