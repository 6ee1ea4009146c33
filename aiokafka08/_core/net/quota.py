"""Fetch a little within a client's quota: for requests beside a consumer's own fetches.

`offsets_for_times` and the doctor call it. A consumer and the readers of ranges have their own
loops, and wait in these.

Invariant: a broker that withholds its data, because the client exceeds its quota, isn't taken for
one that leaves partitions out (docs/brokers.md 7.18).
"""

from __future__ import annotations

import asyncio

from aiokafka08._core.net.router import Lane, Router
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.requests.fetch import FetchRequest, FetchResponse


async def fetch_within_quota(
    router: Router, request: FetchRequest, *, node_id: int, lane: Lane, timeout_s: float
) -> FetchResponse:
    """Send a fetch to a broker, again after each delay that it demands, and return the response.

    Args:
        router: sends it.
        request: what to send.
        node_id: the broker.
        lane: which connection to use.
        timeout_s: seconds for all of it.

    Raises:
        KafkaTimeoutError: the quota is exceeded for longer.
        KafkaError: as `Router.request`.
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
            raise KafkaTimeoutError(
                f"node {node_id}: no data within {timeout_s * 1000:.0f} ms, since client_id="
                f"{router.config.client_id!r} exceeds its quota. Raise consumer_byte_rate"
            )
        await asyncio.sleep(withheld_s)
