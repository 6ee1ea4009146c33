"""The option `headers` of the producer: what reaches the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08._core import arrow_headers
from aiokafka08.embedded_headers import embed, extract
from aiokafka08.errors import (
    IllegalArgumentError,
    IllegalStateError,
    UnsupportedVersionError,
)
from aiokafka08.testing import EmbeddedCluster
from tests.support.fake_pandas import imports_pandas

HEADERS = [("a", b"b")]
ENVELOPE = b'\xff\x01\x01a\x00\x00\x00\x03"b"'
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 1}) as running:
        yield running


def producer_of(cluster: EmbeddedCluster, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)


def logged(cluster: EmbeddedCluster) -> list[bytes | None]:
    return [message.value for message in cluster.log("t", 0)]


async def send_in_all_ways(producer: AIOKafkaProducer, value: Any, headers: Any) -> None:
    await (await producer.send("t", value, b"k", headers=headers))
    await producer.send_and_wait("t", value, b"k", headers=headers)
    await (await producer.send_many("t", [value], [b"k"], headers=iter([headers])))
    batch = producer.create_batch()
    batch.append(timestamp=None, key=b"k", value=value, headers=headers)
    await (await producer.send_batch(batch, "t", partition=0))


def arrow_batch(values: list[bytes | None], headers: list[Any]) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary()), "headers": pa.array(headers, ARROW_HEADERS)}
    return pa.RecordBatch.from_pydict(columns)


async def test_refused_headers_name_the_two_other_modes(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, value_serializer=lambda value: value) as producer:
        choices = "headers='drop'.*headers='embedded'.*AIOKAFKA08_HEADERS"
        with pytest.raises(UnsupportedVersionError, match=choices):
            await producer.send("t", b"v", headers=HEADERS)
        with pytest.raises(UnsupportedVersionError, match=choices):
            await producer.send_and_wait("t", b"v", headers=HEADERS)
        with pytest.raises(UnsupportedVersionError, match=f"message 1: .*{choices}"):
            await producer.send_many("t", [b"v", b"w"], headers=[(), HEADERS])
        with pytest.raises(UnsupportedVersionError, match=choices):
            producer.create_batch().append(timestamp=None, key=b"", value=b"", headers=HEADERS)
        rows = arrow_batch([b"v"], [[{"key": "a", "value": b"b"}]])
        with pytest.raises(UnsupportedVersionError, match=f"column 'headers': 1 rows: .*{choices}"):
            await producer.send_arrow("t", rows)
        await (await producer.send_arrow("t", arrow_batch([b"v", b"w"], [None, []])))
        await send_in_all_ways(producer, b"\xff", [])
        assert producer.metrics()["headers_dropped"] == 0
    assert logged(cluster) == [b"v", b"w", *[b"\xff"] * 4]


async def test_dropped_headers_are_counted_and_logged_once_a_topic(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer_of(cluster, client_id="me", headers="drop") as producer:
        await send_in_all_ways(producer, b"\xff", HEADERS)
        await send_in_all_ways(producer, b"v", None)
        rows = arrow_batch([b"v", b"w", None], [[{"key": "a", "value": b"b"}]] * 2 + [[]])
        await (await producer.send_arrow("t", rows))
        assert producer.metrics()["headers_dropped"] == 6
    assert logged(cluster) == [b"\xff"] * 4 + [b"v"] * 4 + [b"v", b"w", None]
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.getMessage() for one in warnings] == [
        "me: topic 't': headers are dropped (headers='drop'); logged once for a topic"
    ]


async def test_batch_sent_twice_counts_its_headers_once(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, headers="drop") as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"k", value=b"v", headers=HEADERS)
        await (await producer.send_batch(batch, "t", partition=0))
        with pytest.raises(IllegalStateError, match="sent before"):
            await producer.send_batch(batch, "t", partition=0)
        assert producer.metrics()["headers_dropped"] == 1


@pytest.mark.parametrize("mode", ["drop", "embedded"])
async def test_refused_messages_count_no_dropped_headers(
    cluster: EmbeddedCluster, mode: str
) -> None:
    async with producer_of(cluster, headers=mode) as producer:
        with pytest.raises(IllegalArgumentError, match="timestamp_ms"):
            await producer.send("t", None, b"k", timestamp_ms=-1, headers=HEADERS)
        assert producer.metrics()["headers_dropped"] == 0
    assert logged(cluster) == []


async def test_refused_list_counts_no_dropped_headers(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, headers="embedded") as producer:
        headers = [HEADERS, [("a", b"\xff")]]
        with pytest.raises(IllegalArgumentError, match="isn't text in UTF-8"):
            await producer.send_many("t", [None, b"v"], [b"k"] * 2, headers=headers)
        assert producer.metrics()["headers_dropped"] == 0


async def test_drop_mode_sends_without_headers_on_the_fast_path(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with producer_of(cluster, headers="drop") as producer:
        await producer.send_and_wait("t", b"0")  # opens the route

        def prepare(*_: object) -> None:
            raise AssertionError("prepared")

        monkeypatch.setattr(producer, "_prepare", prepare)
        await producer.send("t", b"1")
        await producer.send_and_wait("t", b"2", headers=[])
    assert logged(cluster) == [b"0", b"1", b"2"]


def test_counting_rows_with_headers_reads_no_header() -> None:
    """The count comes from the lengths of the lists: it doesn't hold the event loop."""
    header = [{"key": "a", "value": b"b"}]
    rows = [None, header, [], header * 2, [None], None, header]
    for type_ in (ARROW_HEADERS, pa.large_list(ARROW_HEADERS.value_type)):
        batch = pa.RecordBatch.from_pydict({"headers": pa.array(rows, type_)})
        with mock.patch.object(arrow_headers, "read_headers", side_effect=AssertionError):
            assert arrow_headers.count_rows_with_headers(batch) == 4
            assert arrow_headers.count_rows_with_headers(batch.slice(2, 3)) == 2
            assert arrow_headers.count_rows_with_headers(batch.slice(0, 0)) == 0
    nulls = pa.RecordBatch.from_pydict({"headers": pa.nulls(2)})
    assert arrow_headers.count_rows_with_headers(nulls) == 0


