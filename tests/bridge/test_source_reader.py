"""What `SourceReader` does about damaged messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.source.source_reader import PartitionLostError, SourceReader
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Corrupt, EmbeddedCluster
from tests.conformance.contract.wire.requests import bad_crc

TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 1}) as running:
        yield running


@pytest.fixture
async def source(cluster: EmbeddedCluster) -> AsyncIterator[SourceReader]:
    """Started, at the first message of the partition, which has none yet."""
    reader = SourceReader(
        parse_config(
            f'name = "x"\n[source]\nbootstrap = "{cluster.bootstrap_servers}"\n'
            '[target]\nbootstrap = "127.0.0.1:1"\n[topics]\ninclude = ["t"]\n'
        )
    )
    await reader.start()
    yield reader
    await reader.stop()


async def read(source: SourceReader, count: int) -> list[bytes]:
    got: list[bytes] = []
    async with asyncio.timeout(10):
        while len(got) < count:
            for records in (await source.read(1.0)).values():
                got += [record.value or b"" for record in records]
    return got


async def test_message_damaged_on_the_way_is_not_lost(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    cluster.append("t", 0, [b"0", b"1", b"2"])
    cluster.fault(FetchRequest, then=Corrupt())
    source.add({TP: 0})
    assert await read(source, 3) == [b"0", b"1", b"2"]


async def test_message_damaged_in_the_log_is_lost(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    cluster.append("t", 0, [b"0"])
    cluster.append_raw("t", 0, bad_crc(encode_entry(1, None, b"1")))
    cluster.append("t", 0, [b"2"])
    source.add({TP: 0})
    assert await read(source, 1) == [b"0"]
    with pytest.raises(PartitionLostError, match="offset 1") as caught:
        await read(source, 1)
    assert (caught.value.offset, caught.value.resume) == (1, 2)
    source.seek(TP, 2)
    assert await read(source, 1) == [b"2"]


async def test_damaged_size_names_the_next_readable_offset(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    """With `on_loss = "skip"` the bridge goes on there."""
    cluster.append("t", 0, [b"0"])
    cluster.append_raw("t", 0, bytes(400), next_offset=4)
    cluster.append("t", 0, [b"4"])
    source.add({TP: 0})
    assert await read(source, 1) == [b"0"]
    with pytest.raises(PartitionLostError, match="The next offset that can be read is 4") as caught:
        await read(source, 1)
    assert (caught.value.offset, caught.value.resume) == (1, 4)
    source.seek(TP, 4)
    assert await read(source, 1) == [b"4"]
