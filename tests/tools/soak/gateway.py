"""`python -m tests.tools.soak gateway --minutes 60`: a gateway under load, before a real 4.1.0.

The gateway is a process, as its users run it. Two producers, one plain and one of LZ4, send 50,000
messages of 100 bytes a second in all; a group of two reads and commits, so that each message is
translated both ways. Twice a second a client connects, reads a message and leaves. Prints a line a
minute with the messages that were read a second, and in the end the trend of each gauge of the
gateway's process.

Invariant: nothing fails here, so the group reads each message once, in order; anything else is an
error. Exit code 0, or 1 if a gauge grows, or if in the last third of the time fewer than half as
many messages are read a second as in the first one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests._tools.gateway.processes import Gateways
from tests.brokers.cluster import RealCluster
from tests.support.arguments import positive_number
from tests.support.waiting import until
from tests.tools.soak import gauges
from tests.tools.soak.rates import Rates
from tests.tools.soak.sampling import report, sample

TARGET = "4.1.0"
PARTITIONS = 4
PER_SECOND = 50_000.0
_TOPIC = "soak"
_MEMBERS = 2
_ROUND_S = 0.02
_VISIT_S = 0.5
_DRAIN_S = 300.0
_NUMBER_BYTES = 8
_PADDING = os.urandom(46) * 2
"""What follows the number of a message: 100 bytes in all, half of which LZ4 takes away."""
_RETENTION = {"segment.bytes": str(64 << 20), "retention.bytes": str(256 << 20)}
"""An hour's messages are some 18 GB."""


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="nox -s soak -- gateway", description=__doc__)
    parser.add_argument("--minutes", type=positive_number, default=10.0)
    parser.add_argument("--per-second", type=positive_number, default=PER_SECOND)
    parser.add_argument("--sample-every", type=positive_number, default=5.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    found, rates = asyncio.run(
        soak_gateway(60 * options.minutes, options.per_second, options.sample_every)
    )
    return report(found, rates)


async def soak_gateway(
    seconds: float, per_second: float, sample_every_s: float
) -> tuple[gauges.Gauges[gauges.OtherSample], Rates]:
    """Run a gateway and its clients; return the samples of its process, and what was read.

    Raises:
        AssertionError: a message is lost, read twice or out of order.
    """
    found, rates = gauges.Gauges[gauges.OtherSample](), Rates("messages")
    async with contextlib.AsyncExitStack() as stack:
        cluster = RealCluster(TARGET)
        stack.push_async_callback(asyncio.to_thread, cluster.close)
        await asyncio.to_thread(cluster.start)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        made = admin.create_topics([NewTopic(_TOPIC, PARTITIONS, 1, config=_RETENTION)])
        await asyncio.to_thread(made[_TOPIC].result, 60)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        gateways = Gateways(cluster.bootstrap_servers, folder, 1)
        stack.callback(gateways.close)
        await asyncio.to_thread(gateways.start, 0)
        process = psutil.Process(gateways.pid(0))
        traffic = Traffic(gateways.servers, per_second)
        async with traffic.running() as tasks:
            await sample(
                found,
                tasks,
                seconds,
                sample_every_s,
                lambda: str(traffic),
                lambda: gauges.read_other(process),
                rates,
                lambda: traffic.read_count,
            )
        print(traffic, "all read once, in order", sep="; ", flush=True)
    return found, rates


class Traffic:
    """Clients of a gateway, and what they have done.

    Args:
        servers: the gateway's addresses.
        per_second: messages to send a second, over all partitions.
    """

    def __init__(self, servers: str, per_second: float) -> None:
        self._servers = servers
        self._per_second = per_second
        self._sent = [0] * PARTITIONS
        self._read = [0] * PARTITIONS
        self._visits = 0
        self._stop = asyncio.Event()

    def __str__(self) -> str:
        return f"{sum(self._sent)} sent, {self.read_count} read, {self._visits} visits"

    @property
    def read_count(self) -> int:
        """How many messages the group has read."""
        return sum(self._read)

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Run the clients during the body, which gets their tasks; then wait until all is read."""
        async with contextlib.AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(
                    AIOKafkaProducer(
                        bootstrap_servers=self._servers, acks="all", compression_type=codec
                    )
                )
                for codec in (None, "lz4")
            ]
            members = [
                await stack.enter_async_context(self._member(number)) for number in range(_MEMBERS)
            ]
            senders = [
                asyncio.create_task(self._send(producers[number % 2], number), name="a sender")
                for number in range(PARTITIONS)
            ]
            others = [
                *(asyncio.create_task(self._receive(one), name="a member") for one in members),
                asyncio.create_task(self._visit(), name="the visitors"),
            ]
            try:
                yield [*senders, *others]
                self._stop.set()
                await asyncio.gather(*senders)

                def is_read() -> bool:
                    for task in others:
                        if task.done():
                            task.result()
                    return self._read == self._sent

                await until(is_read, "the group has read all", _DRAIN_S)
            finally:
                for task in (*senders, *others):
                    task.cancel()
                await asyncio.gather(*senders, *others, return_exceptions=True)

    def _member(self, number: int) -> AIOKafkaConsumer[Any, Any]:
        return AIOKafkaConsumer(
            _TOPIC,
            bootstrap_servers=self._servers,
            client_id=f"soak-{number}",
            group_id=_TOPIC,
            auto_offset_reset="earliest",
        )

    async def _send(self, producer: AIOKafkaProducer, partition: int) -> None:
        """Send as many messages as are due, again and again; after a delay, all that are late."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._stop.is_set():
            due = int((loop.time() - began) * self._per_second / PARTITIONS)
            first = self._sent[partition]
            values = [
                number.to_bytes(_NUMBER_BYTES, "big") + _PADDING for number in range(first, due)
            ]
            await (await producer.send_many(_TOPIC, values, partition=partition))
            self._sent[partition] = max(first, due)
            await asyncio.sleep(_ROUND_S)

    async def _receive(self, member: AIOKafkaConsumer[Any, Any]) -> None:
        while True:
            for partition, records in (await member.getmany(timeout_ms=500)).items():
                first = self._read[partition.partition]
                numbers = [
                    int.from_bytes((one.value or b"")[:_NUMBER_BYTES], "big") for one in records
                ]
                expected = list(range(first, first + len(records)))
                assert numbers == expected, (partition, numbers[:3], expected[:3])
                self._read[partition.partition] += len(records)

    async def _visit(self) -> None:
        place = TopicPartition(_TOPIC, 0)
        while True:
            # A new id for each would grow the gateway's list of clients, up to 10,000.
            servers = self._servers
            async with AIOKafkaConsumer(bootstrap_servers=servers, client_id="visitor") as visitor:
                visitor.assign([place])
                await visitor.getone()
            self._visits += 1
            await asyncio.sleep(_VISIT_S)
