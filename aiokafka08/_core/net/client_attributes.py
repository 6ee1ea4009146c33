"""The attributes of aiokafka's `AIOKafkaClient` that instrumentors and frameworks read.

OpenTelemetry and Datadog read `producer.client` and `consumer._client`, and set attributes of their
own there.

Invariant: it holds the router, not the client that owns the router, so a client that is dropped
without `stop()` is garbage-collected.
"""

from __future__ import annotations

from aiokafka08._core.net.config import BootstrapServers, address_text
from aiokafka08._core.net.router import Router
from aiokafka08.client import AIOKafkaClient


class ClientAttributes(AIOKafkaClient):
    """The attributes of aiokafka's `AIOKafkaClient`; see the module."""

    def __init__(
        self, router: Router, bootstrap_servers: BootstrapServers, metadata_timeout_s: float
    ) -> None:
        self._router = router
        self._metadata_timeout_s = metadata_timeout_s
        self._bootstrap_servers = (
            bootstrap_servers
            if isinstance(bootstrap_servers, str)
            else [address_text(address) for address in router.config.bootstrap]
        )
        self._client_id = router.config.client_id

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Return the partitions of a topic; brokers may create a topic that doesn't exist.

        Raises:
            UnknownTopicOrPartitionError: the topic doesn't exist, and isn't created.
            KafkaTimeoutError: no broker reported it within the producer's `max_block_ms`,
                or the consumer's `request_timeout_ms`.
            InvalidTopicError, IllegalStateError: a wrong name; the client isn't running.
        """
        info = await self._router.metadata.wait_for_topic(
            topic, timeout_s=self._metadata_timeout_s, until_unknown=True
        )
        return set(info.partitions)
