"""Where the copy of each partition goes on: read from the target, which is the only state.

The position of a partition is the committed offset of the bridge's group for the *target*
partition; its value is an offset of the *source*, committed in the transaction that has the
records. An idle group's offsets expire (`offsets.retention.minutes`, 7 days by default); then the
last run in the offsets topic, which is in the same transactions, gives the position; and without
that the last records of the target's partition do (`tail`).

Invariant: a partition of a bridge that has run before never begins anew by itself: if nothing tells
its position, and the target's partition isn't empty, it isn't copied, unless `topics.append` names
it. The same counts for what a session finds behind its start. A bridge that has never run doesn't
start then (`filled_topics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from aiokafka08 import environment
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.formats import RunsKey, decode_runs, decode_runs_key, encode_runs
from aiokafka08.bridge.offset_runs import PAGE_RUNS, OffsetMap, RunLog, RunRecord
from aiokafka08.bridge.target_cluster import TargetCluster, TargetRecord
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition

Origin = Literal["group", "offsets topic", "tail", "none", "lost", "anew"]


class StoredRuns:
    """The records of the offsets topic, by partition of the source.

    A record with `PAGE_RUNS` runs or more is a page. Pages are kept as they are stored, with 24
    bytes per run.

    Args:
        ends_only: keep only the last run of each page: enough to go on with the copy (default
            False).
    """

    def __init__(self, *, ends_only: bool = False) -> None:
        self._ends_only = ends_only
        self._open: dict[TopicPartition, dict[int, RunRecord]] = {}
        self._pages: dict[TopicPartition, dict[int, bytes]] = {}

    def add_all(self, records: Iterable[TargetRecord]) -> None:
        """Apply records of the topic, in the order of the log; raises as `add`.

        This takes 8 µs for a record, and 65 µs for a page: not in the event loop.
        """
        for record in records:
            self.add(record)

    def add(self, record: TargetRecord) -> None:
        """Apply a record of the topic, in the order of the log.

        Raises:
            KafkaProtocolError: it can't be read; a newer release may have written it.
        """
        if record.key is None:
            return
        key: RunsKey = decode_runs_key(record.key)
        tp = TopicPartition(key.topic, key.partition)
        for kept in (self._open, self._pages):
            kept.setdefault(tp, {}).pop(key.source, None)
        if record.value is None:
            return
        runs = decode_runs(record.value)
        if runs is None:
            raise KafkaProtocolError(
                f"offset {record.offset} of the offsets topic has an unknown version; run the "
                "release that wrote it, or a newer one"
            )
        if len(runs) < PAGE_RUNS:
            self._open[tp][key.source] = RunRecord(key.source, runs)
        else:
            page = encode_runs(runs[-1:]) if self._ends_only else bytes(record.value)
            self._pages[tp][key.source] = page

    def topics(self) -> set[str]:
        """Return the topics of the source that have had records."""
        return {tp.topic for tp in self._open}

    def pop(self, tp: TopicPartition) -> list[int]:
        """Forget a partition of the source; return the source offsets of its records' keys."""
        return [*self._pages.pop(tp, ()), *self._open.pop(tp, ())]

    def run_logs(self) -> dict[TopicPartition, RunLog]:
        """Return the log of each partition, to continue it."""
        return {tp: RunLog(records.values()) for tp, records in self._open.items()}

    def offset_map(self, tp: TopicPartition) -> OffsetMap:
        """Return all runs of a partition of the source.

        This takes a second or more for a million runs: not in the event loop.
        """
        pages = (decode_runs(page) for page in self._pages.get(tp, {}).values())
        single = (record.runs for record in self._open.get(tp, {}).values())
        return OffsetMap(run for runs in chain(pages, single) for run in runs or ())


async def read_stored_runs(
    config: BridgeConfig, target: TargetCluster, *, ends_only: bool = False
) -> StoredRuns:
    """Read the offsets topic.

    Args:
        config: the file of the bridge.
        target: the connection.
        ends_only: see `StoredRuns` (default False).

    Raises:
        TargetError: the target doesn't respond.
        KafkaProtocolError: a record can't be read.
    """
    stored = StoredRuns(ends_only=ends_only)
    async with aclosing(target.parts_of(config.offsets_topic)) as parts:
        async for records in parts:
            await environment.run_in_thread(stored.add_all, records)
    return stored


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The next source offset of a partition, None to begin; and where that is known from."""

    offset: int | None
    origin: Origin


def choose_position(
    committed: int | None,
    runs: OffsetMap,
    *,
    has_run: bool,
    is_empty: bool,
) -> FoundPosition:
    """Return where the copy of a partition goes on.

    Args:
        committed: the offset of the bridge's group.
        runs: what the offsets topic has of the partition.
        has_run: whether the bridge has been started before.
        is_empty: whether the target's partition has never had a committed record, or may have
            those of others.

    Returns:
        The position; with origin "lost" if the copy can't go on by itself.
    """
    if committed is not None:
        return FoundPosition(committed, "group")
    if runs.end_source is not None:
        return FoundPosition(runs.end_source, "offsets topic")
    return FoundPosition(None, "lost" if has_run and not is_empty else "none")


def lost_position(config: BridgeConfig, tp: TopicPartition) -> str:
    """Return what to tell about a partition whose position is lost."""
    return (
        f"topic {tp.topic!r}, partition {tp.partition}: the position of bridge {config.name!r} is "
        f"lost: group {config.position_group!r} has no offset (expired, or deleted), topic "
        f"{config.offsets_topic!r} has no runs, and the source doesn't have the target's last "
        "records exactly once. Commit the next source offset for that group and target "
        "partition, or delete the target topic to copy it again; topics.append copies all behind "
        "what is there"
    )


async def find_positions(
    config: BridgeConfig,
    target: TargetCluster,
    pairs: Mapping[TopicPartition, TopicPartition],
    stored: StoredRuns,
    *,
    has_run: bool,
) -> dict[TopicPartition, FoundPosition]:
    """Return where the copy of each partition goes on.

    Args:
        config: the file of the bridge.
        target: the connection; the sink has fenced older starts.
        pairs: partition of the source → partition of the target.
        stored: the offsets topic.
        has_run: whether the bridge has been started before, or its session has begun to copy.

    Raises:
        TargetError: the target doesn't respond.
    """
    committed = await target.committed(config.position_group, pairs.values())
    unknown = [tp for tp, there in pairs.items() if there not in committed]
    judged = [pairs[tp] for tp in unknown if not config.topics.appends(tp.topic)]
    written = await target.ever_had_records(judged) if has_run else {}
    return {
        tp: choose_position(
            committed.get(there),
            OffsetMap()
            if there in committed
            else await environment.run_in_thread(stored.offset_map, tp),
            has_run=has_run,
            is_empty=not written.get(there, False),
        )
        for tp, there in pairs.items()
    }


def owned_topics(committed: Iterable[TopicPartition], stored: StoredRuns) -> set[str]:
    """Return the topics into which the bridge has copied: names of the target and of the source."""
    return {tp.topic for tp in committed} | stored.topics()
