"""Wrong options and arguments, and the errors that name them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import Any

import pytest

from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaConfigurationError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, tp, values
from tests.support.clients import OpenConsumer
from tests.support.numbers import ForeignInteger
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({"isolation_level": "read_committed"}, "isolation_level.*Fetch 4"),
        ({"group_instance_id": "x"}, "group_instance_id.*JoinGroup 5"),
        ({"client_rack": "r"}, "client_rack.*Fetch 11"),
    ],
)
def test_option_above_the_protocol_is_refused(options: dict[str, Any], needs: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=needs):
        AIOKafkaConsumer(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"auto_offset_reset": "oldest"},
        {"auto_offset_reset": ["latest"]},
        {"consumer_timeout_ms": -1},
        {"isolation_level": "serializable"},
        {"offsets_storage": "redis"},
        {"offsets_storage": "dual"},  # without a group
        {"zookeeper_connect": ""},
        {"fetch_max_bytes": 0},
        {"fetch_min_bytes": -1},
        {"fetch_max_wait_ms": -1},
        {"max_partition_fetch_bytes": 0},
        {"max_poll_records": 0},
        {"request_timeout_ms": 0},
        {"session_timeout_ms": 0},
        {"group_id": 3},
        {"key_deserializer": 3},
        {"on_event": 3},
        {"on_event": asyncio.sleep},
        {"value_deserializer": asyncio.sleep},
        {"enable_auto_commit": "no"},
        {"check_crcs": None},
        {"exclude_internal_topics": "false"},
        {"partition_assignment_strategy": None},
        {"partition_assignment_strategy": 3},
        {"zookeeper_connect": 2181},
        {"client_id": 0},
        {"api_version": "0.7"},
        {"bootstrap_servers": ""},
        {"security_protocol": "TLS"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_wrong_option_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        AIOKafkaConsumer(**options)
    assert next(iter(options)) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("scala", "ours"), [("smallest", "earliest"), ("LARGEST", "latest")])
def test_reset_of_the_scala_consumer_is_refused_with_its_name_here(scala: str, ours: str) -> None:
    with pytest.raises(IllegalArgumentError, match=f"='{scala}': expected '{ours}'"):
        AIOKafkaConsumer(auto_offset_reset=scala)  # type: ignore[arg-type]


async def test_integers_of_other_libraries_are_accepted(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    def number(value: int) -> Any:
        return ForeignInteger(value)

    cluster.append("t", 0, values(0, 5))
    consumer = make_consumer(fetch_max_bytes=number(100_000), request_timeout_ms=number(20_000))
    consumer.assign([TopicPartition("t", number(0))])
    await consumer.start()
    consumer.seek(tp(0), number(2))
    taken = await consumer.getmany(timeout_ms=number(5000), max_records=number(1))
    assert [record.offset for record in taken[tp(0)]] == [2]
    assert type(await consumer.position(tp(0))) is int
    found = await consumer.offsets_for_times({tp(0): number(0)})
    assert found[tp(0)] is not None


async def test_sizes_above_int32_are_capped(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    huge = 2**40
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer("t", fetch_max_bytes=huge, max_partition_fetch_bytes=huge)
    await consumer.start()
    assert (await consumer.getone()).offset == 0


async def test_waits_above_int32_are_capped(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t", fetch_min_bytes=2**31, fetch_max_wait_ms=2**31)
    await consumer.start()
    await until(lambda: cluster.requests(FetchRequest), "a fetch")
    request = cluster.requests(FetchRequest)[0]
    assert (request.min_bytes, request.max_wait_ms) == (2**31 - 1, 2**31 - 1)


def test_times_are_kept_in_seconds() -> None:
    config = OpenConsumer(
        fetch_max_wait_ms=1500,
        auto_commit_interval_ms=2500,
        max_poll_interval_ms=3500,
        session_timeout_ms=4500,
        heartbeat_interval_ms=5500,
        rebalance_backoff_ms=6500,
    ).engine.config
    assert (config.fetch_max_wait_s, config.auto_commit_interval_s) == (1.5, 2.5)
    assert (config.max_poll_interval_s, config.session_timeout_s) == (3.5, 4.5)
    assert (config.heartbeat_interval_s, config.rebalance_backoff_s) == (5.5, 6.5)


def test_heartbeats_must_come_within_the_session() -> None:
    """As in Java's consumer; groups in ZooKeeper have no heartbeats."""
    options: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 3000}
    expected = "heartbeat_interval_ms=3000: expected less than session_timeout_ms=3000"
    with pytest.raises(IllegalArgumentError, match=expected):
        OpenConsumer(**options)
    OpenConsumer(**options, heartbeat_interval_ms=2999)
    OpenConsumer(**options, zookeeper_connect="localhost:2181")
    OpenConsumer(session_timeout_ms=3000)


async def test_heartbeats_are_checked_when_brokers_turn_out_to_coordinate() -> None:
    async with EmbeddedCluster(version="0.9", topics={"t": 1}) as cluster:
        consumer = OpenConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            session_timeout_ms=3000,
            zookeeper_connect="localhost:2181",
        )
        with pytest.raises(IllegalArgumentError, match="heartbeat_interval_ms=3000"):
            await consumer.start()


def test_other_wrong_arguments_raise() -> None:
    with pytest.raises(InvalidTopicError):
        AIOKafkaConsumer("a b")
    with pytest.raises(KafkaConfigurationError):
        AIOKafkaConsumer(ssl_context=ssl.create_default_context())
    with pytest.warns(DeprecationWarning, match="loop"):
        AIOKafkaConsumer(loop=object())  # type: ignore[arg-type]


async def test_wrong_argument_of_a_call_is_named(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    calls: list[tuple[type[Exception], str, Awaitable[Any]]] = [
        (TypeError, "'t' in the list", consumer.getone("t")),  # type: ignore[arg-type]
        (TypeError, "'t' in the list", consumer.getmany("t")),  # type: ignore[arg-type]
        (TypeError, "timeout_ms='1'", consumer.getmany(timeout_ms="1")),  # type: ignore[arg-type]
        (TypeError, "partitions='t'", consumer.end_offsets("t")),  # type: ignore[arg-type]
        (ValueError, "partition -1", consumer.beginning_offsets([tp(-1)])),
        (TypeError, r"timestamps\[.*\]='x'", consumer.offsets_for_times({tp(0): "x"})),  # type: ignore[dict-item]
        (ValueError, r"timestamps\[.*\]=-1", consumer.offsets_for_times({tp(0): -1})),
    ]
    for error, text, call in calls:
        with pytest.raises(error, match=text):
            await call
