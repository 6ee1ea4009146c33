"""What `SourceReader` does about damaged messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain, pairwise

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.source.source_reader import PartitionLostError, SourceReader
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Answer, Corrupt, EmbeddedCluster
from tests.conformance.contract.wire.requests import bad_crc, nested, wrapper

TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 1}) as running:
        yield running


def config_of(cluster: EmbeddedCluster, more: str = "") -> BridgeConfig:
    return parse_config(
        f'name = "x"\n{more}[source]\nbootstrap = "{cluster.bootstrap_servers}"\n'
        '[target]\nbootstrap = "127.0.0.1:1"\n[topics]\ninclude = ["t"]\n'
    )


@pytest.fixture
async def source(cluster: EmbeddedCluster) -> AsyncIterator[SourceReader]:
    """Started, at the first message of the partition, which has none yet."""
    reader = SourceReader(config_of(cluster))
    await reader.start()
    yield reader
    await reader.stop()


async def read(source: SourceReader, count: int) -> list[bytes]:
    got: list[bytes] = []
    await read_into(got, source, count)
    return got


async def read_into(got: list[bytes], source: SourceReader, count: int) -> None:
    async with asyncio.timeout(20):
        while len(got) < count:
            for records in (await source.read(1.0)).values():
                got += [record.value or b"" for record in records]


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


async def read_all(source: SourceReader, end: int) -> list[list[int]]:
    """Return the offsets of each read up to a position."""
    got: list[list[int]] = []
    async with asyncio.timeout(20):
        while await source.position(TP) < end:
            got += [[one.offset for one in some] for some in (await source.read(1.0)).values()]
    return got


async def test_read_ends_behind_all_messages_of_an_offset(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    """A read has at most 10,000 records: it would end within the second group."""
    cluster.append_raw("t", 0, nested(0, 9_990) + nested(1, 40) + nested(2, 5), next_offset=3)
    source.add({TP: 0})
    reads = await read_all(source, 3)
    assert list(chain.from_iterable(reads)) == [0] * 9_990 + [1] * 40 + [2] * 5
    for one, following in pairwise(reads):
        assert one[-1] < following[0]


async def test_offset_that_takes_too_much_memory_is_lost_alone(cluster: EmbeddedCluster) -> None:
    """The records before it, and those of other partitions, are returned."""
    reader = SourceReader(config_of(cluster, "copy.buffer_bytes = 4194304\n"))
    await reader.start()
    try:
        cluster.create_topic("other", 1)
        cluster.append("other", 0, [b"other"])
        cluster.append_raw("t", 0, encode_entry(0, None, b"first"), next_offset=1)
        cluster.append_raw("t", 0, nested(1, 30_000), next_offset=2)
        cluster.append_raw("t", 0, encode_entry(2, None, b"last"), next_offset=3)
        reader.add({TP: 0, TopicPartition("other", 0): 0})
        got: list[bytes] = []
        with pytest.raises(PartitionLostError, match=r"offset 1 .*buffer_bytes=4194304") as caught:
            await read_into(got, reader, 100)
        assert (caught.value.partition, caught.value.offset) == (TP, 1)
        assert (caught.value.resume, caught.value.missing) == (2, 1)
        reader.seek(TP, 2)
        await read_into(got, reader, 3)
        assert sorted(got) == [b"first", b"last", b"other"]
    finally:
        await reader.stop()


async def test_offset_read_in_part_is_dropped_by_a_seek(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    cluster.append_raw("t", 0, nested(0, 9_990) + nested(1, 40), next_offset=2)
    source.add({TP: 0})
    [records] = (await source.read(5.0)).values()
    assert {one.offset for one in records} == {0}
    source.seek(TP, 1)
    assert await read_all(source, 2) == [[1] * 40]


async def test_damage_behind_messages_of_its_offset_hides_none_of_them(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    plain = encode_entry(0, None, b"0") + bad_crc(encode_entry(1, None, b"1"))
    twice = wrapper(Codec.GZIP, wrapper(Codec.GZIP, plain, offset=1), offset=1)
    cluster.append_raw("t", 0, encode_entry(0, None, b"") + twice, next_offset=2)
    source.add({TP: 0})
    assert await read(source, 1) == [b""]
    with pytest.raises(PartitionLostError, match="offset 1") as caught:
        await read(source, 1)
    assert {one.value for one in caught.value.records} == {b"0"}
    assert (caught.value.offset, caught.value.resume) == (1, 2)


async def test_position_where_the_broker_fails_to_read_is_lost(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    cluster.append("t", 0, [b"0"])
    cluster.append_raw("t", 0, bytes(400), next_offset=4)
    source.add({TP: 0})
    assert await read(source, 1) == [b"0"]
    source.seek(TP, 2)
    with pytest.raises(PartitionLostError, match=r"error -1.* to the log's end, 4") as caught:
        await read(source, 1)
    assert caught.value.resume is None, "nothing can be read, perhaps for a while"
    cluster.append("t", 0, [b"4"])
    source.seek(TP, 2)
    with pytest.raises(PartitionLostError, match="next offset that can be read is 4") as caught:
        await read(source, 1)
    assert (caught.value.offset, caught.value.resume) == (2, 4)


async def test_broker_that_recovers_during_the_search_hides_no_message(
    cluster: EmbeddedCluster, source: SourceReader
) -> None:
    """The search has found the offset unreadable, and the one behind it readable."""
    cluster.append("t", 0, [b"%d" % offset for offset in range(8)])
    fetched = set[int]()

    def fails(request: FetchRequest) -> bool:
        fetched.add(request.topics[0].partitions[0].fetch_offset)
        return fetched == {5}

    cluster.fault(FetchRequest, then=Answer(-1), times=None, where=fails)
    source.add({TP: 5})
    assert await read(source, 3) == [b"5", b"6", b"7"]
    assert 6 in fetched, "the search went on behind it"
