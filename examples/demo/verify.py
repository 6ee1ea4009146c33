"""The stage that reads the whole topic and compares it with the input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from aiokafka08 import AIOKafkaConsumer
from examples.demo.progress import Meter
from examples.demo.run import DemoError, Run, Speed, on_loop
from examples.demo.tally import Tally

PATIENCE_S = 30
"""Longest time without a message."""
AT_ONCE = 5_000
NAMED = 5
"""Number of keys that the error names if the verification fails."""

_key = attrgetter("key")


def verify(run: Run) -> Sequence[Speed]:
    """Read the topic from its beginning to its end, and count and hash its messages by key.

    Raises:
        DemoError: the messages aren't those that were sent; the text names the keys.
    """
    read = Tally()
    with Meter(run.console, "consume and verify", run.input.messages, "messages") as meter:
        on_loop(_read(run, read, meter))
    differences = run.input.sent.differences(read)
    if differences:
        more = f"; and {len(differences) - NAMED:,} more keys" if len(differences) > NAMED else ""
        raise DemoError(
            f"verification of topic {run.topic!r} failed: {'; '.join(differences[:NAMED])}{more}"
        )
    run.console.print(
        f"{read.messages:,} messages of {len(read.counts):,} keys were read. For each key the "
        "number of messages and the hash over the values in their order are as sent."
    )
    return [Speed("consume and verify", read.messages, read.size_bytes, meter.seconds)]


async def _read(run: Run, read: Tally, meter: Meter) -> None:
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
                for key, some in groupby(records, _key):
                    values = read.add(key, [record.value for record in some])
                    run.findings.add(key, values)
                meter.advance(len(records))
                if records[-1].offset + 1 >= ends[tp]:
                    missing.discard(tp)
