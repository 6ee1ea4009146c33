"""The real client through changes of its brokers, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.testing.simulation import simulate


@pytest.mark.parametrize("versions", [["0.9", "0.8.2"], ["0.8.1", "0.10"]])
def test_clients_survive_an_upgrade_and_its_undoing(versions: list[str]) -> None:
    with simulate(1, version="0.8.2", topics={"t": 1}) as world:

        async def run() -> list[bytes | None]:
            cluster = world.cluster
            servers = cluster.bootstrap_servers
            async with (
                AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=5000) as producer,
                AIOKafkaConsumer(
                    "t", bootstrap_servers=servers, auto_offset_reset="earliest"
                ) as consumer,
            ):
                values = []
                for version in (None, *versions):
                    if version is not None:
                        for node in cluster.nodes:
                            cluster.stop(node)
                        cluster.change_version(version)
                        await asyncio.sleep(20)
                        for node in cluster.nodes:
                            cluster.restart(node)
                        await asyncio.sleep(20)
                    await producer.send_and_wait("t", (version or "first").encode())
                    values.append((await consumer.getone()).value)
                return values

        expected = [b"first", *(version.encode() for version in versions)]
        assert world.run(run) == expected
