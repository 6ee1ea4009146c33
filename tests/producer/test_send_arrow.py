"""`send_arrow`: the partition of each row of a record batch, and the rows that are refused."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.partitioner import PARTITIONERS, murmur2
from aiokafka08.protocol import _murmur2_py
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.producer.conftest import Producer
from tests.protocol.twins import TWINS, Twin
from tests.support.fake_pandas import imports_pandas

ProducerFor = Callable[..., Awaitable[Producer]]

COUNT = 9_000
"""More rows than are split by queue in one step."""


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def logs(cluster: EmbeddedCluster, partitions: int = 3) -> list[list[tuple[Any, Any]]]:
    return [
        [(message.key, message.value) for message in cluster.log("t", partition)]
        for partition in range(partitions)
    ]


async def test_rows_without_keys_go_to_partitions_in_runs(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, max_batch_size=1000)
    batch = pa.record_batch({"value": numbers(COUNT), "other": range(COUNT)})
    results = await (await producer.send_arrow("t", batch))
    found = logs(cluster)
    assert sum(map(len, found)) == len(results) == COUNT
    for number in range(0, COUNT, 777):
        result = results[number]
        assert found[result.partition][result.offset] == (None, b"%d" % number)
    assert len(cluster.requests(ProduceRequest)) > 1


@pytest.mark.parametrize("name", sorted(PARTITIONERS))
async def test_every_partitioner_chooses_as_for_send(
    cluster: EmbeddedCluster, producer_for: ProducerFor, name: str
) -> None:
    producer = await producer_for(cluster, partitioner=name)
    keys = [None if n % 7 == 3 else f"key {n % 91}" for n in range(COUNT)]
    batch = pa.record_batch({"key": keys, "value": numbers(COUNT)})
    results = await (await producer.send_arrow("t", batch))
    every = sorted({key.encode() for key in keys if key is not None})
    sent = await (await producer.send_many("t", [b""] * len(every), every))
    homes = {key.decode(): one.partition for key, one in zip(every, sent, strict=True)}
    found = logs(cluster)
    for number, (key, result) in enumerate(zip(keys, results, strict=True)):
        assert key is None or result.partition == homes[key]
        if number % 999 == 0:
            value = b"%d" % number
            assert found[result.partition][result.offset] == (key and key.encode(), value)
    for partition in range(3):
        offsets = [one.offset for one in results if one.partition == partition]
        assert offsets == sorted(offsets), "the rows of a partition keep their order"
    keyless = [one.partition for key, one in zip(keys, results, strict=True) if key is None]
    if name == "round_robin":
        counts = [keyless.count(partition) for partition in range(3)]
        assert max(counts) - min(counts) <= 1


async def test_rows_with_a_partition_go_there(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    def to_last(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        called.append(key)
        return 2

    called: list[bytes | None] = []
    producer = await producer_for(cluster, partitioner=to_last)
    batch = pa.record_batch(
        {
            "key": pa.array([None, b"a", None, b"b", b"c"], pa.binary()),
            "value": ["0", "1", "2", "3", None],
            "partition": pa.array([1, None, 0, 1, None], pa.int64()),
        }
    )
    results = await (await producer.send_arrow("t", batch))
    assert [one.partition for one in results] == [1, 2, 0, 1, 2]
    assert called == [b"a", b"c"]
    assert logs(cluster) == [
        [(None, b"2")],
        [(None, b"0"), (b"b", b"3")],
        [(b"a", b"1"), (b"c", None)],
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(),
        pa.binary_view(), pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
async def test_slices_of_every_type_of_text_and_bytes_are_sent(
    cluster: EmbeddedCluster, producer_for: ProducerFor, kind: pa.DataType
) -> None:
    producer = await producer_for(cluster)
    text = pa.array(["skipped", "a", None, "", "b", None, "skipped"])
    # dictionaries are cast from text only
    column = text.dictionary_encode() if pa.types.is_dictionary(kind) else text.cast(kind)
    keys = pa.array(["skipped", None, "k", "", "k", None, "skipped"])
    batch = pa.record_batch({"value": column, "key": keys}).slice(1, 5)
    results = await (await producer.send_arrow("t", batch))
    sent = [cluster.log("t", one.partition)[one.offset] for one in results]
    assert [(one.key, one.value) for one in sent] == [
        (None, b"a"), (b"k", None), (b"", b""), (b"k", b"b"), (None, None),
    ]  # fmt: skip
    fixed = pa.record_batch({"value": pa.array([b"xy"], pa.binary(2))})
    [result] = await (await producer.send_arrow("t", fixed))
    assert cluster.log("t", result.partition)[result.offset].value == b"xy"


async def test_an_empty_batch_sends_nothing(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    for batch in (
        pa.record_batch({"value": pa.array([], pa.string())}),
        pa.record_batch({"value": ["a"], "key": ["k"], "partition": [1]}).slice(1),
    ):
        deliveries = await producer.send_arrow("t", batch)
        assert list(await deliveries) == []
    assert cluster.requests(ProduceRequest) == []


@pytest.mark.parametrize(
    "kind", [pa.int64(), *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns"))], ids=str
)
async def test_timestamps_of_any_unit(producer_for: ProducerFor, kind: pa.DataType) -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster:
        producer = await producer_for(cluster)
        times = pa.array([5000, 7000, None], pa.timestamp("ms", "UTC"))
        batch = pa.record_batch(
            {"key": ["a", "b", "c"], "value": [None] * 3, "timestamp": times.cast(kind)}
        )
        results = await (await producer.send_arrow("t", batch))
        stored = [cluster.log("t", one.partition)[one.offset].timestamp_ms for one in results]
        assert stored == [one.timestamp for one in results]
        assert stored[:2] == [5000, 7000]
        assert stored[2] is not None
        assert stored[2] > 10**12, "now"


async def test_getmany_arrow_result_is_sent_to_its_partitions(
    producer_for: ProducerFor,
) -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 3}) as source,
        EmbeddedCluster(version="0.10", topics={"t": 3}) as target,
    ):
        producer = await producer_for(source)
        await (
            await producer.send_many("t", map(str.encode, numbers(3000)), [b"k", None, b""] * 1000)
        )
        copier = await producer_for(target)
        async with AIOKafkaConsumer(
            bootstrap_servers=source.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition("t", partition) for partition in range(3)])
            rows = 0
            while rows < 3000:
                batch = await consumer.getmany_arrow(timeout_ms=10_000)
                rows += batch.num_rows
                await (await copier.send_arrow("t", batch))
        for partition in range(3):
            assert [
                (one.key, one.value, one.timestamp_ms) for one in target.log("t", partition)
            ] == [(one.key, one.value, one.timestamp_ms) for one in source.log("t", partition)]


async def test_rows_beyond_the_memory_are_accepted_in_chunks(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=20_000, max_request_size=5000)
    batch = pa.record_batch({"key": numbers(COUNT), "value": ["v" * 50] * COUNT})
    assert len(await (await producer.send_arrow("t", batch))) == COUNT
    assert sum(map(len, logs(cluster))) == COUNT
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_long_rows_are_split_by_queue_a_few_at_a_time(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    values = [bytes([number]) * 700_000 for number in range(10)]
    batch = pa.record_batch({"key": numbers(10), "value": values})
    results = await (await producer.send_arrow("t", batch))
    for number, result in enumerate(results):
        message = cluster.log("t", result.partition)[result.offset]
        assert (message.key, message.value) == (b"%d" % number, values[number])


async def test_wrong_rows_raise_before_anything_is_buffered(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, max_request_size=1000)

    async def refused(error: type[Exception], says: str, batch: Any) -> None:
        with pytest.raises(error, match=says):
            await producer.send_arrow("t", batch)

    def rows(**columns: Any) -> pa.RecordBatch:
        return pa.record_batch(columns)

    await refused(
        TypeError, "batch: Table; expected a pyarrow.RecordBatch", pa.table({"value": ["a"]})
    )
    await refused(IllegalArgumentError, "no column 'value', columns: key", rows(key=["a"]))
    await refused(TypeError, "'value': type int64; expected bin", rows(value=[1]))
    await refused(TypeError, "'key': type double", rows(value=["a"], key=[1.0]))
    numbered = pa.array([1]).dictionary_encode()
    await refused(TypeError, "'value': type dictionary", rows(value=numbered))
    await refused(TypeError, "'partition': type str", rows(value=["a"], partition=["1"]))
    await refused(
        IllegalArgumentError, "'partition': .*32 bits", rows(value=["a"], partition=[2**40])
    )
    await refused(TypeError, "'timestamp': type str", rows(value=["a"], timestamp=["1"]))
    await refused(
        IllegalArgumentError,
        "row 1 has -5 ms",
        rows(value=["a", "b"], timestamp=[1, -5]),
    )
    far = pa.array([2**60], pa.timestamp("s"))
    await refused(
        IllegalArgumentError, "'timestamp': .*milliseconds", rows(value=["a"], timestamp=far)
    )
    await refused(UnsupportedVersionError, "timestamp", rows(value=["a"], timestamp=[1]))
    await refused(IllegalArgumentError, "partition=-1", rows(value=["a"], partition=[-1]))
    await refused(
        UnknownTopicOrPartitionError,
        "no partition 7; it has",
        rows(value=["a", "b"], partition=[0, 7]),
    )
    large = rows(value=["a", "b", "v" * 900], key=["k" * 900, None, "k" * 100]).slice(1)
    await refused(MessageSizeTooLargeError, "row 1 takes 1034 bytes", large)
    assert cluster.requests(ProduceRequest) == []
    assert producer.metrics()["buffer_used_bytes"] == 0
    await (await producer.send_arrow("t", rows(value=["v" * 966])))


async def test_an_error_names_the_first_row_that_failed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(
        ProduceRequest,
        then=Answer(29),
        where=lambda request: request.topics[0].partitions[0].partition == 1,
    )
    keys = numbers(100)
    deliveries = await producer.send_arrow("t", pa.record_batch({"key": keys, "value": keys}))
    failed = {n for n in range(100) if (murmur2(keys[n].encode()) & 0x7FFFFFFF) % 3 == 1}
    with pytest.raises(KafkaError, match=f"message {min(failed)} of 100: produce to t/1"):
        await deliveries
    assert set(deliveries.errors()) == failed


@pytest.mark.parametrize("name", sorted(TWINS))
def test_both_twins_choose_the_same_partitions(name: str) -> None:
    rng = random.Random(5)
    keys = [None, b"", *(rng.randbytes(rng.randrange(20)) for _ in range(500))]
    column = pa.array(keys, pa.binary())
    validity, offsets, data = column.buffers()
    blobs = Twin(name).BinaryColumn(0, len(column), validity, offsets, data)
    functions = [_murmur2_py.partitions_of, Twin(name).partitions_of]
    for partitions in ([0], [0, 1, 2], [3, 5, 1000]):
        expected = [
            -1 if key is None else partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
            for key in keys
        ]
        for function in functions:
            assert list(function(blobs, partitions)) == expected
    for function in functions:
        with pytest.raises(ValueError, match="no partitions"):
            function(blobs, [])


SEND_BATCHES = """
import asyncio
from array import array
import pyarrow as pa
from aiokafka08 import AIOKafkaProducer
from aiokafka08._core.arrow import scalar
from aiokafka08.errors import IllegalArgumentError, MessageSizeTooLargeError
from aiokafka08.testing import EmbeddedCluster

