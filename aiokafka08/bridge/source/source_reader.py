"""`SourceReader`: read the partitions of the source cluster in order, with bounded memory.

Invariants:
- The records that `read()` returns of a partition continue where the last call ended, or at the
  offset of `seek` or `add`. If that isn't possible, the partition is suspended, and `read()` raises
  `PartitionLostError` once; the other partitions continue.
- A read never ends between messages that share an offset (docs/brokers.md 6.7), since a position
  can't be between them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from aiokafka08._core.net.tls import ssl_context
from aiokafka08._core.ranges.next_readable import find_readable
from aiokafka08._wording import partition_text
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.sink.events import HeldRecords, shared_offset
from aiokafka08.bridge.source.addresses import START_TIMEOUT_MS, named_addresses
from aiokafka08.bridge.source.source_clients import source_router, source_topic_configs
from aiokafka08.bridge.source.source_release import left_out_by
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import (
    CorruptRecordException,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from aiokafka08.structs import ConsumerRecord, TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

_LEADER_PAUSE_S: Final = 0.5
_MAX_RECORDS: Final = 10_000
_METADATA_AGE_MS: Final = 30_000

Records = Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]


class PartitionLostError(KafkaError):
    """The log doesn't have the next offset of a partition any more.

    Attributes:
        partition: The partition of the source.
        offset: The next offset of the copy.
        first, last: Where the log begins, and the offset after its end.
        resume: Where the copy can continue: `first`, or `last` if the log is shorter than the copy,
            or after a message that can't be read; None if that isn't known.
        records: The messages at `offset` that were read before the loss.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        first: int,
        last: int,
        *,
        resume: int | None = None,
        detail: str | None = None,
        records: Sequence[ConsumerRecord[bytes, bytes]] = (),
    ) -> None:
        self.records = records
        self.partition, self.offset, self.first, self.last = partition, offset, first, last
        if resume is None and not first <= offset <= last:
            resume = first if offset < first else last
        self.resume = resume
        where = partition_text(partition)
        super().__init__(detail or f"{where}: {self._reason()}")

    @property
    def missing(self) -> int:
        """How many offsets the copy skips if it continues at `resume`."""
        return max((self.resume or self.offset) - self.offset, 0)

    def _reason(self) -> str:
        if self.offset < self.first:
            return (
                f"offsets {self.offset} to {self.first - 1} are gone from the source before they "
                f"were copied (retention, or a deleted topic); its log begins at {self.first}"
            )
        return (
            f"the source's log ends at {self.last}, but offsets up to {self.offset - 1} were "
            "copied: it was truncated (an unclean election), or the topic was recreated; offsets "
            f"{self.last} to {self.offset - 1} are lost or will be written anew"
        )


