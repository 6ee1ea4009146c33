"""The stage that reads: the whole topic, compared with what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from aiokafka08 import AIOKafkaConsumer
from examples.demo.progress import Meter
from examples.demo.run import DemoError, Run, Speed, on_loop
from examples.demo.tally import Tally

PATIENCE_S = 30
"""How long no message may come."""
AT_ONCE = 5_000
TOLD = 5
"""Keys that are named where the verification fails."""

_key = attrgetter("key")


def verify(run: Run) -> Sequence[Speed]:
    """Read the topic from its beginning to its end, hash by key, and count what is in it.

    Raises:
        DemoError: what was read isn't what was sent; names the keys.
    """
    read = Tally()
    with Meter(run.console, "consume and verify", run.input.messages, "messages") as meter:
        on_loop(_read(run, read, meter))
    differences = run.input.sent.differences(read)
    if differences:
        more = f"; and {len(differences) - TOLD:,} keys more" if len(differences) > TOLD else ""
        raise DemoError(
            f"topic {run.topic!r} doesn't hold what was sent: {'; '.join(differences[:TOLD])}{more}"
        )
    run.console.print(
        f"{read.messages:,} messages of {len(read.counts):,} keys were read: of each key the "
        "count and the hash over its values in their order are those of what was sent."
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
                raise DemoError(f"no message came for {PATIENCE_S} s; {where} not read to the end")
            for tp, records in batch.items():
                for key, some in groupby(records, _key):
                    values = read.add(key, [record.value for record in some])
                    run.findings.add(key, values)
                meter.advance(len(records))
                if records[-1].offset + 1 >= ends[tp]:
                    missing.discard(tp)
