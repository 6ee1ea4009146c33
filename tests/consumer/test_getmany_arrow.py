"""getmany_arrow()."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08.errors import (
    IllegalStateError,
    KafkaConfigurationError,
)
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, tp, values
from tests.waiting import until


async def test_getmany_arrow_returns_columns_and_respects_limits(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokafka08.concurrency.loop_yield.SLICE_S", 10.0)  # on any machine
    cluster.append("t", 0, [b"v", None, b""], keys=[b"k", b"k2", None])
    cluster.append("t", 2, [b"w"])
    consumer = make_consumer("t")
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
        patch.setattr("aiokafka08.arrow.record_batch", fail)
        with pytest.raises(MemoryError):
            await consumer.getmany_arrow(timeout_ms=1000)
    assert (await consumer.getmany_arrow(timeout_ms=1000)).num_rows == 5