class SourceReader:
    """Reads the source cluster; `start()` connects, `stop()` disconnects."""

    def __init__(self, config: BridgeConfig) -> None:
        network: dict[str, Any] = {
            "bootstrap_servers": config.source.bootstrap,
            "client_id": config.client_id,
            "start_timeout_ms": START_TIMEOUT_MS,
            "metadata_max_age_ms": min(_METADATA_AGE_MS, int(config.copy.refresh_s * 1000)),
            **config.source.network,
            "ssl_context": ssl_context(config.source.tls),
        }
        self._config = config
        self._admin = AIOKafkaAdminClient(
            **network,
            zookeeper_connect=config.source.zookeeper,
            zookeeper_check=config.source.zookeeper_check,
            zookeeper_options=config.source.zookeeper_options,
        )
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **network,
            enable_auto_commit=False,
            # Without a group and without a reset, because the bridge alone decides where a
            # partition continues.
            auto_offset_reset="none",
            headers="refuse",
            max_partition_fetch_bytes=config.copy.fetch_bytes,
            fetch_max_bytes=max(config.copy.buffer_bytes, config.copy.fetch_bytes),
            allow_auto_create_topics=False,
        )
        self._suspended: set[TopicPartition] = set()
        self._held: dict[TopicPartition, HeldRecords] = {}
        # Errors that the next reads raise, since the read that finds one returns the records of the
        # other partitions.
        self._lost: dict[TopicPartition, PartitionLostError] = {}

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaError: no broker of 0.8 to 3.9 responds.
        """
        with named_addresses(self._config.source):
            await self._admin.start()
            await self._consumer.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self._consumer.stop()
        await self._admin.close()

    async def left_out(self, wait_s: float) -> str | None:
        """Return which parts of the source the copy leaves out, from the brokers that respond.

        None if it leaves out nothing, or if a broker takes longer than `wait_s`.

        Raises:
            KafkaError: no broker responds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                return await left_out_by(self._admin)
        return None

    async def partition_counts(self) -> dict[str, int]:
        """Return all topics, with their partition counts.

        Raises:
            KafkaError: no broker responds.
        """
        topics = await self._admin.describe_topics()
        return {
            topic["topic"]: 1 + max(partition["partition"] for partition in topic["partitions"])
            for topic in topics
            if topic["partitions"]
        }

    async def topic_configs(self) -> dict[str, dict[str, str]]:
        """Return the settings that topics have of their own; none without ZooKeeper's address.

        Raises:
            KafkaError: ZooKeeper doesn't respond.
        """
        return await source_topic_configs(self._config, self._admin)

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return where logs begin, and the offsets after their ends.

        Raises:
            KafkaError: a leader doesn't respond.
        """
        wanted = list(partitions)
        first, last = await asyncio.gather(
            self._consumer.beginning_offsets(wanted), self._consumer.end_offsets(wanted)
        )
        return {tp: (first[tp], last[tp]) for tp in wanted}

    async def reachable_bounds(
        self, partitions: Iterable[TopicPartition], wait_s: float = 0.0
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the `bounds` of the partitions that have a leader; wait `wait_s` seconds for
        leaders.

        Raises:
            KafkaError: no broker responds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        bounds: dict[TopicPartition, tuple[int, int]] = {}
        left = list(partitions)
        while left:
            for tp, log in (await self._admin.list_log_bounds(left)).items():
                if log.start is not None and log.end is not None:
                    bounds[tp] = log.start, log.end
            left = [tp for tp in left if tp not in bounds]
            if loop.time() >= deadline:
                break
            if left:
                await asyncio.sleep(_LEADER_PAUSE_S)
        return bounds

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, from these offsets on."""
        self._consumer.assign({*self._consumer.assignment(), *positions})
        for tp, offset in positions.items():
            self.seek(tp, offset)

    @asynccontextmanager
    async def only(self, tp: TopicPartition, offset: int) -> AsyncIterator[None]:
        """While the block runs, read only this partition, which isn't assigned yet."""
        before = self._consumer.assignment()
        paused = self._consumer.paused()
        self._consumer.assign({*before, tp})
        self._consumer.seek(tp, offset)
        self._consumer.pause(*before)
        try:
            yield
        finally:
            self._forget(tp)
            self._consumer.assign(before)
            self._consumer.resume(*(before - paused))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at an offset; a suspended partition is read again."""
        self._forget(tp)
        self._consumer.seek(tp, offset)
        if tp in self._suspended:
            self._suspended.discard(tp)
            self._consumer.resume(tp)

    def suspend(self, tp: TopicPartition) -> None:
        """Return no more records of a partition, until `seek`."""
        self._suspended.add(tp)
        self._consumer.pause(tp)

    async def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next message that `read` would return."""
        return await self._consumer.position(tp)

    def end_of(self, tp: TopicPartition) -> int | None:
        """Return the last known high watermark; None without one, or if `tp` isn't read."""
        try:
            return self._consumer.highwater(tp)
        except IllegalStateError:
            return None

    async def read(self, timeout_s: float) -> Records:
        """Return records by partition; nothing if there are none within the time.

        Raises:
            PartitionLostError: a partition can't be continued, and is suspended.
            KafkaError: the source doesn't respond.
        """
        for tp in self._lost:
            raise self._lost.pop(tp)
        try:
            records = await self._consumer.getmany(
                timeout_ms=round(timeout_s * 1000), max_records=_MAX_RECORDS
            )
            return {
                tp: whole
                for tp, of_partition in records.items()
                if (whole := await self._up_to_position(tp, of_partition))
            }
        except OffsetOutOfRangeError as error:
            ((tp, offset),) = error.args[0].items()
            self.suspend(tp)
            first, last = (await self.bounds([tp]))[tp]
            if first <= offset <= last:
                self.seek(tp, offset)  # the log has the offset again
                return {}
            held = self._forget(tp)
            raise PartitionLostError(tp, offset, first, last, records=held) from error
        except CorruptRecordException as error:
            if error.partition is None or error.offset is None:
                raise
            lost, text = (error.partition, error.offset, error.next_offset), error.text
        except RecordTooLargeError as error:
            lost = (error.args[1], error.args[2], error.args[2] + 1)
            text = error.text.replace("fetch_max_bytes, or seek() past it", "copy.buffer_bytes")
        tp, offset, resume = lost
        self.suspend(tp)
        # The message at `offset` can't be read, and its length isn't known: search for the next
        # one.
        if resume is None:
            async with source_router(self._config) as router:
                readable = await find_readable(router, tp, offset)
            (_, end) = (await self.bounds([tp]))[tp]
            # Either the broker can read the offset again, or a new leader has failed to read it,
            # because its log doesn't reach that far (yet).
            if readable == offset or offset >= end:
                self.seek(tp, offset)
                return {}
            if readable < end:
                resume = readable
                text += f". The next offset that can be read is {readable}"
            else:  # skip nothing: the broker may fail to read anything, perhaps for a while
                text += f". Nothing up to the log's end, {end}, can be read"
        held = self._forget(tp)
        raise PartitionLostError(
            tp, offset, offset, offset, resume=resume, detail=text, records=held
        )

    async def _up_to_position(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord[bytes, bytes]]
    ) -> Sequence[ConsumerRecord[bytes, bytes]]:
        """Return the records before the consumer's position, and hold the others.

        The held records share an offset, which is copied as a whole. If they take too much memory,
        the next `read` raises an error.
        """
        position = await self._consumer.position(tp)
        held = self._held.setdefault(tp, HeldRecords())
        below = held.add(records, position)
        limit = self._config.copy.buffer_bytes
        if not held.records:
            del self._held[tp]
        elif held.memory > limit:
            self.suspend(tp)
            self._forget(tp)
            where = partition_text(tp)
            self._lost[tp] = PartitionLostError(
                tp,
                position,
                position,
                position,
                resume=position + 1,
                detail=f"{where}: {shared_offset(position, limit)}",
            )
        return below

    def _forget(self, tp: TopicPartition) -> Sequence[ConsumerRecord[bytes, bytes]]:
        """Forget and return the held records of a partition."""
        self._lost.pop(tp, None)
        held = self._held.pop(tp, None)
        return () if held is None else held.records
