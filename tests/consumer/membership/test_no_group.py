"""A subscription without a group: partitions that are created while it is active."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import pytest

from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_router import router_config
from aiokafka08.consumer.membership.no_group import NoGroup
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Telemetry
from tests.consumer.conftest import tp
from tests.consumer.test_subscription import snapshot
from tests.support.waiting import until

pytestmark = pytest.mark.fast


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[set[TopicPartition], set[TopicPartition]]] = []
        self.fails = False
        self.errors: list[BaseException] = []

    async def revoke(self, *, rejoins: bool = False) -> None:
        raise AssertionError

    async def assign(
        self,
        partitions: Collection[TopicPartition],
        new_partitions: Collection[TopicPartition] = (),
        *,
        always_notify: bool = False,
    ) -> None:
        if self.fails:
            raise RuntimeError("a bug")
        self.calls.append((set(partitions), set(new_partitions)))

    def activity(self) -> int | None:
        raise AssertionError

    def membership_failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def report_error(self, error: KafkaError | None) -> None:
        raise AssertionError


def _longer(calls: list[Any], count: int) -> bool:
    return len(calls) > count


def _router() -> Router:
    return Router(
        router_config(
            {
                "bootstrap_servers": "localhost:1",
                "client_id": "x",
                "request_timeout_ms": 1000,
                "retry_backoff_ms": 10,
                "metadata_max_age_ms": 1000,
                "connections_max_idle_ms": 1000,
            }
        ),
        Telemetry(),
    )


async def test_later_partitions_are_read_from_their_beginning() -> None:
    """With auto_offset_reset="latest" what was written before the refresh would be lost."""
    router = _router()
    subscription, recorder = Subscription(), Recorder()
    subscription.subscribe_pattern(".*")
    membership = NoGroup(router, subscription, recorder)
    router.metadata.snapshot = snapshot({"a": 2})
    await membership.start()
    for topics in ({"a": 4, "b": 2}, {"a": 4}, {"a": 5, "b": 3}):
        router.metadata.snapshot = snapshot(topics)
        calls = len(recorder.calls)
        membership.on_change()
        await until(functools.partial(_longer, recorder.calls, calls))
    subscription.unsubscribe()
    subscription.subscribe(["a"])
    router.metadata.snapshot = snapshot({"a": 6})
    membership.on_change()
    await until(lambda: len(recorder.calls) > 4)
    await membership.stop()
    assert [new for _, new in recorder.calls] == [
        set(),
        {tp(2, "a"), tp(3, "a")},
        set(),
        {tp(4, "a")},
        set(),  # another subscription: nobody has read this topic so far
    ]


async def test_internal_error_reaches_calls_that_wait() -> None:
    router, subscription, recorder = _router(), Subscription(), Recorder()
    subscription.subscribe_pattern(".*")
    membership = NoGroup(router, subscription, recorder)
    router.metadata.snapshot = snapshot({"a": 2})
    await membership.start()
    recorder.fails = True
    membership.on_change()
    await until(lambda: recorder.errors)
    await until(lambda: not membership.is_joined)
    await membership.stop()
    assert [str(error) for error in recorder.errors] == ["a bug"]
