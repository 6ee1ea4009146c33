"""A worker goes on where another ended, with billing_worker.py of docs/guides/handover.md."""

import asyncio
import contextlib

import pytest
from billing_worker import bill


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
async def test_a_worker_goes_on_where_another_ended(kafka_cluster):
    billed = asyncio.Queue()

    async def bill_until(*committed):
        worker = asyncio.create_task(bill(kafka_cluster.bootstrap_servers, billed.put))
        while tuple(map(offset_of, (0, 1))) != committed and not worker.done():
            await asyncio.sleep(0.01)
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker  # raises what else has ended it
        return {billed.get_nowait() for _ in range(billed.qsize())}

    def offset_of(partition):
        commit = kafka_cluster.committed("billing", "orders", partition)
        return commit and commit.offset

    async with asyncio.timeout(60):
        kafka_cluster.append("orders", 0, [b"tea"])
        kafka_cluster.append("orders", 1, [b"milk"])
        assert await bill_until(1, 1) == {b"milk", b"tea"}
        kafka_cluster.append("orders", 1, [b"sugar"])
        assert await bill_until(1, 2) == {b"sugar"}
