"""A call that waits for messages is woken by messages, not by each empty long poll."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, slices_of
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