def column(kind, numbers, valid):
    buffers = [pa.py_buffer(valid), pa.py_buffer(array(kind, numbers))]
    return pa.Array.from_buffers(pa.int32() if kind == "i" else pa.int64(), 4, buffers)

async def send():
    values = pa.Array.from_buffers(
        pa.binary(), 4, [None, pa.py_buffer(array("i", range(5))), pa.py_buffer(b"abcd")]
    )
    rows = {
        "value": values,
        "key": pa.Array.from_buffers(
            pa.binary(), 4, [pa.py_buffer(bytes([6])), *values.buffers()[1:]]
        ),
        "partition": column("i", [0, 2, 0, 1], bytes([8])),
        "timestamp": column("q", [1, 2, 3, 4], bytes([9])),
    }
    async with EmbeddedCluster(version="0.10", topics={"t": 3}) as cluster:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, max_request_size=1000
        ) as producer:
            for names in (["value"], ["value", "key"], list(rows)):
                batch = pa.RecordBatch.from_pydict({name: rows[name] for name in names})
                assert len(await (await producer.send_arrow("t", batch))) == 4
            wrong = {"value": values, "timestamp": column("q", [1, 2, 3, -1], bytes([15]))}
            try:
                await producer.send_arrow("t", pa.RecordBatch.from_pydict(wrong))
            except IllegalArgumentError as error:
                assert "row 3 has -1 ms" in str(error)
            offsets = pa.py_buffer(array("i", [0, 5000]))
            buffers = [None, offsets, pa.py_buffer(bytes(5000))]
            large = pa.Array.from_buffers(pa.binary(), 1, buffers)
            try:
                await producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": large}))
                raise AssertionError("sent")
            except MessageSizeTooLargeError:
                pass

asyncio.run(send())
"""


def test_send_arrow_where_pandas_exists_doesn_t_import_it(tmp_path: Path) -> None:
    assert not imports_pandas(SEND_BATCHES, tmp_path)
