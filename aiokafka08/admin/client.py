"""AIOKafkaAdminClient: topics and cluster by the protocol, topics made through ZooKeeper.

Signatures and return types are aiokafka's where the old protocol can do the thing. Replica
placement is `new_topic`'s, the nodes in ZooKeeper are `zookeeper`'s, groups are in `groups`.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from aiokafka08.admin.groups import GroupCalls
from aiokafka08.admin.new_topic import (
    NewPartitions,
    NewTopic,
    assign_replicas,
    check_configs,
    checked_assignment,
    spread,
)
from aiokafka08.errors import (
    BrokerResponseError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    KafkaTimeoutError,
    NoError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.net.cluster import check_topic_name, check_topic_names
from aiokafka08.net.config import ApiVersion, BootstrapServers, net_config, positive
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.protocol.api import TopicState
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Event, Telemetry
from aiokafka08.zookeeper.groups import GroupRegistry
from aiokafka08.zookeeper.topics import TopicRegistry

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class TopicErrors:
    """The outcome per topic: (topic, error code, text), code 0 and None where it worked."""

    topic_errors: list[tuple[str, int, str | None]]


class AIOKafkaAdminClient(GroupCalls):
    """Look at a cluster and its groups, and make topics on it.

    Args:
        bootstrap_servers: "host:port,…", or a list of them.
        client_id: the name that brokers log.
        request_timeout_ms: how long a call may take.
        connections_max_idle_ms: idle connections are closed after this.
        retry_backoff_ms: pause before a request is tried again.
        metadata_max_age_ms: metadata is refreshed at the latest after this.
        security_protocol: "PLAINTEXT" or "SSL" (with `ssl_context`).
        api_version: "auto" (None means the same) finds the broker's line; "0.8.2" pins it.
        zookeeper_connect: "host:port/chroot" of the cluster's ZooKeeper; needed by
            `create_topics`, `delete_topics` and `create_partitions`, and for groups on 0.8.
        on_event: called with each `aiokafka08.telemetry.Event`.

    Raises:
        IllegalArgumentError, KafkaConfigurationError, UnsupportedVersionError: an option is wrong.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: BootstrapServers = "localhost",
        client_id: str = "aiokafka08",
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        api_version: ApiVersion = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: object = None,
        zookeeper_connect: str | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        config = net_config(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            api_version=api_version,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_kerberos_service_name=sasl_kerberos_service_name,
            sasl_kerberos_domain_name=sasl_kerberos_domain_name,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        self._timeout_ms = request_timeout_ms
        self._router = Router(config, Telemetry(on_event))
        self._lifecycle = Lifecycle("AIOKafkaAdminClient", "close()")
        self._registry = (
            TopicRegistry(zookeeper_connect, config.request_timeout_s)
            if zookeeper_connect is not None
            else None
        )
        self._zookeeper_connect = zookeeper_connect
        self._groups = (
            GroupRegistry(zookeeper_connect, config.request_timeout_s)
            if zookeeper_connect is not None
            else None
        )

    def __del__(self) -> None:
        if hasattr(self, "_lifecycle"):
            self._lifecycle.warn_if_not_stopped(self)

    async def start(self) -> None:
        """Find the cluster.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker; the text says why for each.
            UnsupportedVersionError: it is a 4.x cluster.
        """
        self._lifecycle.bind_to_loop()
        try:
            await self._router.start()
        except BaseException:
            self._lifecycle.stopped = True
            raise

    async def close(self) -> None:
        """Close all connections; safe to call twice.

        Raises:
            IllegalStateError: it belongs to another event loop or process; it goes on there.
        """
        if self._lifecycle.is_running:
            self._lifecycle.check()
            self._lifecycle.stopped = True
            await self._router.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- what the brokers tell ----------------------------------------------------------------

    async def list_topics(self) -> list[str]:
        """The names of all topics; right after its creation one may still be missing."""
        return [state.topic for state in await self._all_topics()]

    async def describe_topics(self, topics: list[str] | None = None) -> list[Any]:
        """Topics as dicts: error_code, topic, is_internal, partitions (error_code, partition,
        leader, replicas, isr).

        A topic that doesn't exist has error code 3; asking never creates one. On 0.8 `replicas`
        leaves out dead brokers and `isr` may be stale (docs/brokers.md 4.7, 4.8).

        Args:
            topics: names; all topics where None.

        Raises:
            InvalidTopicError: a name that brokers don't take.
            NoBrokersAvailable: no broker answers.
        """
        states = {state.topic: state for state in await self._all_topics()}
        wanted = list(states) if topics is None else check_topic_names(topics)
        unknown = UnknownTopicOrPartitionError.errno
        return [asdict(states.get(name) or TopicState(unknown, name, False, [])) for name in wanted]

    async def describe_cluster(self) -> dict[str, Any]:
        """`{"brokers": [{node_id, host, port, rack}, …], "controller_id": …}`.

        `controller_id` is -1 and `rack` None on brokers before 0.10; `brokers` is empty on an 0.8
        cluster without topics, since brokers name nobody then (docs/brokers.md 4.1).
        """
        self._lifecycle.check()
        answer = await self._router.metadata.fetch_all()
        return {
            "brokers": [asdict(broker) for broker in answer.brokers],
            "controller_id": answer.controller_id,
        }

    async def _all_topics(self) -> list[TopicState]:
        self._lifecycle.check()
        return (await self._router.metadata.fetch_all()).topics

    # --- topics made through ZooKeeper ----------------------------------------------------------

    async def create_topics(
        self,
        new_topics: list[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Create topics and wait until each partition has a leader.

        Args:
            new_topics: what to create.
            timeout_ms: how long to wait for the leaders; `request_timeout_ms` by default.
            validate_only: check, and create nothing.

        Raises:
            UnsupportedVersionError: no `zookeeper_connect` was given.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaTimeoutError: a topic is made, but not led in time; those after it aren't made.
        """
        registry = self._require_registry("create_topics")
        limit_ms = self._limit_ms(timeout_ms)
        node_ids = await asyncio.to_thread(registry.broker_ids)

        async def create(topic: NewTopic) -> None:
            check_topic_name(topic.name)
            check_configs(topic, self._line())
            assignment = assign_replicas(topic, node_ids, random.randrange(len(node_ids)))
            if not validate_only:
                await asyncio.to_thread(
                    registry.create_topic, topic.name, assignment, topic.topic_configs
                )
                await self._wait_leaders(topic.name, len(assignment), limit_ms)

        return await _per_topic((topic.name, create(topic)) for topic in new_topics)

    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics and wait for their leaders. Arguments and errors as
        `create_topics`; keys keep their partitions only for messages already written."""
        registry = self._require_registry("create_partitions")
        limit_ms = self._limit_ms(timeout_ms)
        node_ids = await asyncio.to_thread(registry.broker_ids)

        async def grow(topic: str, wanted: NewPartitions) -> None:
            known = await asyncio.to_thread(registry.assignment, topic)
            added = range(len(known), wanted.total_count)
            if not added:
                raise InvalidPartitionsError(
                    f"topic {topic!r} has {len(known)} partitions; total_count="
                    f"{wanted.total_count} must be more"
                )
            if wanted.new_assignments is None:
                factor = len(next(iter(known.values())))
                new = spread(topic, added, factor, node_ids, random.randrange(len(node_ids)))
            elif len(wanted.new_assignments) != len(added):
                raise InvalidReplicationAssignmentError(
                    f"topic {topic!r}: {len(wanted.new_assignments)} assignments for "
                    f"{len(added)} new partitions"
                )
            else:
                checked = checked_assignment(
                    topic, dict(enumerate(wanted.new_assignments)), node_ids
                )
                new = {len(known) + index: nodes for index, nodes in checked.items()}
            if not validate_only:
                await asyncio.to_thread(registry.add_partitions, topic, new)
                await self._wait_leaders(topic, wanted.total_count, limit_ms)

        return await _per_topic((name, grow(name, new)) for name, new in topic_partitions.items())

    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> TopicErrors:
        """Delete topics and wait until they are gone. Arguments and errors as `create_topics`.

        Brokers do it only with `delete.topic.enable=true`, which isn't their default before 1.0;
        those of 0.8.0 and 0.8.1 can't do it safely and are refused.
        """
        registry = self._require_registry("delete_topics")
        limit_ms = self._limit_ms(timeout_ms)
        line = self._line()
        if line is not None and line < BrokerLine.V0_8_2:
            raise UnsupportedVersionError(f"brokers of the {line} line can't delete topics")

        async def delete(topic: str) -> None:
            await asyncio.to_thread(registry.ask_to_delete, topic)
            try:
                async with asyncio.timeout(limit_ms / 1000):
                    while True:
                        exists, asked = await asyncio.to_thread(registry.deletion_state, topic)
                        if not exists:
                            return
                        if not asked:
                            raise UnsupportedVersionError(
                                f"topic {topic!r}: the brokers refuse; they need "
                                "delete.topic.enable=true"
                            )
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                raise KafkaTimeoutError(
                    f"topic {topic!r} is marked for deletion, but still there after {limit_ms} ms; "
                    "brokers delete only with delete.topic.enable=true and all replicas alive"
                ) from None

        return await _per_topic((name, delete(name)) for name in check_topic_names(topics))

    def _line(self) -> BrokerLine | None:
        version = self._router.version()
        return None if version is None else version.line

    def _require_registry(self, what: str) -> TopicRegistry:
        self._lifecycle.check()
        if self._registry is None:
            raise UnsupportedVersionError(
                f"{what}: the requests of 0.8 and 0.9 can't do it. Give zookeeper_connect="
                "'host:2181/chroot' to do it through ZooKeeper, or use the brokers' own tools "
                "(kafka-topics.sh); with auto.create.topics.enable a first send() creates a topic"
            )
        return self._registry

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else positive("timeout_ms", timeout_ms)

    async def _wait_leaders(self, topic: str, partitions: int, limit_ms: int) -> None:
        """Until a broker's metadata shows a leader for every partition.

        By listing all topics: one that is asked for by name stays in the metadata that is kept
        fresh, and asking for it once it is deleted would create it again.
        """
        metadata = self._router.metadata
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    await metadata.fetch_all()
                    if all(metadata.snapshot.leader(one) is not None for one in wanted):
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise KafkaTimeoutError(
                f"topic {topic!r} is made, but has no leaders after {limit_ms} ms"
            ) from None


async def _per_topic(work: Iterable[tuple[str, Awaitable[None]]]) -> TopicErrors:
    """Do the work topic by topic; what a broker would refuse goes into the outcome."""
    outcome: list[tuple[str, int, str | None]] = []
    for name, task in work:
        try:
            await task
        except BrokerResponseError as error:
            outcome.append((name, error.errno, error.text or error.description))
        else:
            outcome.append((name, NoError.errno, None))
    return TopicErrors(outcome)
