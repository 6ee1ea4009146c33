"""Log lines are for people: the client id, then a sentence that names errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.offset_store.responses import combined_error
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    NotLeaderForPartitionError,
    broker_error,
)
from aiokafka08.protocol.api import Request as ApiRequest
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.support.waiting import until

REPR = re.compile(r"\b[A-Za-z_]\w*\(\w+=")
"""The start of the repr of a dataclass or a named tuple."""
DOUBLED = re.compile(r"\b(\w+Error): (\[Error -?\d+\] )?\1\b")


async def test_log_of_an_eventful_run_is_sentences_of_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="aiokafka08")
    topics = {"t": 4}
    async with EmbeddedCluster(2, "0.10", topics, group_min_session_timeout_ms=100) as cluster:
        common: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "retry_backoff_ms": 20,
        }

        def member(client_id: str) -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                "t",
                client_id=client_id,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=50,
                **common,
            )

        producer = AIOKafkaProducer(client_id="writer-1", **common)
        first, second = member("reader-1"), member("reader-2")
        async with producer, first:
            cluster.fault(ProduceRequest, then=Answer(NotLeaderForPartitionError.errno), times=1)
            for partition in range(4):
                await producer.send_and_wait("t", b"v", partition=partition)
            fault = cluster.fault(
                FetchRequest, then=Answer(NotLeaderForPartitionError.errno), times=2
            )
            await until(lambda: fault.hits == 2)
            await first.getmany(timeout_ms=1000)
            async with second:
                await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            await until(lambda: len(first.assignment()) == 4)
            away = next(node for node in (0, 1) if node != cluster.coordinator("g"))
            led = next(number for number in range(4) if cluster.leader("t", number) == away)
            cluster.kill(away, then="unnoticed")
            sent = await producer.send("t", b"v", partition=led)
            await until(lambda: producer.metrics()["connect_failures"] > 0)
            cluster.restart(away)
            await sent
    records = [one for one in caplog.records if one.name.startswith("aiokafka08")]
    lines = [one.getMessage() for one in records if not one.name.startswith("aiokafka08.testing")]
    for line in lines:
        assert line.startswith(("writer-1: ", "reader-1: ", "reader-2: ")), line
        assert not REPR.search(line), line
        assert "error code" not in line
        assert not DOUBLED.search(line), line
    for sentence in (
        "connected to",
        "no connection to",
        " retried: [Error 6] NotLeaderForPartitionError: ",
        "reading failed: [Error 6] NotLeaderForPartitionError: ",
        "group 'g': joined generation",
        "assignment changed: new t/",
        "left: stopped",
    ):
        assert any(sentence in line for line in lines), f"{sentence!r} is in none of {lines}"


async def send(server: dict[str, Any]) -> None:
    async with AIOKafkaProducer(**server) as producer:
        await producer.send_and_wait("t", b"v")


async def read(server: dict[str, Any]) -> None:
    async with AIOKafkaConsumer("t", auto_offset_reset="none", **server) as consumer:
        await consumer.getone()


async def commit(server: dict[str, Any]) -> None:
    async with AIOKafkaConsumer(group_id="g", enable_auto_commit=False, **server) as consumer:
        tp = TopicPartition("t", 0)
        consumer.assign([tp])
        await consumer.commit({tp: 0})


async def describe(server: dict[str, Any]) -> None:
    async with AIOKafkaAdminClient(**server) as admin:
        await admin.describe_consumer_groups(["g"])


@pytest.mark.parametrize(
    ("call", "request_type", "code"),
    [
        (send, ProduceRequest, 2),
        (send, ProduceRequest, 29),
        (read, FetchRequest, 1),
        (read, FetchRequest, 29),
        (commit, OffsetCommitRequest, 12),
        (commit, OffsetCommitRequest, 30),
    ],
)
async def test_error_that_a_call_raises_is_a_warning_at_most(
    call: Callable[[dict[str, Any]], Awaitable[None]],
    request_type: type[ApiRequest],
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="aiokafka08")
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.fault(request_type, then=Answer(code), times=None)
        with pytest.raises(KafkaError):
            await call({"bootstrap_servers": cluster.bootstrap_servers})
    assert [one.getMessage() for one in caplog.records if one.levelno > logging.WARNING] == []


async def test_unreachable_brokers_are_a_warning_at_most(caplog: pytest.LogCaptureFixture) -> None:
    for call in (send, read, describe):
        with pytest.raises(KafkaError):
            await call({"bootstrap_servers": "127.0.0.1:1", "start_timeout_ms": 100})
    assert [one.getMessage() for one in caplog.records if one.levelno > logging.WARNING] == []


def test_nested_error_of_the_same_class_is_named_once() -> None:
    tp = TopicPartition("t", 0)
    same = combined_error("not committed", {tp: NotCoordinatorForGroupError("moved")})
    assert str(same) == "[Error 16] NotCoordinatorForGroupError: not committed: t/0: moved"
    inner = KafkaTimeoutError("no response")
    assert inner.nested_text(KafkaTimeoutError) == "no response"
    assert inner.nested_text(NotLeaderForPartitionError) == "KafkaTimeoutError: no response"
    assert KafkaTimeoutError().nested_text(KafkaTimeoutError) == "KafkaTimeoutError"
    assert broker_error(6).nested_text(KafkaTimeoutError) == str(broker_error(6))
    assert str(NotLeaderForPartitionError()).endswith(NotLeaderForPartitionError.description)
