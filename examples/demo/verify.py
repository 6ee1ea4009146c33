"""The stage that reads the whole topic and compares it with what was acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiokafka08 import AIOKafkaConsumer
from examples.demo.partition_check import PartitionCheck
from examples.demo.progress import Meter
from examples.demo.run import DemoError, Run, Speed, on_loop

VERIFY = "consume and verify"
"""The stage."""
PATIENCE_S = 30
"""Longest time without a message."""
AT_ONCE = 5_000
NAMED = 5
"""Number of differences that the error names if the verification fails."""


def verify(run: Run) -> Sequence[Speed]:
    """Read the topic from its beginning to its end: each message is where its acknowledgement says.

    Messages that were sent again after the leader died may be there twice: without idempotent
    producers, which Kafka has from 0.11 on, that can't be avoided.

    Raises:
        DemoError: messages are lost, in another order, changed, or weren't sent; the text names
            partitions and offsets.
    """
    checks: dict[int, PartitionCheck] = {}
    for key, values, metadata in run.sent:
        partition = metadata[0].partition
        check = checks.get(partition)
        if check is None:
            check = checks[partition] = PartitionCheck(run.topic, partition)
        check.add(key, values, [one.offset for one in metadata])
    run.sent.clear()
    with Meter(run.console, VERIFY, run.input.messages) as meter:
        size_bytes = on_loop(_read(run, checks, meter))
    differences = [text for check in checks.values() for text in check.end()]
    if differences:
        more = len(differences) - NAMED
        raise DemoError(
            f"verification of topic {run.topic!r} failed: {'; '.join(differences[:NAMED])}"
            + (f"; and {more:,} more differences" if more > 0 else "")
        )
    run.repeated = [
        (key or b"", value or b"") for check in checks.values() for key, value in check.repeated
    ]
    run.console.print(
        f"{meter.done:,} messages of {len(run.findings.modules):,} modules were read: 0 lost, "
        f"{len(run.repeated):,} repeated, 0 reordered. Each message is at the offset that its "
        "acknowledgement named"
    )
    return [Speed(VERIFY, meter.done, size_bytes, meter.seconds)]


async def _read(run: Run, checks: dict[int, PartitionCheck], meter: Meter) -> int:
    """Read to the end, and return the bytes of keys and values."""
    size_bytes = 0
    keys: Counter[bytes | None] = Counter()
    async with AIOKafkaConsumer(
        run.topic, bootstrap_servers=run.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        missing = {tp for tp, end in ends.items() if end > 0}
        while missing:
            batch = await consumer.getmany(timeout_ms=PATIENCE_S * 1000, max_records=AT_ONCE)
            if not batch:
                where = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(missing))
                raise DemoError(
                    f"reading failed: no message for {PATIENCE_S} s; {where} not at its end"
                )
            for tp, records in batch.items():
                if tp.partition not in checks:
                    checks[tp.partition] = PartitionCheck(*tp)
                checks[tp.partition].read(
                    [one.offset for one in records],
                    [one.key for one in records],
                    [one.value for one in records],
                )
                keys.update([one.key for one in records])
                size_bytes += sum(len(one.value or b"") + len(one.key or b"") for one in records)
                meter.advance(len(records))
                if records[-1].offset + 1 >= ends[tp]:
                    missing.discard(tp)
    run.findings.add(keys)
    return size_bytes
