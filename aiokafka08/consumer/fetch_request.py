"""Make the fetch request of a plan, and exchange it for its response.

Invariant: a request has one timer, which reports a response that is overdue and ends the wait at
the deadline (`_core.net.watchdog`). An idle consumer does little else than this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from aiokafka08._core.net.config import address_text
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.transport import BrokerConnection
from aiokafka08._core.net.watchdog import ResponseWatchdog
from aiokafka08.consumer.fetch_plan import FetchPlan
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.api import by_topic
from aiokafka08.protocol.requests.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
)


def make_request(plan: FetchPlan, min_bytes: int) -> FetchRequest:
    partitions = [
        (topic, FetchPartition(partition, fetch.offset, fetch.max_bytes))
        for fetch in plan.fetches
        for topic, partition in (fetch.cursor.topic_partition,)
    ]
    wait_ms = round(plan.wait_s * 1000)
    return FetchRequest(
        -1, wait_ms, 1 if plan.alone or plan.idle else min_bytes, by_topic(partitions)
    )


class QuotaExceededError(Exception):
    """The broker sends no data for `delay_s`; see `FetchResponse.withheld_s`."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s)
        self.delay_s = delay_s


async def exchange(
    router: Router,
    connection: BrokerConnection,
    request: FetchRequest,
    wait_s: float,
    on_overdue: Callable[[], object],
) -> FetchResponse:
    """Send the request on a writable connection, and return the response.

    `wait_s`: how long the broker may wait for messages. `on_overdue` is called when the response
    is overdue.

    Raises:
        KafkaError: the connection was lost, or there was no response in time.
        QuotaExceededError: the broker withholds the data.
    """
    request_timeout_s = router.config.request_timeout_s
    timeout_s = wait_s + request_timeout_s
    response: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    connection.send(request, response, timeout_s=timeout_s)
    try:
        with ResponseWatchdog(
            router.metadata,
            router.config.limits.overdue_s,
            expected_s=wait_s,
            on_overdue=on_overdue,
            timeout_s=timeout_s,
            on_timeout=partial(_time_out, response),
        ):
            fetched = await response
    except TimeoutError:
        connection.close_if_silent(request_timeout_s)
        where = address_text(connection.address)
        raise KafkaTimeoutError(
            f"{where}: no response to a fetch within {timeout_s * 1000:.0f} ms"
        ) from None
    if fetched.withheld_s > 0:
        raise QuotaExceededError(min(fetched.withheld_s, request_timeout_s))
    return fetched


def _time_out(response: asyncio.Future[FetchResponse]) -> None:
    if not response.done():
        response.set_exception(TimeoutError())
