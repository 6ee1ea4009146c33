"""getmany_arrow()."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core import arrow
from aiokafka08.errors import (
    IllegalStateError,
    KafkaConfigurationError,
)
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, slices_of, tp, values
from tests.support.fake_pandas import imports_pandas
from tests.support.waiting import until

pytestmark = pytest.mark.twins


async def test_getmany_arrow_returns_columns_and_respects_limits(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [b"v", None, b""], keys=[b"k", b"k2", None])
    cluster.append("t", 2, [b"w"])
    consumer = make_consumer("t", parts=slices_of(10.0))  # on any machine
    await consumer.start()
    assert (await consumer.getmany_arrow(tp(3))).num_rows == 0
    await until(lambda: consumer.metrics()["lag"] == 4)
    batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=2)
    rest = await consumer.getmany_arrow(timeout_ms=1000)
    rows = sorted(
        (batch.to_pylist() + rest.to_pylist()), key=lambda row: (row["partition"], row["offset"])
    )
    assert batch.num_rows == 2
    assert batch.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    common = {"topic": "t", "timestamp": None, "timestampType": None}
    assert rows == [
        {"key": b"k", "value": b"v", "partition": 0, "offset": 0, **common},
        {"key": b"k2", "value": None, "partition": 0, "offset": 1, **common},
        {"key": None, "value": b"", "partition": 0, "offset": 2, **common},
        {"key": None, "value": b"w", "partition": 2, "offset": 0, **common},
    ]


@pytest.mark.parametrize("decoded", [0, 1])
async def test_limited_arrow_batch_moves_the_position_behind_it(
    cluster: EmbeddedCluster,
    make_consumer: MakeConsumer,
    decoded: int,
) -> None:
    """Whether or not `getone()` has decoded the messages before."""
    cluster.append("t", 0, values(0, 50))
    consumer = make_consumer(parts=slices_of(10.0))  # on any machine
    consumer.assign([tp(0)])
    await consumer.start()
    for _ in range(decoded):
        await consumer.getone()
    batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=20)
    assert batch.column("offset").to_pylist() == [*range(decoded, decoded + 20)]
    assert await consumer.position(tp(0)) == decoded + 20


async def test_getmany_arrow_needs_pyarrow_and_no_deserializers(
    make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make_consumer("t", value_deserializer=str)
    await consumer.start()
    with pytest.raises(IllegalStateError, match="deserializers"):
        await consumer.getmany_arrow()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(KafkaConfigurationError, match=r"aiokafka08\[arrow\]"):
        await consumer.getmany_arrow()


async def test_failed_arrow_batch_is_returned_again(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append("t", 0, values(0, 5))
    consumer = make_consumer("t")
    await consumer.start()

    def fail(runs: Any, columns: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("aiokafka08._core.arrow.record_batch", fail)
        with pytest.raises(MemoryError):
            await consumer.getmany_arrow(timeout_ms=1000)
    assert (await consumer.getmany_arrow(timeout_ms=1000)).num_rows == 5


async def test_pyarrow_is_imported_in_a_thread(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append("t", 0, values(0, 5))
    consumer = make_consumer("t")
    await consumer.start()
    imports: list[threading.Thread] = []
    require_pyarrow = arrow.require_pyarrow

    def record_thread() -> Any:
        imports.append(threading.current_thread())
        return require_pyarrow()

    monkeypatch.setattr(arrow, "_imported", threading.Event())  # as in a new process
    monkeypatch.setattr(arrow, "require_pyarrow", record_thread)
    assert (await consumer.getmany_arrow(timeout_ms=1000)).num_rows == 5
    assert imports[0] is not threading.main_thread()
    imports.clear()
    await consumer.getmany_arrow()
    assert set(imports) <= {threading.main_thread()}  # no thread once it is imported


async def test_kept_batches_don_t_change(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Batches share memory only after nothing refers to the earlier one."""
    for partition in range(4):
        cluster.append("t", partition, values(0, 500))
    consumer = make_consumer("t")
    await consumer.start()
    kept, dropped = [], 0
    for number in range(200):
        batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=10)
        if number % 3:
            kept.append((batch.slice(2), batch.to_pylist()[2:]))
        else:
            dropped += batch.num_rows
        del batch
    assert dropped == 67 * 10
    for batch, rows in kept:
        assert batch.to_pylist() == rows
        batch.validate(full=True)


READ_BATCHES = """
import asyncio
from aiokafka08 import AIOKafkaConsumer
from aiokafka08.testing import EmbeddedCluster

async def read():
    async with EmbeddedCluster() as cluster:
        for topic in ("a", "b"):
            cluster.create_topic(topic, partitions=2)
            for partition in range(2):
                cluster.append(topic, partition, [b"v", None], keys=[b"k", None])
        async with AIOKafkaConsumer(
            "a", "b", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            count = 0
            while count < 8:
                batch = await consumer.getmany_arrow(timeout_ms=5000)
                count += batch.num_rows
                batch.validate(full=True)
            assert (await consumer.getmany_arrow()).num_rows == 0

asyncio.run(read())
"""


def test_getmany_arrow_where_pandas_exists_doesn_t_import_it(tmp_path: Path) -> None:
    assert not imports_pandas(READ_BATCHES, tmp_path)
