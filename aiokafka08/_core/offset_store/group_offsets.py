"""Fetch all offsets that a group has committed to Kafka, without naming partitions where possible.

It costs one request per group: OffsetFetch 2 on brokers from 0.10.2 on, OffsetFetch 1 without
topics on 0.9 to 0.10.1 (three more if nothing is committed), and on 0.8.2 OffsetFetch 1 with all
partitions (docs/brokers.md 8.8).

Invariant: an empty result means that the coordinator has no commits of the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.retry import attempt_timeout, retry
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.transport import BrokerConnection
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08._core.offset_store.responses import (
    fetch_all_request,
    fetch_request,
    read_fetch_all_response,
    read_fetch_response,
    with_text,
)
from aiokafka08.errors import Action, BrokerResponseError, KafkaError, KafkaTimeoutError
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

GroupOffsets = dict[TopicPartition, OffsetAndMetadata]
"""What a group has committed."""


async def fetch_group_offsets(
    router: Router, coordinator: CoordinatorLookup, known: Collection[TopicPartition]
) -> GroupOffsets:
    """Return all offsets that a group has committed to Kafka; `known`: all partitions.

    Raises:
        KafkaTimeoutError: the coordinator didn't respond within `request_timeout_ms`, or only with
            errors that may pass; the text has the last error.
        KafkaError: as `CoordinatorLookup.node_id`, or the coordinator refused.
    """
    version = router.version()
    if version is not None and version.line < BrokerLine.V0_9:
        committed = await KafkaOffsetStore(router, coordinator).fetch(known)
        return {tp: offset for tp, offset in committed.items() if offset is not None}
    limit_s = router.config.request_timeout_s
    what_failed = f"committed offsets of group {coordinator.group!r} not fetched"

    async def attempt(attempt_s: float) -> GroupOffsets | KafkaError:
        node_id = await coordinator.node_id(timeout_s=attempt_s)
        result: GroupOffsets | KafkaError
        try:
            connection = await router.connection(node_id, Lane.CONTROL, timeout_s=attempt_s)
            result = await _fetch(connection, coordinator.group, known, attempt_s)
        except KafkaError as error:
            result = error
        if isinstance(result, KafkaError):
            router.config.named(result)
            is_moved = (
                isinstance(result, BrokerResponseError) and result.action is Action.COORDINATOR
            )
            if is_moved or (result.retriable and not isinstance(result, BrokerResponseError)):
                coordinator.invalidate(node_id)
            if not result.retriable:
                return with_text(result, f"{what_failed}: {result.text}")
        return result

    return await retry(
        attempt,
        deadline=asyncio.get_running_loop().time() + limit_s,
        backoff=router.config.backoff(),
        timed_out=lambda last: KafkaTimeoutError(
            f"{what_failed} within {limit_s * 1000:.0f} ms: "
            + ("no response" if last is None else last.nested_text(KafkaTimeoutError))
        ),
        attempt_s=attempt_timeout(limit_s),
    )


async def _fetch(
    connection: BrokerConnection,
    group: str,
    known: Collection[TopicPartition],
    timeout_s: float,
) -> GroupOffsets | KafkaError:
    version = 2 if connection.version.supports(OffsetFetchRequest, 2) else 1
    request = fetch_all_request(group, version)
    response = await connection.request(request, version=version, timeout_s=timeout_s)
    committed = read_fetch_all_response(response)
    if version == 1 and not committed and known:
        # In version 1 a broker that isn't the coordinator, or is still loading, responds like a
        # coordinator without commits. So repeat the request between two that name a partition: a
        # broker that isn't ready responds to these with an error.
        tp = next(iter(known))
        named = fetch_request(group, [tp])
        # The three are pipelined, and the broker carries them out in this order.
        before, response, after = await run_together(
            *(
                connection.request(part, version=version, timeout_s=timeout_s)
                for part in (named, request, named)
            )
        )
        for confirmation in (before, after):
            result = read_fetch_response(confirmation, [tp])[tp]
            if isinstance(result, KafkaError):
                return result
        committed = read_fetch_all_response(response)
    return committed
