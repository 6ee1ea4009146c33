"""Two workers, and an hour without a broker: docs/testing.md says what its seeds find."""

import asyncio

import pytest
from billing import bill_orders


class Ledger:
    def __init__(self):
        self.orders = set()  # an order that is written twice is in it once

    async def write(self, orders):
        await asyncio.sleep(0.1)
        self.orders.update(orders)


@pytest.mark.kafka_simulation(seeds=3, brokers=1, version="0.9", topics={"orders": 4})
def test_every_order_is_billed(kafka_world):
    cluster, random, ledger = kafka_world.cluster, kafka_world.random, Ledger()
    placed = set()

    async def place_orders(count):
        for _ in range(count):
            order = b"order %d" % len(placed)
            cluster.append("orders", random.randrange(4), [order])
            placed.add(order)
            await asyncio.sleep(random.uniform(0, 2))

    async def scenario():
        workers = []
        for name in ("worker 0", "worker 1"):  # each one that joins is a rebalance
            with kafka_world.process(name):
                billing = bill_orders(cluster.bootstrap_servers, ledger)
                workers.append(asyncio.create_task(billing))
            await place_orders(20)
        for node in cluster.nodes:
            cluster.kill(node)
        await asyncio.sleep(3600)
        for node in cluster.nodes:
            cluster.restart(node)
        await place_orders(20)
        await asyncio.sleep(60)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)

    kafka_world.run(scenario)
    assert placed - ledger.orders == set()
