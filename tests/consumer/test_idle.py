"""A call that waits for messages is woken by messages, not by each empty long poll."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, slices_of, tp, values
from tests.support.waiting import until

POLLS = 10


class CountedCall:
    """A call that counts how often it is suspended."""

    def __init__(self, call: Awaitable[Any]) -> None:
        self.suspended = 0
        self._call = call

    @types.coroutine
    def run(self) -> Generator[Any, None, Any]:
        """Run the call to its end."""
        steps = self._call.__await__()
        try:
            while True:
                waits_for = next(steps)
                self.suspended += 1
                yield waits_for
        except StopIteration as end:
            return end.value
        finally:
            steps.close()


@pytest.mark.both_loops
@pytest.mark.parametrize("method", ["getone", "getmany", "getmany_arrow"])
async def test_empty_response_wakes_no_waiting_call(
    method: str,
    cluster: EmbeddedCluster,
    make_consumer: MakeConsumer,
) -> None:
    consumer = make_consumer("t", fetch_max_wait_ms=10, parts=slices_of(3600.0))
    await consumer.start()
    if method == "getmany_arrow":
        await consumer.getmany_arrow(timeout_ms=0)  # the first call waits for the import
    options = {} if method == "getone" else {"timeout_ms": 60_000}
    call = CountedCall(getattr(consumer, method)(**options))
    reading = asyncio.ensure_future(call.run())
    polls = consumer.metrics()["fetch_requests"]
    await until(lambda: consumer.metrics()["fetch_requests"] >= polls + POLLS)
    suspended = call.suspended
    await until(lambda: consumer.metrics()["fetch_requests"] >= polls + 2 * POLLS)
    assert call.suspended == suspended
    # Nor does it yield to the event loop after the wait: the loop has just run.
    cluster.append("t", 0, [b"new"])
    await reading
    assert call.suspended == suspended


@pytest.mark.parametrize(
    ("options", "is_full"),
    [
        ({"fetch_min_bytes": 0}, False),
        ({"fetch_max_wait_ms": 0}, True),
        ({"fetch_max_wait_ms": 1}, False),
    ],
)
async def test_idle_consumer_pauses_between_requests(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, options: dict[str, int], is_full: bool
) -> None:
    """Also if the broker may respond at once, and if the user doesn't read another partition. A
    new message ends the pause."""
    small = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 2000} if is_full else {}
    consumer = make_consumer(**options, **small)
    consumer.assign([tp(0), tp(2)])
    if is_full:
        cluster.append("t", 0, values(0, 3000))
    await consumer.start()
    if is_full:
        assert await consumer.getmany(tp(0), timeout_ms=5000, max_records=1)
    polls = consumer.metrics()["fetch_requests"]
    await asyncio.sleep(0.4)  # several pauses
    assert consumer.metrics()["fetch_requests"] - polls <= 20
    cluster.append("t", 2, [b"new"])
    assert (await asyncio.wait_for(consumer.getone(tp(2)), 5)).value == b"new"


async def test_buffered_messages_are_returned_without_waking_a_task(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append("t", 0, values(0, 50))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 0, "the messages")
    loop = asyncio.get_running_loop()
    call_soon, woken = loop.call_soon, list[str]()

    def record(callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        task = getattr(callback, "__self__", None)
        if isinstance(task, asyncio.Task):
            woken.append(task.get_name())
        return call_soon(callback, *args, context=context)

    async with asyncio.timeout(5):
        assert await consumer.getmany(max_records=10)
        for _ in range(10):  # the tasks that this has woken run
            await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon", record)
            for _ in range(4):
                assert await consumer.getmany(max_records=10)
            await asyncio.sleep(0)
    assert not [name for name in woken if name.startswith("aiokafka08")]
