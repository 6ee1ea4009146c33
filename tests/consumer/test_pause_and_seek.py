"""pause(), resume(), seek(), position() and the watermarks of a partition."""

from __future__ import annotations

import pytest

from aiokafka08.errors import (
    IllegalStateError,
)
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, take, tp, values
from tests.support.waiting import until


async def test_resume_returns_what_was_fetched_before_the_pause(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 5))
    consumer = make_consumer("t")
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 0)
    consumer.pause(tp(0))
    assert consumer.paused() == {tp(0)}
    cluster.append("t", 1, values(0, 5))
    assert {r.partition for r in await take(consumer, 5)} == {1}
    assert await consumer.getmany(timeout_ms=50) == {}
    assert consumer.metrics()["buffered_bytes"] > 0
    requests = len(cluster.requests(FetchRequest))
    consumer.resume(tp(0))
    assert [r.offset for r in await take(consumer, 5)] == list(range(5))
    assert len(cluster.requests(FetchRequest)) <= requests + 2  # not fetched again
    consumer.pause()
    consumer.resume()
    assert consumer.paused() == set()


async def test_seek_drops_fetched_messages_and_stale_responses(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 100))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    consumer.seek(tp(0), 90)  # before the start already
    await consumer.start()
    assert (await consumer.getone()).offset == 90
    for offset in (10, 50, 99, 0):
        consumer.seek(tp(0), offset)
        assert await consumer.position(tp(0)) == offset
        assert (await consumer.getone()).offset == offset
    assert await consumer.seek_to_end()
    assert await consumer.position(tp(0)) == 100
    # An idle poll from 100 is in flight: its response doesn't count after the seek.
    await until(lambda: consumer.metrics()["requested_bytes"] > 0)
    consumer.seek(tp(0), 98)
    cluster.append("t", 0, values(100, 101))
    assert [r.offset for r in await take(consumer, 3)] == [98, 99, 100]
    assert await consumer.seek_to_beginning(tp(0))
    assert (await consumer.getone()).offset == 0


async def test_wrong_offsets_and_partitions_raise(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    for wrong in (-1, "3", None, 1.0, 2**63):
        with pytest.raises(ValueError, match="offset"):
            consumer.seek(tp(0), wrong)  # type: ignore[arg-type]
    consumer.seek(tp(0), 2**63 - 1)
    assert await consumer.position(tp(0)) == 2**63 - 1
    with pytest.raises(IllegalStateError):
        consumer.seek(tp(1), 0)
    with pytest.raises(IllegalStateError):
        await consumer.position(tp(1))
    with pytest.raises(IllegalStateError):
        await consumer.seek_to_end(tp(1))
    with pytest.raises(TypeError):
        await consumer.seek_to_beginning("t")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        consumer.pause("t")  # type: ignore[arg-type]
    for call in (consumer.highwater, consumer.last_poll_timestamp, consumer.last_stable_offset):
        with pytest.raises(IllegalStateError):
            call(tp(1))


async def test_watermark_lag_and_poll_time(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    assert not consumer.ready()
    await consumer.start()
    cluster.append("t", 0, values(0, 5))
    await until(lambda: consumer.highwater(tp(0)) == 5)
    assert consumer.metrics()["lag{t-0}"] == 5
    assert consumer.last_stable_offset(tp(0)) is None
    polled = consumer.last_poll_timestamp(tp(0))
    assert polled is not None
    assert polled > 1_700_000_000_000
    await take(consumer, 5)
    assert consumer.metrics()["lag"] == 0
    await until(consumer.ready)
    await consumer.stop()
    assert not consumer.ready()
