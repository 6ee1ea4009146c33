"""Write message sets with single requests: tests of the consumer don't need the producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka08.protocol.api import Topic, decode_response, encode_request
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest


class Writer:
    """One connection to the leader; sets of format 0, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        codec: Codec = Codec.NONE,
    ) -> int:
        """Append one set; return the offset of its first message."""
        return (await self.write_many(topic, {partition: values}, keys, codec))[partition]

    async def write_many(
        self,
        topic: str,
        values: dict[int, Sequence[bytes | None]],
        keys: Sequence[bytes | None] | None = None,
        codec: Codec = Codec.NONE,
    ) -> dict[int, int]:
        """Append one set to each of these partitions; return the first offsets."""
        sets = []
        for partition, some in values.items():
            builder = MessageSetBuilder(0, codec)
            for value, key in zip(some, keys or [None] * len(some), strict=True):
                builder.append(key, value, -1)
            sets.append(ProducePartition(partition, builder.build()))
        return await self.write_sets(topic, sets)

    async def write_sets(
        self, topic: str, sets: list[ProducePartition], version: int = 0
    ) -> dict[int, int]:
        """Append these sets as they are; return the first offsets."""
        request = ProduceRequest(1, 30_000, [Topic(topic, sets)])
        self._writer.writelines(encode_request(request, version, 1, "writer"))
        frame = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4)))
        response = decode_response(ProduceRequest, version, frame)
        produced = [one for topic_response in response.topics for one in topic_response.partitions]
        assert [one.error_code for one in produced] == [0] * len(sets)
        return {one.partition: one.offset for one in produced}


@asynccontextmanager
async def writing(address: str) -> AsyncIterator[Writer]:
    """Open a writer to the broker at "host:port"."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Writer(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
