"""What `follow` makes of a consumer's errors; the commands show the rest."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._tools.cli.connection import range_router
from aiokafka08._tools.cli.settings import Source, settings
from aiokafka08._tools.reading import read_records
from aiokafka08._tools.reading.positions import OffsetSpan
from aiokafka08._tools.reading.read_plan import PartitionRange
from aiokafka08._tools.reading.read_records import follow, read_bounded
from aiokafka08.errors import OffsetOutOfRangeError
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.support.gated_offload import GatedOffload, offload_threads

TP = TopicPartition("orders", 3)


class OvertakenConsumer:
    """A consumer whose log is truncated at once."""

    def assign(self, tps: list[TopicPartition]) -> None:
        assert tps == [TP]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.offset = offset

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {TP.partition}

    async def getmany(self, **options: Any) -> Any:
        raise OffsetOutOfRangeError({TP: self.offset}, "... seek() to an offset in the log")


@pytest.mark.parametrize("as_columns", [False, True])
async def test_long_wrapper_of_a_range_is_opened_in_a_thread(
    as_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_records, "Offload", GatedOffload)
    long = [b"x" * 100_000] * 5
    tp = TopicPartition("orders", 0)
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"first"])
        for _ in range(2):
            cluster.append("orders", 0, long, codec=Codec.GZIP)
        cluster.append("orders", 0, [b"last"])
        found = settings([Source("test", {"bootstrap.servers": cluster.bootstrap_servers})])
        async with range_router(found) as router:
            await router.metadata.refresh()
            span = PartitionRange(tp, 0, 12, OffsetSpan(0, 12))
            counts = [
                len(batch) async for _, batch in read_bounded(router, [span], as_columns=as_columns)
            ]
    assert sum(counts) == 12
    assert counts[-1] == 0
    assert GatedOffload.made.begun == 2
    assert threading.get_ident() not in GatedOffload.made.threads
    assert not offload_threads()


@pytest.mark.parametrize(
    ("given", "ranges", "bytes_of_a_fetch"),
    [(None, 1, 4 << 20), (None, 2, 4 << 20), (None, 8, 1 << 20), (20_000, 2, 20_000)],
)
async def test_fetches_of_ranges_share_the_budget(
    given: int | None, ranges: int, bytes_of_a_fetch: int
) -> None:
    async with EmbeddedCluster(topics={"orders": ranges}) as cluster:
        spans = []
        for partition in range(ranges):
            cluster.append("orders", partition, [b"one"])
            tp = TopicPartition("orders", partition)
            spans.append(PartitionRange(tp, 0, 1, OffsetSpan(0, 1)))
        found = settings([Source("test", {"bootstrap.servers": cluster.bootstrap_servers})])
        async with range_router(found) as router:
            await router.metadata.refresh()
            read = [batch async for _, batch in read_bounded(router, spans, fetch_bytes=given)]
            fetched = {
                partition.max_bytes
                for request in cluster.requests(FetchRequest)
                for topic in request.topics
                for partition in topic.partitions
            }
    assert sum(map(len, read)) == ranges
    assert fetched == {bytes_of_a_fetch}


async def test_lost_offset_is_named_in_words_of_the_command_line() -> None:
    consumer = cast("AIOKafkaConsumer[bytes, bytes]", OvertakenConsumer())
    with pytest.raises(OffsetOutOfRangeError) as raised:
        async for _ in follow(consumer, [PartitionRange(TP, 7, None, OffsetSpan(0, 9))]):
            pass
    text = raised.value.text
    assert text.startswith("topic 'orders', partition 3: the log has lost offset 7 before")
    assert text.endswith("go on with --from")
