"""Fetch within a client's quota, and report that the client exceeds it.

Invariant: a broker that withholds its data, because the client exceeds its quota, isn't taken for
one that leaves partitions out (docs/brokers.md 7.18).
"""

from __future__ import annotations

import asyncio
import logging

from aiokafka08._core.net.router import Lane, Router
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.requests.fetch import FetchRequest, FetchResponse


async def fetch_within_quota(
    router: Router, request: FetchRequest, *, node_id: int, lane: Lane, timeout_s: float
) -> FetchResponse:
    """Send a fetch to a broker, again after each delay that it demands, and return the response.

    Raises KafkaTimeoutError if the quota is exceeded for `timeout_s`, else as `Router.request`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        left_s = deadline - loop.time()
        response = await router.request(request, node_id=node_id, lane=lane, timeout_s=left_s)
        withheld_s = response.withheld_s
        if not withheld_s:
            return response
        if loop.time() + withheld_s >= deadline:
            raise quota_exceeded(router.config.client_id, node_id, timeout_s)
        await asyncio.sleep(withheld_s)


def log_withheld(log: logging.Logger, client_id: str, node_id: int, delay_s: float) -> None:
    """Log that a broker withholds data, for the first of several delays in a row."""
    log.info(
        "%s: node %d withholds data for %.1f s: the client exceeds its quota (consumer_byte_rate)",
        client_id,
        node_id,
        delay_s,
    )


def quota_exceeded(client_id: str, node_id: int, timeout_s: float) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"node {node_id}: no data within {timeout_s * 1000:.0f} ms, since client_id={client_id!r} "
        "exceeds its quota. Raise consumer_byte_rate"
    )
