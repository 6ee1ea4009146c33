"""Find where the copy of each partition continues. All state is in the target.

The position of a partition is the committed offset of the bridge's group for the *target*
partition; its value is an offset of the *source*, committed in the transaction that has the
records.

Invariant: a partition of a bridge that has run before never begins anew by itself. Without a known
position it isn't copied unless the target's partition is empty or `topics.append` names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from aiokafka08 import environment
from aiokafka08._wording import partition_text, shorten
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.offset_runs import (
    PAGE_RUNS,
    OffsetMap,
    OffsetRun,
    RunLog,
    RunRecord,
    check_runs,
)
from aiokafka08.bridge.copy.run_formats import RunsKey, decode_runs, decode_runs_key, encode_runs
from aiokafka08.bridge.target.target_cluster import Target, TargetRecord
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition

# Where a position was found. The first three places are searched in this order, since the offset of
# the group may expire (`offsets.retention.minutes`). Then the last run in the offsets topic gives
# the position; without runs, the last records of the copy do (`tail`). "none": nothing was copied
# yet. "lost" and "elsewhere": see `choose_position`. "anew": the topic was created again.
Origin = Literal["group", "offsets topic", "tail", "none", "lost", "elsewhere", "anew"]


# With more damaged records than this, assume that the topic holds something else; stop reading.
MOST_DAMAGED: Final = 100


class StoredRuns:
    """The records of the offsets topic, by partition of the source: its runs (see `offset_runs`).

    Args:
        ends_only: keep only the last run of each page: enough to continue the copy (default False).

    Attributes:
        damaged: By key, why a record can't be read. A later record of the same key removes it.
    """

    def __init__(self, *, ends_only: bool = False) -> None:
        self.damaged: dict[bytes, str] = {}
        self._ends_only = ends_only
        # Records with fewer than `PAGE_RUNS` runs: `RunLog` appends to them.
        self._open: dict[TopicPartition, dict[int, RunRecord]] = {}
        # Full records, as they are stored: decoded runs would take much more memory.
        self._pages: dict[TopicPartition, dict[int, bytes]] = {}

    def add_all(self, records: Iterable[TargetRecord]) -> None:
        """Apply records of the topic, in the order of the log; raises as `add`.

        Run it in a thread: it takes long for many records.
        """
        for record in records:
            self.add(record)

    def add(self, record: TargetRecord) -> None:
        """Apply a record of the topic, in the order of the log.

        Raises:
            KafkaProtocolError: more than `MOST_DAMAGED` records can't be read. The text begins with
                the partition of the last one; the caller adds the topic.
        """
        if record.key is None:
            return
        self.damaged.pop(record.key, None)
        try:
            key, runs = _decoded(record.key, record.value)
        except (KafkaProtocolError, ValueError) as error:
            if record.value is not None:
                # Kept, not raised, since a later record of the key may replace it.
                self.damaged[record.key] = text = _damage(record, error)
                if len(self.damaged) > MOST_DAMAGED:
                    raise KafkaProtocolError(text) from None
            return
        tp = TopicPartition(key.topic, key.partition)
        # A record replaces the former one of its key, which may be in the other mapping.
        for kept in (self._open, self._pages):
            kept.setdefault(tp, {}).pop(key.source, None)
        if record.value is None:
            return
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

        Run it in a thread: it takes a second or more for a million runs.
        """
        pages = (decode_runs(page) for page in self._pages.get(tp, {}).values())
        single = (record.runs for record in self._open.get(tp, {}).values())
        return OffsetMap(run for runs in chain(pages, single) for run in runs or ())


async def read_stored_runs(
    config: BridgeConfig, target: Target, *, ends_only: bool = False
) -> StoredRuns:
    """Read the offsets topic; `ends_only` is as in `StoredRuns`.

    Raises:
        TargetError: the target doesn't respond.
        KafkaProtocolError: a record can't be read, or has impossible offsets, and no later record
            has its key. A newer release may have written it.
    """
    stored = StoredRuns(ends_only=ends_only)
    async with aclosing(target.parts_of(config.offsets_topic)) as parts:
        async for records in parts:
            try:
                await environment.run_in_thread(stored.add_all, records)
            except KafkaProtocolError as error:
                text = f"topic {config.offsets_topic!r}, {error.text}"
                raise KafkaProtocolError(text) from None
    for text in stored.damaged.values():
        raise KafkaProtocolError(f"topic {config.offsets_topic!r}, {text}")
    return stored


