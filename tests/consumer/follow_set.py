"""Print the files that a fetched message set enters, from the response to the result of getmany().

A program of its own: profiling sees pure Python only, so it runs with AIOKAFKA08_IMPL=python.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque

from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.tools.profiling import entered_files

VALUE = b"the value that is followed"


def carries_value(found: object) -> bool:
    """Whether an object is, or contains, bytes with the value.

    Other objects than containers and dataclasses are opaque: passing on a cursor, which owns a
    buffer with the value, is no step of the set.
    """
    if isinstance(found, bytes | bytearray | memoryview):
        return VALUE in bytes(found)
    if isinstance(found, dict):
        return any(map(carries_value, found.values()))
    if isinstance(found, list | tuple | deque):
        return any(map(carries_value, found))
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        fields = dataclasses.fields(found)
        return any(carries_value(getattr(found, field.name, None)) for field in fields)
    return False


async def main() -> list[str]:
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
    ):
        tp = TopicPartition("t", 0)
        consumer.assign([tp])
        await consumer.position(tp)
        with entered_files(carries_value) as files:
            cluster.append("t", 0, [VALUE])
            [record] = (await consumer.getmany(timeout_ms=10_000))[tp]
        assert record.value == VALUE
        return files


if __name__ == "__main__":
    print(*asyncio.run(main()), sep="\n")
