"""The first moments of a target: its coordinator of groups isn't ready at once."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.target.target_cluster import Target, target_error
from aiokafka08.structs import TopicPartition

FILE = (
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n'
)
ORDERS = TopicPartition("orders", 0)


class Consumer:
    """Stands for librdkafka's, which fails as often as the target isn't ready."""

    def __init__(self, errors: list[int]) -> None:
        self._errors = errors

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        if self._errors:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(self._errors.pop(0)))
        return [confluent_kafka.TopicPartition(one.topic, one.partition, 7) for one in places]

    def close(self) -> None:
        pass


async def committed(
    monkeypatch: pytest.MonkeyPatch, errors: list[int], timeout_s: float = 30.0
) -> object:
    monkeypatch.setattr(Target, "_consumer", lambda *_: Consumer(errors))
    target = Target(parse_config(FILE), timeout_s)
    try:
        return await target.committed("g", [ORDERS])
    finally:
        await target.close()


@pytest.mark.parametrize(
    "code",
    [
        confluent_kafka.KafkaError.NOT_COORDINATOR,
        confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
        confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
async def test_positions_wait_for_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A job of Spark has no session that is tried again, as `bridge run` has."""
    assert await committed(monkeypatch, [code, code]) == {ORDERS: 7}


async def test_coordinator_that_never_is_ready_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = confluent_kafka.KafkaError.NOT_COORDINATOR
    with pytest.raises(TargetUnavailableError, match="NOT_COORDINATOR"):
        await committed(monkeypatch, [code] * 99, timeout_s=0.3)


async def test_open_transaction_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bridge status` names it at once."""
    errors = [confluent_kafka.KafkaError.UNSTABLE_OFFSET_COMMIT, 0]
    with pytest.raises(TargetUnavailableError, match="UNSTABLE_OFFSET_COMMIT"):
        await committed(monkeypatch, errors)
    assert errors == [0]


@pytest.mark.parametrize(
    ("reason", "is_passing"),
    [
        ("Unable to replicate the partition 1 time(s): All brokers are currently fenced.", True),
        (
            "Unable to replicate the partition 5 time(s): The target replication factor of 5 "
            "cannot be reached because only 1 broker(s) are registered.",
            False,
        ),
    ],
)
def test_target_whose_brokers_begin_is_waited_for(reason: str, is_passing: bool) -> None:
    """Kafka 4.1 gives both reasons with the same code."""
    refused = confluent_kafka.KafkaError(
        confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR, reason
    )
    error = target_error("create the topic 't'", refused)
    assert isinstance(error, TargetUnavailableError) is is_passing