def _damage(record: TargetRecord, error: Exception) -> str:
    """Return why a record can't be read; the caller adds the topic."""
    text = error.text if isinstance(error, KafkaProtocolError) else str(error)
    return (
        f"partition {record.partition}, offset {record.offset}: exact offsets can't be read "
        f"({text}): key {shorten(record.key)}, value {shorten(record.value)}; "
        "expected version 0. Run the release that wrote them, or a newer one. If another program "
        "wrote them, write a null for this key, and keep it from this topic"
    )


def _decoded(key: bytes, value: bytes | None) -> tuple[RunsKey, tuple[OffsetRun, ...]]:
    """Return the key and the runs of a record; no runs if it removes its key.

    Raises:
        KafkaProtocolError: the bytes aren't a record of runs.
        ValueError: it has another version, or impossible offsets.
    """
    place = decode_runs_key(key)
    if value is None:
        return place, ()
    runs = decode_runs(value)
    if runs is None:
        raise ValueError("its version isn't known")
    if place.partition < 0:
        raise ValueError(f"{place}: expected a partition >= 0")
    check_runs(place.source, runs)
    return place, runs


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The next source offset of a partition, None if there is none, and where it was found."""

    offset: int | None
    origin: Origin


def choose_position(
    committed: int | None,
    runs: OffsetMap,
    *,
    is_empty: bool,
    log_end: int,
) -> FoundPosition:
    """Return where the copy of a partition continues.

    Args:
        committed: the offset of the bridge's group.
        runs: the runs of the partition in the offsets topic.
        is_empty: whether the target's partition has never had a committed record, or
            `topics.append` allows the copy to continue behind its records.
        log_end: where the log of the target's partition ends.

    Returns:
        The position. "lost" and "elsewhere" have none, and the copy must not begin anew.
    """
    if committed is not None:
        return FoundPosition(committed, "group")
    # The runs are of another target topic, for example if `topics.rename` had another rule, or
    # this topic has lost its end.
    if runs.end_target is not None and runs.end_target > log_end:
        return FoundPosition(None, "elsewhere")
    if runs.end_source is not None:
        return FoundPosition(runs.end_source, "offsets topic")
    return FoundPosition(None, "none" if is_empty else "lost")


def lost_position(config: BridgeConfig, tp: TopicPartition) -> str:
    """Return the text about a partition whose position is lost."""
    return (
        f"{partition_text(tp)}: the position of bridge {config.name!r} is "
        f"lost: group {config.position_group!r} has no offset (expired, or deleted), topic "
        f"{config.offsets_topic!r} has no runs, and the source doesn't have the target's last "
        "records exactly once. Commit the next source offset for that group and target "
        "partition, or delete the target topic to copy it again; topics.append copies all behind "
        "what is there"
    )


def copied_elsewhere(config: BridgeConfig, tp: TopicPartition, copy: TopicPartition) -> str:
    """Return the text about a partition whose runs lead beyond the end of its copy."""
    return (
        f"{partition_text(tp)}: it was copied to another topic than "
        f"{copy.topic!r}, or {copy.topic!r} has lost its end: the offsets stored in topic "
        f"{config.offsets_topic!r} lead behind that end. Give the same rules of topics.rename and "
        "--rename as before, or another name to a bridge that copies to another topic"
    )


async def find_positions(
    config: BridgeConfig,
    target: Target,
    pairs: Mapping[TopicPartition, TopicPartition],
    stored: StoredRuns,
    judged: Collection[TopicPartition],
) -> dict[TopicPartition, FoundPosition]:
    """Return where the copy of each partition continues.

    Args:
        config: the file of the bridge.
        target: the connection; the sink has fenced older starts.
        pairs: partition of the source → partition of the target.
        stored: the records of the offsets topic.
        judged: the partitions of the source that must not begin behind messages of their copies,
            unless `topics.append` allows it.

    Raises:
        TargetError: the target doesn't respond.
    """
    committed = await target.committed(config.position_group, pairs.values())
    unknown = [tp for tp, copy in pairs.items() if copy not in committed]
    looked_at = [
        pairs[tp] for tp in unknown if tp in judged and not config.topics.appends(tp.topic)
    ]
    written = await target.ever_had_records(looked_at) if looked_at else {}
    maps = {tp: await environment.run_in_thread(stored.offset_map, tp) for tp in unknown}
    ends = await target.log_ends(pairs[tp] for tp in unknown if len(maps[tp]))
    return {
        tp: choose_position(
            committed.get(copy),
            maps.get(tp, OffsetMap()),
            is_empty=not written.get(copy, False),
            log_end=ends.get(copy, 0),
        )
        for tp, copy in pairs.items()
    }


def owned_topics(committed: Iterable[TopicPartition], stored: StoredRuns) -> set[str]:
    """Return the topics into which the bridge has copied, by their names at the target and at the
    source.
    """
    return {tp.topic for tp in committed} | stored.topics()
