"""`tail`: yield messages of a topic as they are written, at a pace at which a person reads.

`pages` runs a `tail` for each open view. It has a consumer of its own, which is closed with the
view.

Invariant: the messages read each second are bounded, however many are written. The rest is skipped,
and counted. No topic is created, no group joined, nothing committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from typing import Any, Final, NamedTuple

from aiokafka08._tools.reading.read_records import MissingTopics
from aiokafka08._tools.records.types import BytesRecord, Pick
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.structs import TopicPartition

_PERIOD_S: Final = 1.0
_SHOWN: Final = 10
"""How many messages of a period a view shows: the newest ones."""
_READ: Final = 500
"""How many messages of a period are read."""
_FETCH_BYTES: Final = 1024 * 1024


class TailPeriod(NamedTuple):
    """The messages of a period: those to show, and how many `pick` accepted and `tail` skipped."""

    shown: Sequence[BytesRecord]
    accepted: int
    skipped: int

    @property
    def state(self) -> str:
        """The text that a view shows about the period."""
        if self.skipped:
            came = self.accepted + self.skipped
            return f"Sampled: {len(self.shown)} of about {came:,} messages of the last second."
        if len(self.shown) < self.accepted:
            return f"Sampled: {len(self.shown)} of {self.accepted:,} messages of the last second."
        return "Live: each message is shown."


async def tail(
    options: Mapping[str, Any],
    tps: Sequence[TopicPartition],
    pick: Pick,
) -> AsyncGenerator[TailPeriod, None]:
    """Yield a period once a second, also if no messages came.

    Args:
        options: the options of the consumer.
        tps: the partitions to read, from their ends on.
        pick: returns a message as it is shown; None if it isn't wanted.

    Raises:
        UnknownTopicOrPartitionError: the topic was deleted.
        KafkaError: as `getmany`.
    """
    loop = asyncio.get_running_loop()
    async with AIOKafkaConsumer(
        **options,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="latest",
        headers="refuse",
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
        allow_auto_create_topics=False,
    ) as consumer:
        consumer.assign(tps)
        await consumer.seek_to_end(*tps)
        missing = MissingTopics({tp.topic for tp in tps})
        period = TailPeriod((), 0, 0)
        while True:
            yield period
            missing.check(consumer)
            end = loop.time() + _PERIOD_S
            came = await consumer.getmany(timeout_ms=int(1000 * _PERIOD_S), max_records=_READ)
            newest, accepted = list[BytesRecord](), 0
            for record in chain.from_iterable(came.values()):
                if (picked := await pick(record)) is not None:
                    accepted += 1
                    newest = _newest([*newest, picked])  # to hold them all could take much memory
            skipped = await _skip(consumer)
            period = TailPeriod(newest, accepted, skipped)
            await asyncio.sleep(end - loop.time())


def _newest(records: Sequence[BytesRecord]) -> list[BytesRecord]:
    return nlargest(
        _SHOWN, records, key=lambda one: (one.timestamp or 0, one.partition, one.offset)
    )


async def _skip(consumer: AIOKafkaConsumer[bytes, bytes]) -> int:
    """Seek to the ends if more messages are left than a period reads; return how many it skips."""
    behind: dict[TopicPartition, int] = {}
    for tp in consumer.assignment():
        end = consumer.highwater(tp)
        if end is not None and (left := end - await consumer.position(tp)) > 0:
            behind[tp] = left
    if sum(behind.values()) <= _READ:
        return 0
    await consumer.seek_to_end(*behind)
    return sum(behind.values())