async def test_embedded_headers_are_written_before_the_value(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, headers="embedded", value_serializer=str.encode) as producer:
        await send_in_all_ways(producer, "v", HEADERS)
        await send_in_all_ways(producer, "v", ())
    assert logged(cluster) == [ENVELOPE + b"v"] * 4 + [b"v"] * 4


async def test_embedded_mode_escapes_values_that_begin_with_the_mark(
    cluster: EmbeddedCluster,
) -> None:
    async with producer_of(cluster, headers="embedded") as producer:
        await send_in_all_ways(producer, b"\xffv", None)
        await send_in_all_ways(producer, bytearray(b""), None)
    assert logged(cluster) == [b"\xff\x00\xffv"] * 4 + [b""] * 4


@pytest.mark.parametrize("headers", [None, [HEADERS, None, ()] * 1000], ids=["none", "some"])
async def test_embedded_mode_takes_each_of_many_messages_once(
    cluster: EmbeddedCluster, headers: Any
) -> None:
    values = [b"\xff%d" % number if number % 2 else b"%d" % number for number in range(3000)]
    async with producer_of(cluster, headers="embedded") as producer:
        await (await producer.send_many("t", values, headers=headers))
    expected = [
        embed(one, given) for one, given in zip(values, headers or [None] * 3000, strict=True)
    ]
    assert logged(cluster) == expected
    assert [extract(one)[0] for one in expected if one is not None] == values


