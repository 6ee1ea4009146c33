"""The codec of record batches: CPU time per record, each way and with each codec.

    python -m tests.tools.bench.record_batch --bytes 100
    AIOKAFKA08_IMPL=python python -m tests.tools.bench.record_batch

Prints CPU microseconds per record: the best and the median of the rounds, of which each runs every
row once. So other work on the machine meets all rows alike. "down" and "up" are what the gateway
does with a batch of a fetch response and with the message set of a produce request, CRCs and
compression included.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

from aiokafka08.protocol import message_set, record_batch
from aiokafka08.protocol.compression import BatchCodec, Codec
from aiokafka08.protocol.record_batch import BatchHeader, RecordBatchBuilder, Stop
from tests.tools.bench.cases import values

_LIMIT = 1 << 30
_NOW_MS = 1_700_000_000_000


def built(contents: list[bytes], codec: BatchCodec) -> bytes:
    """Return a batch of these values."""
    builder = RecordBatchBuilder(codec)
    for index, value in enumerate(contents):
        builder.append(None, value, _NOW_MS + index)
    return builder.build()


def read(data: bytes) -> None:
    """Make a tuple of each record, as a reader of single records does."""
    for part in record_batch.parts_of(data):
        assert isinstance(part, BatchHeader)
        plain = record_batch.plain_records(data, part, max_decompressed_bytes=_LIMIT)
        for _ in record_batch.read_records(part, plain):
            pass


def down(data: bytes, magic: int) -> bytes:
    """Convert to messages."""
    [part] = record_batch.parts_of(data)
    assert isinstance(part, BatchHeader)
    return record_batch.convert_batch(data, part, magic, max_decompressed_bytes=_LIMIT).data


def up(data: bytes, codec: BatchCodec) -> bytes:
    """Convert to a batch."""
    builder = RecordBatchBuilder(codec)
    stop, why = builder.extend_from_messages(data)
    if why is Stop.WRAPPER:
        wrapper = record_batch.open_wrapper(data, stop, max_decompressed_bytes=_LIMIT)
        builder.extend_from_messages(wrapper.messages)
    return builder.build()


def rows(contents: list[bytes]) -> dict[str, Callable[[], object]]:
    """Return what is measured, by its name."""
    plain = built(contents, BatchCodec.NONE)
    made: dict[str, Callable[[], object]] = {
        "read records": partial(read, plain),
        "write records": partial(built, contents, BatchCodec.NONE),
        "CRC-32C": partial(record_batch.crc32c, plain),
        "down, format 0": partial(down, plain, 0),
    }
    for codec in BatchCodec:
        made[f"down, {codec.name.lower()}"] = partial(down, built(contents, codec), 1)
    for one in Codec:
        builder = message_set.MessageSetBuilder(1, one)
        builder.extend(None, contents, _NOW_MS, 0, _LIMIT)
        made[f"up, {one.name.lower()}"] = partial(up, bytes(builder.build()), BatchCodec(one))
    return made


def measure(contents: list[bytes], rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each round, by row."""
    measured = rows(contents)
    spent: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, run in measured.items():
            begun = time.process_time()
            run()
            spent[name].append(time.process_time() - begun)
    return spent


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.record_batch")
    parser.add_argument("--bytes", type=int, default=100, help="size of a value")
    parser.add_argument("--messages", type=int, default=10_000, help="in a batch")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    print(f"twin: {message_set.IMPLEMENTATION}; CPU µs per record, best and median of the rounds")
    spent = measure(values(options.messages, options.bytes), options.rounds)
    for name, seconds in spent.items():
        best, median = (
            1e6 * one / options.messages for one in (min(seconds), statistics.median(seconds))
        )
        print(f"{name:16} {best:7.3f} {median:7.3f}")


if __name__ == "__main__":
    main()
