"""Random seeks, pauses, assignments, cancelled calls, large messages and faults, in virtual time.

Invariant: each message of each partition comes once and in order, from the last seek on.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.protocol.api import Request
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.structs import ConsumerRecord
from aiokafka08.testing import Answer, Close, EmbeddedCluster, Omit
from aiokafka08.testing.faults import Effect
from aiokafka08.testing.simulation import simulate
from tests.consumer.conftest import Consumer, MakeConsumer, tp
from tests.support.full import in_full

pytestmark = pytest.mark.twins

PARTITIONS = range(4)
STEPS = 1000


class Reader:
    """Act as the user, and check what the consumer returns."""

    def __init__(self, consumer: Consumer, cluster: EmbeddedCluster, seed: int) -> None:
        self.consumer = consumer
        self.cluster = cluster
        self.choose = random.Random(seed)
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.next = dict.fromkeys(PARTITIONS, 0)
        """The offset of the next message of each partition that is assigned."""
        self.taken = 0

    def came(self, record: ConsumerRecord[Any, Any]) -> None:
        assert record.offset == self.next[record.partition], record
        assert tp(record.partition) not in self.consumer.paused()
        self.next[record.partition] += 1
        self.taken += 1

    def some(self) -> list[int]:
        return self.choose.sample(sorted(self.next), self.choose.randint(1, len(self.next)))

    def append(self) -> None:
        choose, partition = self.choose, self.choose.choice(PARTITIONS)
        sizes = choose.choice([[10] * 5, [1000] * 30, [150_000], [10, 150_000, 10]])
        codec = choose.choice([Codec.NONE, Codec.GZIP])
        self.cluster.append("t", partition, [choose.randbytes(size) for size in sizes], codec=codec)
        self.ends[partition] += len(sizes)

    def seek(self) -> None:
        partition = self.choose.choice(sorted(self.next))
        self.next[partition] = self.choose.randint(0, self.ends[partition])
        self.consumer.seek(tp(partition), self.next[partition])

    def pause(self) -> None:
        self.consumer.pause(*map(tp, self.some()))

    def resume(self) -> None:
        self.consumer.resume(*map(tp, self.some()))

    def assign(self) -> None:
        wanted = self.choose.sample(PARTITIONS, self.choose.randint(1, len(PARTITIONS)))
        self.consumer.assign(map(tp, wanted))
        self.next = {partition: self.next.get(partition, 0) for partition in wanted}

    def trouble(self) -> None:
        effects: list[Effect] = [Close(), Close(after_bytes=50), Answer(6), Omit()]
        effect = self.choose.choice(effects)
        requests: list[type[Request[Any]]] = [FetchRequest, ListOffsetsRequest]
        request = self.choose.choice(requests)
        if request is FetchRequest and not self.choose.randrange(4):
            effect = Answer(1)  # KAFKA-2477
        self.cluster.fault(request, then=effect, where=lambda request: bool(request.topics))

    def move(self) -> None:
        self.cluster.move_leader("t", self.choose.choice(PARTITIONS))

    async def one(self) -> None:
        which = map(tp, self.some()) if self.choose.randrange(2) else ()
        call = asyncio.create_task(self.consumer.getone(*which))
        await asyncio.sleep(self.choose.choice([0.0, 0.001, 0.005, 0.02]))
        for _ in range(self.choose.randint(0, 10)):
            await asyncio.sleep(0)
        call.cancel()
        try:
            self.came(await call)
        except asyncio.CancelledError:
            pass

    async def many(self) -> None:
        which = map(tp, self.some()) if self.choose.randrange(2) else ()
        got = await self.consumer.getmany(
            *which,
            timeout_ms=self.choose.choice([0, 1, 20]),
            max_records=self.choose.choice([None, 1, 7]),
        )
        for records in got.values():
            for record in records:
                self.came(record)


@pytest.mark.parametrize("seed", [*range(3), *in_full(*range(3, 40))])
def test_random_calls_get_each_message_once_in_order(seed: int) -> None:
    with simulate(seed, brokers=2, topics={"t": len(PARTITIONS)}) as world:
        world.run(partial(call_at_random, world.cluster, seed))


async def call_at_random(cluster: EmbeddedCluster, seed: int) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
        max_partition_fetch_bytes=4000,
        fetch_max_bytes=200_000,
        fetch_max_wait_ms=20,
    ) as consumer:
        await call(Reader(consumer, cluster, seed))


async def call(reader: Reader) -> None:
    """Make the calls, then take what is left."""
    consumer = reader.consumer
    consumer.assign(map(tp, PARTITIONS))
    acts = {
        reader.append: 6,
        reader.seek: 2,
        reader.pause: 1,
        reader.resume: 2,
        reader.assign: 1,
        reader.trouble: 1,
        reader.move: 1,
        reader.one: 6,
        reader.many: 6,
    }
    for _ in range(STEPS):
        (act,) = reader.choose.choices(list(acts), list(acts.values()))
        if (doing := act()) is not None:
            await doing
    reader.cluster.clear_faults()
    consumer.resume(*consumer.paused())
    async with asyncio.timeout(40):
        while any(reader.ends[one] > at for one, at in reader.next.items()):
            reader.came(await consumer.getone())
    assert reader.taken > STEPS // 8


async def test_seek_wins_over_a_search_for_a_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Also if a request for the position is decided but not sent yet."""
    cluster.append("t", 0, [b"%d" % number for number in range(10)])
    consumer = make_consumer()
    await consumer.start()
    for iterations in range(30):
        consumer.assign([tp(0)])
        for _ in range(iterations):
            await asyncio.sleep(0)
        consumer.seek(tp(0), 5)
        assert (await asyncio.wait_for(consumer.getone(), 5)).offset == 5, iterations
        consumer.unsubscribe()
