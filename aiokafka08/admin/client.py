"""`AIOKafkaAdminClient`: describe a cluster by requests, create topics through ZooKeeper.

Signatures and return types are aiokafka's wherever the old protocol can do the same. This module
has the calls about topics and the cluster; those about groups are in `groups`. `new_topic` checks
new topics and places replicas, `zookeeper.topics` writes the nodes. Applications call the client.

Invariant: a `BrokerResponseError` (an error with a Kafka code) of one topic goes into the returned
`TopicErrors`, and the call continues with the remaining topics. Any other error, and an error
before the first topic, is raised and ends the call.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from types import TracebackType
from typing import NoReturn, Self, cast

from aiokafka08.admin.cluster_description import (
    BrokerDescription,
    ClusterDescription,
    TopicDescription,
)
from aiokafka08.admin.config_resource import ConfigResource
from aiokafka08.admin.groups import GroupCalls
from aiokafka08.admin.new_topic import (
    NewPartitions,
    NewTopic,
    assign_replicas,
    check_configs,
    checked_assignment,
    spread,
)
from aiokafka08.admin.records_to_delete import RecordsToDelete
from aiokafka08.admin.topic_errors import DeletionErrors, TopicErrors
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
from aiokafka08.net.config import (
    ApiVersion,
    BootstrapServers,
    SecurityProtocol,
    net_config,
    positive,
)
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.protocol.api import TopicState
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Event, Telemetry
from aiokafka08.zookeeper.groups import GroupNodes
from aiokafka08.zookeeper.topics import TopicNodes

_POLL_S = 0.05
"""The pause between two checks whether a topic has its leaders, or is gone."""


class AIOKafkaAdminClient(GroupCalls):
    """Describe a cluster and its groups, create and delete topics, and move groups' offsets.

    Args:
        loop: without effect: the client uses the event loop in which `start()` is called
            (default None).
        bootstrap_servers: addresses of some of the cluster's brokers: "host:port,…", or a list of
            "host:port" or of pairs (host, port). Without a port it is 9092; an IPv6 address with a
            port needs brackets (default "localhost").
        client_id: the name that brokers log, at most 32767 bytes (default "aiokafka08").
        request_timeout_ms: the timeout of a request, and of a call without a `timeout_ms`, in
            milliseconds, from 1 on (default 40000).
        start_timeout_ms: how long `start()` tries to reach a broker, with growing pauses, before it
            raises; in milliseconds, from 1 on. A service that starts before its cluster needs more.
            None: `request_timeout_ms` (default None).
        retry_backoff_ms: the first pause before a failed request is repeated; later pauses grow to
            a second. In milliseconds, from 0 on (default 100).
        metadata_max_age_ms: refresh the metadata at this age, in milliseconds, from 1 on
            (default 300000).
        api_version: the version of the brokers. None or "auto" detects that of each broker;
            "0.8.2" or (0, 8, 2) sets it, from 0.8.0 to 3.9 (default None).
        security_protocol: "PLAINTEXT" or "SSL" (default "PLAINTEXT").
        ssl_context: the `ssl.SSLContext` of "SSL", for example of
            `helpers.create_ssl_context()`; None for "PLAINTEXT" (default None).
        connections_max_idle_ms: close a connection after so many idle milliseconds, from 1 on; None
            never closes one (default 540000).
        sasl_mechanism: of SASL, which isn't supported: a SASL option with a value other than its
            default raises `UnsupportedVersionError` (default "PLAIN").
        sasl_plain_username, sasl_plain_password: of SASL, see `sasl_mechanism` (default None).
        sasl_kerberos_service_name: of SASL, see `sasl_mechanism` (default "kafka").
        sasl_kerberos_domain_name, sasl_oauth_token_provider: of SASL, see `sasl_mechanism`
            (default None).
        zookeeper_connect: "host:port,…/chroot" of the cluster's ZooKeeper. `create_topics`,
            `delete_topics` and `create_partitions` need it, and groups on 0.8 (default None).
        on_event: called with each event of `aiokafka08.telemetry`, in the event loop
            (default None).

    Raises:
        IllegalArgumentError, KafkaConfigurationError, UnsupportedVersionError: an option has a
            value that isn't supported.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: BootstrapServers = "localhost",
        client_id: str = "aiokafka08",
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int | None = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: SecurityProtocol = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        api_version: ApiVersion = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: object = None,
        zookeeper_connect: str | None = None,
        start_timeout_ms: int | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        config = net_config(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            start_timeout_ms=start_timeout_ms,
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
        self._router = Router(config, Telemetry(on_event, client_id=config.client_id))
        self._lifecycle = Lifecycle("AIOKafkaAdminClient", config.client_id, "close()")
        self._topic_nodes = (
            TopicNodes(zookeeper_connect, config.request_timeout_s)
            if zookeeper_connect is not None
            else None
        )
        self._zookeeper_connect = zookeeper_connect
        self._group_nodes = (
            GroupNodes(zookeeper_connect, config.request_timeout_s, config.client_id)
            if zookeeper_connect is not None
            else None
        )

    def __del__(self) -> None:
        if hasattr(self, "_lifecycle"):
            self._lifecycle.warn_if_not_stopped(self)

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker within `start_timeout_ms`; the
                text has the last error of each.
            UnsupportedVersionError: the cluster is of 4.x.
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
            IllegalStateError: the client belongs to another event loop or process, and is still
                running there.
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

    # --- topics and cluster -----------------------------------------------------------------------

    async def list_topics(self) -> list[str]:
        """Return the names of all topics; one that was just created may be missing."""
        return [state.topic for state in await self._all_topics()]

    async def describe_topics(self, topics: list[str] | None = None) -> list[TopicDescription]:
        """Return topics as dicts.

        The keys are error_code, topic, is_internal and partitions; those of a partition are
        error_code, partition, leader, replicas and isr. A topic that doesn't exist has the error
        code of `UnknownTopicOrPartitionError`, and the call doesn't create it. On 0.8 `replicas`
        leaves out dead brokers, and `isr` may be stale (docs/brokers.md 4.7, 4.8).

        Args:
            topics: names; None for all topics (default None).

        Raises:
            InvalidTopicError: brokers don't accept the name.
            NoBrokersAvailable: no broker responds.
        """
        states = {state.topic: state for state in await self._all_topics()}
        wanted = list(states) if topics is None else check_topic_names(topics)
        unknown = UnknownTopicOrPartitionError.errno
        described = (states.get(name) or TopicState(unknown, name, False, []) for name in wanted)
        return [cast(TopicDescription, asdict(state)) for state in described]

    async def describe_cluster(self) -> ClusterDescription:
        """Return `{"brokers": [{node_id, host, port, rack}, …], "controller_id": …}`.

        `controller_id` is -1 and `rack` None on brokers before 0.10. `brokers` is empty on an 0.8
        cluster without topics, because its metadata response has an empty broker list
        (docs/brokers.md 4.1).
        """
        self._lifecycle.check()
        response = await self._router.metadata.fetch_all()
        return {
            "brokers": [cast(BrokerDescription, asdict(broker)) for broker in response.brokers],
            "controller_id": response.controller_id,
        }

    async def _all_topics(self) -> list[TopicState]:
        self._lifecycle.check()
        return (await self._router.metadata.fetch_all()).topics

    # --- changes through ZooKeeper ----------------------------------------------------------------

    async def create_topics(
        self,
        new_topics: list[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Create topics and wait until each partition has a leader.

        Args:
            new_topics: the topics.
            timeout_ms: how long to wait for the leaders of a topic, in milliseconds, from 1 on;
                None: `request_timeout_ms` (default None).
            validate_only: True checks the topics, and creates nothing (default False).

        Raises:
            UnsupportedVersionError: there is no `zookeeper_connect`.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaTimeoutError: a topic was created, but has no leaders in time; the topics after it
                were not created.
        """
        nodes = self._require_topic_nodes("create_topics")
        limit_ms = self._limit_ms(timeout_ms)
        node_ids = await asyncio.to_thread(nodes.broker_ids)
        line = None
        if any(topic.topic_configs for topic in new_topics):
            line = (await self._router.exact_version()).line

        async def create(topic: NewTopic) -> None:
            check_topic_name(topic.name)
            check_configs(topic, line)
            assignment = assign_replicas(topic, node_ids, random.randrange(len(node_ids)))
            if not validate_only:
                await asyncio.to_thread(
                    nodes.create_topic, topic.name, assignment, topic.topic_configs
                )
                await self._wait_leaders(topic.name, len(assignment), limit_ms)

        return TopicErrors(await _per_topic((topic.name, create(topic)) for topic in new_topics))

    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics and wait for their leaders.

        New messages of a key may go to another partition than its old ones.

        Args:
            topic_partitions: for each topic its new number of partitions.
            timeout_ms: how long to wait for the leaders of a topic, in milliseconds, from 1 on;
                None: `request_timeout_ms` (default None).
            validate_only: True checks the arguments, and adds nothing (default False).

        Raises as `create_topics`.
        """
        nodes = self._require_topic_nodes("create_partitions")
        limit_ms = self._limit_ms(timeout_ms)
        node_ids = await asyncio.to_thread(nodes.broker_ids)

        async def grow(topic: str, wanted: NewPartitions) -> None:
            known = await asyncio.to_thread(nodes.assignment, topic)
            added = range(len(known), wanted.total_count)
            if not added:
                raise InvalidPartitionsError(
                    f"topic {topic!r}: total_count={wanted.total_count}; expected more than its "
                    f"{len(known)} partitions"
                )
            if wanted.new_assignments is None:
                factor = len(next(iter(known.values())))
                new = spread(topic, added, factor, node_ids, random.randrange(len(node_ids)))
            elif len(wanted.new_assignments) != len(added):
                raise InvalidReplicationAssignmentError(
                    f"topic {topic!r}: {len(wanted.new_assignments)} assignments; expected one for "
                    f"each of {len(added)} new partitions"
                )
            else:
                checked = checked_assignment(
                    topic, dict(enumerate(wanted.new_assignments)), node_ids
                )
                new = {len(known) + index: replicas for index, replicas in checked.items()}
            if not validate_only:
                await asyncio.to_thread(nodes.add_partitions, topic, new)
                await self._wait_leaders(topic, wanted.total_count, limit_ms)

        work = ((name, grow(name, new)) for name, new in topic_partitions.items())
        return TopicErrors(await _per_topic(work))

    async def delete_topics(
        self, topics: list[str], timeout_ms: int | None = None
    ) -> DeletionErrors:
        """Delete topics and wait until they are gone.

        Brokers delete topics only with `delete.topic.enable=true`, which isn't their default before
        1.0. If they refuse, the topic's result is UnsupportedVersion (35). Brokers of 0.8.0 and
        0.8.1 can't delete topics safely: with these the call raises UnsupportedVersionError before
        the first topic. Other errors are those of `create_topics`.

        Args:
            topics: names.
            timeout_ms: how long to wait until a topic is gone, in milliseconds, from 1 on; None:
                `request_timeout_ms` (default None).
        """
        nodes = self._require_topic_nodes("delete_topics")
        limit_ms = self._limit_ms(timeout_ms)
        line = (await self._router.exact_version()).line
        if line in (BrokerLine.V0_8_0, BrokerLine.V0_8_1):
            raise UnsupportedVersionError(
                f"delete_topics: brokers of the {line} line can't delete topics; expected 0.8.2 or "
                "later"
            )

        async def delete(topic: str) -> None:
            await asyncio.to_thread(nodes.request_deletion, topic)
            try:
                async with asyncio.timeout(limit_ms / 1000):
                    while True:
                        exists, is_requested = await asyncio.to_thread(nodes.deletion_state, topic)
                        if not exists:
                            return
                        if not is_requested:
                            raise UnsupportedVersionError(
                                f"topic {topic!r} not deleted: the brokers refuse. Set "
                                "delete.topic.enable=true on them"
                            )
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                raise KafkaTimeoutError(
                    f"topic {topic!r} not deleted within {limit_ms} ms: it is marked for deletion. "
                    "Brokers delete it with delete.topic.enable=true and all replicas alive"
                ) from None

        work = ((name, delete(name)) for name in check_topic_names(topics))
        return DeletionErrors(await _per_topic(work))

    # --- refused ----------------------------------------------------------------------------------

    async def delete_records(
        self,
        records_to_delete: dict[TopicPartition, RecordsToDelete],
        timeout_ms: int | None = None,
    ) -> NoReturn:
        """Raise UnsupportedVersionError: brokers before 0.11 can't delete records on request.

        The topic's `retention.ms` and `retention.bytes` delete records by age and by size.
        """
        raise _unsent("delete_records", "DeleteRecords", "0.11")

    async def describe_configs(
        self, config_resources: list[ConfigResource], include_synonyms: bool = False
    ) -> NoReturn:
        """Raise UnsupportedVersionError: brokers before 0.11 don't describe their configuration."""
        raise _unsent("describe_configs", "DescribeConfigs", "0.11")

    async def alter_configs(self, config_resources: list[ConfigResource]) -> NoReturn:
        """Raise UnsupportedVersionError: brokers before 0.11 can't be configured by a request.

        Kafka's kafka-configs.sh (0.8: kafka-topics.sh) changes a topic's settings in ZooKeeper.
        """
        raise _unsent("alter_configs", "AlterConfigs", "0.11")

    # --- helpers ----------------------------------------------------------------------------------

    def _require_topic_nodes(self, call: str) -> TopicNodes:
        self._lifecycle.check()
        if self._topic_nodes is None:
            raise UnsupportedVersionError(
                f"{call}: brokers of 0.8 and 0.9 have no request for it. Give zookeeper_connect="
                "'host:2181/chroot' to do it through ZooKeeper, or use the brokers' own tools "
                "(kafka-topics.sh); with auto.create.topics.enable a first send() creates a topic"
            )
        return self._topic_nodes

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else positive("timeout_ms", timeout_ms)

    async def _wait_leaders(self, topic: str, partitions: int, limit_ms: int) -> None:
        """Wait until the metadata shows a leader for every partition.

        It requests the metadata of all topics, not of this one by name. After a request by name,
        each later refresh would name the topic too, and after the topic's deletion a refresh would
        auto-create it.
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
                f"topic {topic!r} was created, but has no leaders after {limit_ms} ms"
            ) from None


async def _per_topic(
    work: Iterable[tuple[str, Awaitable[None]]],
) -> list[tuple[str, int, str | None]]:
    """Await the work of each topic in order; errors with a Kafka code go into the result."""
    results: list[tuple[str, int, str | None]] = []
    for name, task in work:
        try:
            await task
        except BrokerResponseError as error:
            results.append((name, error.errno, error.text or error.description))
        else:
            results.append((name, NoError.errno, None))
    return results


def _unsent(call: str, request: str, release: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{call}: it needs {request} (brokers from {release} on), which this client doesn't send"
    )
