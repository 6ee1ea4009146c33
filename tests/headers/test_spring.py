"""Spring's own class and this client exchange messages on a real broker that has no headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version

PEER = Path(__file__).parent / "SpringPeer.java"
FACE = "\U0001f600"

WRITTEN_BY_SPRING = [
    (b"{}", {"contentType": b"application/json", "n": b"42"}),
    ("ä".encode(), {"text": f'ä " {FACE}'.encode()}),
    (b"", {"flag": b"true"}),
    (b"\xff\x01", {"a": b"b"}),
    (b"no headers", {}),
]
WRITTEN_HERE: list[tuple[bytes, dict[str, str]]] = [
    (b"{}", {"contentType": "application/json", "traceparent": "00-0af7-b7ad-01"}),
    (b"\x00", {"größe": "\n\x1f \x7f"}),
    (b"", {"empty": "", FACE: FACE}),
    (b"\xff\x00\xff", {}),
    (b"\xff", {"a": "b"}),
]


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_spring_and_this_client_read_each_other(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    ours, springs = unique_topic("ours"), unique_topic("springs")
    for topic in (ours, springs):
        await asyncio.to_thread(cluster.create_topic, topic)
    write_logging_files(tmp_path)
    tools = JavaTools(find_version("0.8.2.2-spring"), tmp_path)

    async def peer(command: str, *args: str) -> str:
        servers = cluster.bootstrap_servers
        done = await asyncio.to_thread(
            tools.run, str(PEER), command, servers, *args, input=None, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    async with AIOKafkaProducer(**options, headers="embedded") as producer:
        for value, headers in WRITTEN_HERE:
            pairs = [(name, text.encode()) for name, text in headers.items()]
            await producer.send_and_wait(ours, value, partition=0, headers=pairs)
    lines = [json.loads(line) for line in (await peer("read", ours, "5")).splitlines()]
    assert [(bytes.fromhex(one["payload"]), one["headers"]) for one in lines] == WRITTEN_HERE

    await peer("write", springs)
    consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        **options, headers="embedded", auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(springs, 0)])
    async with consumer:
        records = [await consumer.getone() for _ in WRITTEN_BY_SPRING]
    assert [(record.value, dict(record.headers)) for record in records] == WRITTEN_BY_SPRING