async def test_embedded_mode_keeps_tombstones(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer_of(cluster, headers="embedded") as producer:
        await send_in_all_ways(producer, None, HEADERS)
        await (await producer.send_arrow("t", arrow_batch([None], [[{"key": "a", "value": b"b"}]])))
        assert producer.metrics()["headers_dropped"] == 5
    assert logged(cluster) == [None] * 5
    assert "a null value can't have any" in caplog.text
    assert caplog.text.count("headers are dropped") == 1


async def test_impossible_headers_leave_nothing_buffered(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, headers="embedded") as producer:
        with pytest.raises(IllegalArgumentError, match="isn't text in UTF-8"):
            await producer.send("t", b"v", headers=[("a", b"\xff")])
        with pytest.raises(IllegalArgumentError, match="isn't text in UTF-8") as caught:
            await producer.send_many("t", [b"v", b"w"], headers=[None, [("a", b"\xff")]])
        assert caught.value.__notes__ == ["message 1"]
        with pytest.raises(IllegalArgumentError, match="1 headers for 2 values"):
            await producer.send_many("t", [b"v", b"w"], headers=[None])
        with pytest.raises(IllegalArgumentError, match="isn't text in UTF-8") as caught:
            await producer.send_arrow("t", arrow_batch([b"v"], [[{"key": "a", "value": b"\xff"}]]))
        assert caught.value.__notes__ == ["row 0"]
        with pytest.raises(TypeError, match=r"'headers': type int64; expected list<struct"):
            await producer.send_arrow(
                "t", pa.RecordBatch.from_pydict({"value": [b""], "headers": [1]})
            )
        assert producer.metrics()["buffer_used_bytes"] == 0
    assert logged(cluster) == []


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_string(), pa.binary_view()], ids=str)
async def test_arrow_rows_are_embedded(cluster: EmbeddedCluster, type_: pa.DataType) -> None:
    header = [{"key": "a", "value": b"b"}]
    values = [b"skip", b"v", None, b"", b"w", b"x"]
    headers = pa.array(
        [[], header, None, header, [], None], pa.large_list(ARROW_HEADERS.value_type)
    )
    columns = {"value": pa.array(values, pa.binary()).cast(type_), "headers": headers}
    rows = pa.RecordBatch.from_pydict(columns).slice(1)
    async with producer_of(cluster, headers="embedded") as producer:
        await (await producer.send_arrow("t", rows))
        await (await producer.send_arrow("t", rows.select(["value"])))
    assert logged(cluster) == [
        ENVELOPE + b"v",
        None,
        ENVELOPE,
        b"w",
        b"x",
        b"v",
        None,
        b"",
        b"w",
        b"x",
    ]


CONVERT_BATCHES = """
import pyarrow as pa
from aiokafka08._core.arrow_headers import (
    _binary_array, change_headers, count_rows_with_headers, embed_rows, extract_rows, headers_type
)
from aiokafka08._core.concurrency.loop_yield import finish_steps

def batch_of(values):
    return pa.RecordBatch.from_arrays([_binary_array(pa, pa.binary(), values)], ["value"])

def embedded(batch):
    return finish_steps(embed_rows(batch))[0]["value"].to_pylist()

values = [b"v", b"\\xff\\x01\\x01a\\x00\\x00\\x00\\x03\\"b\\"p", None]
assert embedded(batch_of([b"\\xff"])) == [b"\\xff\\x00\\xff"]
assert embedded(finish_steps(extract_rows(batch_of(values), [len(values)]))[0]) == values
changed = finish_steps(change_headers(batch_of([b"v", None]), lambda *_: [("a", b"b")]))
assert changed["headers"].to_pylist() == [[{"key": "a", "value": b"b"}]] * 2
headers = pa.nulls(3, headers_type())
assert count_rows_with_headers(batch_of(values).append_column("headers", headers)) == 0
"""


def test_converting_rows_imports_no_pandas(tmp_path: Path) -> None:
    assert not imports_pandas(CONVERT_BATCHES, tmp_path)


async def test_default_mode_comes_from_the_environment(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKA08_HEADERS", "embedded")
    async with producer_of(cluster) as producer:
        await producer.send_and_wait("t", b"v", headers=HEADERS)
    monkeypatch.setenv("AIOKAFKA08_HEADERS", "yes")
    with pytest.raises(IllegalArgumentError, match="AIOKAFKA08_HEADERS='yes'"):
        producer_of(cluster)
    assert logged(cluster) == [ENVELOPE + b"v"]
