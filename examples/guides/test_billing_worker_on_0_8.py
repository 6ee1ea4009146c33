"""A worker takes over on 0.8, in virtual time: billing_worker.py of docs/guides/handover.md."""

import asyncio
import contextlib

import pytest
from billing_worker import bill


@pytest.mark.kafka_simulation(seeds=3, brokers=1, version="0.8.2", topics={"orders": 2})
def test_a_worker_takes_over_on_0_8(kafka_world):
    cluster, billed = kafka_world.cluster, set()

    async def handle(value):
        await asyncio.sleep(0.1)
        billed.add(value)

    def start(name):
        with kafka_world.process(name):  # two processes, as in production
            zookeeper = kafka_world.zookeeper_connect
            return asyncio.create_task(bill(cluster.bootstrap_servers, handle, zookeeper))

    async def end(worker):
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker  # raises what else has ended it

    many = [b"order %d" % number for number in range(100)]

    async def scenario():
        first = start("worker 1")
        cluster.append("orders", 0, [b"tea"])
        cluster.append("orders", 1, [b"milk"])
        await asyncio.sleep(60)
        cluster.append("orders", 1, many)
        second = start("worker 2")  # it gets the partition that the first one bills just now
        await asyncio.sleep(60)  # each has a partition now
        await end(first)
        cluster.append("orders", 0, [b"sugar"])
        cluster.append("orders", 1, [b"bread"])
        await asyncio.sleep(60)
        await end(second)

    kafka_world.run(scenario)
    assert billed == {b"bread", b"milk", b"sugar", b"tea", *many}
