"""`Telemetry`: counters, rate-limited log lines, the user's hook."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

import pytest

from aiokafka08 import environment, telemetry
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import (
    REPEAT_SECONDS,
    Acks0Unknown,
    BatchFailed,
    Connected,
    ConnectFailed,
    Disconnected,
    Event,
    OffsetReset,
    Telemetry,
)

CONNECTED = Connected("kafka1:9092", "produce", "0.8.2")
FAILED = ConnectFailed("kafka1:9092", "Connection refused")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka08")


def test_each_event_increases_its_counter() -> None:
    told = Telemetry()
    for _ in range(3):
        told.emit(CONNECTED)
    told.emit(FAILED)
    assert told.counters == {"connections_opened": 3, "connect_failures": 1}
    assert told.counters["connections_closed"] == 0


def test_acks0_messages_of_unknown_fate_are_all_counted() -> None:
    told = Telemetry()
    partitions = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    unknown = Acks0Unknown(partitions, 17, "closed by the broker")
    told.emit(unknown)
    told.emit(Acks0Unknown(partitions[:1], 3, "closed by the broker"))
    assert told.counters["acks0_unknown"] == 20
    assert "orders" in str(unknown)


def test_every_kind_of_event_has_a_counter_of_its_own() -> None:
    kinds = [kind for kind in vars(telemetry).values() if isinstance(kind, type)]
    names = [kind.name for kind in kinds if issubclass(kind, Event) and kind is not Event]
    assert len(names) > 5
    assert all(names)
    assert len(set(names)) == len(names)


def test_events_go_to_the_logger_of_their_part(caplog: pytest.LogCaptureFixture) -> None:
    told = Telemetry()
    partition = TopicPartition("orders", 0)
    told.emit(CONNECTED)
    told.emit(BatchFailed(partition, 5, "delivery_timeout_ms"))
    told.emit(OffsetReset(partition, 7, 9))
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("aiokafka08.net", "INFO"),
        ("aiokafka08.producer", "WARNING"),
        ("aiokafka08.consumer", "WARNING"),
    ]
    assert "kafka1:9092" in caplog.records[0].getMessage()


def test_log_line_is_the_client_id_and_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    told = Telemetry(client_id="billing-1")
    told.emit(FAILED)
    told.emit(BatchFailed(TopicPartition("orders", 0), 5, "no leader"))
    told.emit(BatchFailed(TopicPartition("orders", 0), 1, "no leader"))
    told.emit(Disconnected("kafka1:9092", "fetch", "closed by the broker", 1))
    told.emit(Disconnected("kafka1:9092", "fetch", "closed by the client", 0))
    assert [record.getMessage() for record in caplog.records] == [
        "billing-1: no connection to kafka1:9092: Connection refused",
        "billing-1: topic 'orders', partition 0: 5 messages failed: no leader",
        "billing-1: topic 'orders', partition 0: 1 message failed: no leader",
        "billing-1: connection to kafka1:9092 for fetch closed: closed by the broker; no response "
        "to 1 request",
        "billing-1: connection to kafka1:9092 for fetch closed: closed by the client",
    ]


def test_every_kind_of_event_has_a_sentence_of_its_own() -> None:
    values: dict[str, Any] = {
        "int": 3,
        "bool": True,
        "str": "text",
        "TopicPartition": TopicPartition("orders", 0),
        "tuple[int, ...]": tuple(range(50)),
        "tuple[str, ...]": ("orders",) * 50,
        "tuple[TopicPartition, ...]": (TopicPartition("orders", 0),) * 50,
        "tuple[tuple[TopicPartition, int], ...]": ((TopicPartition("orders", 0), 7),) * 50,
    }
    kinds = Event.__subclasses__()
    assert len(kinds) > 10
    for kind in kinds:
        event = kind(**{one.name: values[str(one.type)] for one in fields(kind)})
        assert "__str__" in vars(kind)
        assert kind.__name__ not in str(event)
        assert len(str(event)) < 600


def test_events_carry_the_client_id() -> None:
    seen: list[Event] = []
    Telemetry(seen.append, Clock(), client_id="billing-1").emit(FAILED)
    assert seen == [FAILED]
    assert seen[0].client_id == "billing-1"


def test_a_repeated_event_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    told = Telemetry(clock=clock)
    told.emit(FAILED)
    clock.now += REPEAT_SECONDS - 0.001
    told.emit(FAILED)
    assert levels(caplog) == ["WARNING", "DEBUG"]
    clock.now += 0.002
    told.emit(FAILED)
    assert levels(caplog) == ["WARNING", "DEBUG", "WARNING"]
    assert told.counters["connect_failures"] == 3


@pytest.mark.parametrize("end", [FAILED, Disconnected("kafka1:9092", "fetch", "reset", 1)])
def test_a_connection_after_a_logged_failure_is_logged(
    end: Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The last line that a reader sees must not say that the broker can't be reached."""
    told = Telemetry(clock=Clock())
    told.emit(CONNECTED)
    told.emit(ConnectFailed("kafka2:9092", "Connection refused"))
    told.emit(CONNECTED)
    assert levels(caplog)[-1] == "DEBUG"  # that was another broker
    told.emit(end)
    told.emit(CONNECTED)
    assert levels(caplog)[-1] == "INFO"
    told.emit(end)
    told.emit(CONNECTED)
    assert levels(caplog)[-2:] == ["DEBUG", "DEBUG"]  # a flapping broker doesn't flood the log


