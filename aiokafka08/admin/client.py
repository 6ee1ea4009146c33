"""`AIOKafkaAdminClient`: describe a cluster by requests, change topics through ZooKeeper.

Signatures and return types are aiokafka's wherever the old protocol can do the same. This module
has the calls that ask brokers about topics and the cluster; `topic_changes` has those that change
topics, `groups`, `stored_groups` and `group_changes` those about groups. Applications call the
client.

Invariant: no call creates a topic, but `create_topics`: the metadata of a topic is never requested
by its name, since on 0.8 that would create it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import NoReturn, Self, cast

from aiokafka08.admin.cluster_description import (
    BrokerDescription,
    ClusterDescription,
    TopicDescription,
)
from aiokafka08.admin.config_resource import ConfigResource
from aiokafka08.admin.group_changes import GroupChangeCalls
from aiokafka08.admin.monitoring_calls import MonitoringCalls
from aiokafka08.admin.offset_positions import OffsetPosition, check_position, find_positions
from aiokafka08.admin.records_to_delete import RecordsToDelete
from aiokafka08.admin.topic_changes import TopicChanges
from aiokafka08.compat import default_of
from aiokafka08.errors import (
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.net.cluster import check_topic_names
from aiokafka08.net.config import (
    ApiVersion,
    BootstrapServers,
    SecurityProtocol,
    net_config,
)
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.router import Router
from aiokafka08.protocol.requests.metadata import TopicState
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition
from aiokafka08.telemetry import Event, Telemetry
from aiokafka08.zookeeper.groups import GroupNodes
from aiokafka08.zookeeper.topics import TopicNodes


class AIOKafkaAdminClient(GroupChangeCalls, MonitoringCalls, TopicChanges):
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
        metadata = self._router.metadata
        metadata.all_topics, metadata.may_create_topics = True, False
        self._lifecycle = Lifecycle("AIOKafkaAdminClient", config.client_id, "close()")
        zookeeper_connect = default_of("zookeeper_connect", zookeeper_connect)
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
        self._coordinators = {}
        self._offsets_topic = None

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

    async def list_offsets(
        self, positions: Mapping[TopicPartition, OffsetPosition]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offsets of positions in the logs of partitions.

        Args:
            positions: "earliest" is the first message, "latest" the end, where the next message
                goes. A datetime is the first message of that time or later, as in
                `AIOKafkaConsumer.offsets_for_times`: where the broker knows only when segments were
                written, the result is the start of a segment, and its timestamp is None.

        Returns:
            `OffsetAndTimestamp`, with a timestamp only for a message that was found by time; None
            if there is no message that late.

        Raises:
            UnknownTopicOrPartitionError: a topic or a partition doesn't exist.
            IllegalArgumentError: a position is something else.
            KafkaError: a leader doesn't respond in time, or refuses.
        """
        await self._all_topics()
        checked = {
            TopicPartition(*tp): check_position(tp, position) for tp, position in positions.items()
        }
        return await find_positions(self._router, checked)

    async def broker_releases(self) -> dict[int, str | None]:
        """Return the release of each broker by its node id.

        It is "0.8.0", "0.8.1", "0.8.2", "0.9", or the release that the broker's API versions stand
        for: "0.10.2", "2.5 or 2.6". It is "0.8" if the cluster has no topic by which the lines of
        0.8 could be told apart, and None for a broker that doesn't respond within
        `start_timeout_ms`. A broker of 0.8.0 logs errors when it is asked (docs/brokers.md 2.5).

        Raises:
            NoBrokersAvailable: no broker responds.
        """
        described = await self.describe_cluster()
        nodes = [broker["node_id"] for broker in described["brokers"]]
        found = await asyncio.gather(*map(self._release, nodes))
        return dict(zip(nodes, found, strict=True))

    async def _release(self, node_id: int) -> str | None:
        limit_s = self._router.config.start_timeout_s
        try:
            return (await self._router.exact_version(node_id, timeout_s=limit_s)).release
        except KafkaError:
            return None

    async def _all_topics(self) -> list[TopicState]:
        self._lifecycle.check()
        return (await self._router.metadata.fetch_all()).topics

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


def _unsent(call: str, request: str, release: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{call}: it needs {request} (brokers from {release} on), which this client doesn't send"
    )