def test_the_clock_of_a_replacement_is_used_and_not_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, now = Telemetry(), environment.monotonic() + 10 * REPEAT_SECONDS
    before.emit(FAILED)
    with environment.replace(monotonic=lambda: now):
        before.emit(FAILED)
        inside = Telemetry()
        inside.emit(FAILED)
    assert levels(caplog) == ["WARNING"] * 3
    with environment.replace(monotonic=lambda: now + 2 * REPEAT_SECONDS):
        inside.emit(FAILED)
    assert levels(caplog) == ["WARNING"] * 4


def test_different_events_are_logged_independently(caplog: pytest.LogCaptureFixture) -> None:
    told = Telemetry(clock=Clock())
    told.emit(ConnectFailed("kafka1:9092", "Connection refused"))
    told.emit(ConnectFailed("kafka2:9092", "Connection refused"))
    told.emit(ConnectFailed("kafka1:9092", "Network is unreachable"))
    told.emit(Disconnected("kafka1:9092", "fetch", "closed by the broker", 1))
    assert levels(caplog) == ["WARNING", "WARNING", "WARNING", "INFO"]


def test_memory_of_logged_events_is_bounded() -> None:
    told = Telemetry(clock=Clock())
    for i in range(10_000):
        told.emit(ConnectFailed("kafka1:9092", f"reason {i}"))
    assert len(told._logged) <= 1001


def test_the_hook_gets_every_event() -> None:
    seen: list[Event] = []
    told = Telemetry(seen.append, Clock())
    for _ in range(3):
        told.emit(FAILED)
    assert seen == [FAILED] * 3


def test_a_failing_hook_is_logged_and_harmless(caplog: pytest.LogCaptureFixture) -> None:
    def hook(event: Event) -> None:
        raise ZeroDivisionError("in the hook")

    told = Telemetry(hook, Clock())
    told.emit(CONNECTED)
    assert told.counters["connections_opened"] == 1
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert "on_event" in record.getMessage()


def test_a_hook_that_always_fails_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    def hook(event: Event) -> None:
        raise ZeroDivisionError("in the hook")

    told = Telemetry(hook, clock)
    for i in range(100):
        told.emit(ConnectFailed("kafka1:9092", f"reason {i}"))
    assert levels(caplog).count("ERROR") == 1
    clock.now += REPEAT_SECONDS + 1
    told.emit(CONNECTED)
    assert levels(caplog).count("ERROR") == 2
