"""`AIOKafkaAdminClient`: describe a cluster by requests, change topics through ZooKeeper.

Applications call the client. Signatures and return types are aiokafka's wherever the old protocol
can do the same. This module has the options, start and stop, and each call with its documentation;
the work is done by the method of the same name in `cluster_calls`, `topic_changes`, `groups`,
`stored_groups` or `group_changes`, which share an `AdminConnection`.

Invariant: no call creates a topic, except `create_topics`, and calls that look up a coordinator:
the first lookup makes the brokers create `__consumer_offsets`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from aiokafka08._core.net.config import (
    ApiVersion,
    BootstrapServers,
    OffsetsStorage,
    SecurityProtocol,
    ZookeeperCheck,
    callable_or_none,
    check_one_of,
    check_positive,
    net_config,
)
from aiokafka08._core.net.lifecycle import Lifecycle
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.security import parse_security
from aiokafka08._core.zookeeper.topic_states import ClusterNodes
from aiokafka08.admin.cluster_calls import ClusterCalls
from aiokafka08.admin.cluster_description import ClusterDescription, TopicDescription
from aiokafka08.admin.config_resource import ConfigResource
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.group_changes import GroupChanges, GroupDeletion
from aiokafka08.admin.group_description import GroupDescriptions
from aiokafka08.admin.group_lag import (
    GroupLags,
    GroupStore,
    LogBounds,
    PartitionLag,
    PartitionOwner,
    StoredGroup,
    StoredGroupDescription,
    StoredGroupListing,
    StoredOffsets,
)
from aiokafka08.admin.groups import GroupCalls
from aiokafka08.admin.new_topic import NewPartitions, NewTopic
from aiokafka08.admin.offset_positions import OffsetPosition
from aiokafka08.admin.offset_reset import PlannedOffset, PlanTarget, ResetTarget
from aiokafka08.admin.records_to_delete import RecordsToDelete
from aiokafka08.admin.stored_groups import StoredGroupCalls
from aiokafka08.admin.topic_changes import TopicChanges
from aiokafka08.admin.topic_errors import DeletionErrors, TopicErrors
from aiokafka08.compat import default_of
from aiokafka08.errors import KafkaError, UnsupportedVersionError
from aiokafka08.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from aiokafka08.telemetry import Event, Telemetry

if TYPE_CHECKING:
    from aiokafka08.admin.offsets_topic import OffsetsTopic


class AIOKafkaAdminClient:
    """Describe a cluster and its groups, create and delete topics, and move groups' offsets.

    Options whose names end with `_ms` are in milliseconds.

    Args:
        loop: deprecated, without effect: `start()` takes the running event loop (default None).
        bootstrap_servers: addresses of some of the cluster's brokers: "host:port,…", or a list of
            "host:port" or of pairs (host, port). Without a port it is 9092; an IPv6 address with a
            port needs brackets (default "localhost").
        client_id: the name that brokers log, at most 32767 bytes (default "aiokafka08").
        request_timeout_ms: the timeout of a request, and of a call without a `timeout_ms`, from 1
            on (default 40000).
        start_timeout_ms: how long `start()` tries to reach a broker before it raises, from 1 on. A
            service that starts before its cluster needs more. None: `request_timeout_ms` (default
            None).
        retry_backoff_ms: the first pause before a failed request is repeated; later pauses grow to
            a second. From 0 on (default 100).
        metadata_max_age_ms: refresh the metadata at this age, from 1 on (default 300000).
        api_version: the version of the brokers. None or "auto" detects that of each broker;
            "0.8.2" or (0, 8, 2) sets it, from 0.8.0 to 3.9 (default None).
        security_protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"; "PLAINTEXTSASL" is
            HDP's name of "SASL_PLAINTEXT" (default "PLAINTEXT").
        ssl_context: the `ssl.SSLContext` of "SSL" and "SASL_SSL", for example of
            `helpers.create_ssl_context()`; None without TLS (default None).
        connections_max_idle_ms: close a connection after this many idle milliseconds, from 1 on;
            None never closes one (default 540000).
        sasl_mechanism: "PLAIN" (brokers from 0.10.0 on), "SCRAM-SHA-256" or "SCRAM-SHA-512" (from
            0.10.2 on, extra `sasl`), "GSSAPI" (Kerberos, from 0.9 on, extra `kerberos`) or
            "OAUTHBEARER" (from 2.0 on) (default "PLAIN"). A SASL option with a value other than
            its default is an error without SASL.
        sasl_plain_username, sasl_plain_password: the user of PLAIN and SCRAM (default None).
        sasl_kerberos_service_name: the first part of the brokers' principals (default "kafka").
        sasl_kerberos_domain_name: the second part of the brokers' principals, with "@REALM" if
            theirs isn't the client's; by default the host name that the client connects to (default
            None).
        sasl_oauth_token_provider: an `aiokafka08.abc.AbstractTokenProvider` (default None).
        sasl_kerberos_keytab: path of the keytab; without it the ticket cache is used, which kinit
            fills (default None).
        sasl_kerberos_principal: the client's principal; by default that of the ticket cache, or
            the first one in the keytab (default None).
        zookeeper_connect: "host:port,…/chroot" of the cluster's ZooKeeper. `create_topics`,
            `delete_topics` and `create_partitions` need it, and groups on 0.8 (default None).
        zookeeper_check: what to do if `zookeeper_connect` isn't the ZooKeeper of the brokers, since
            its cluster id is another one or, without one, its brokers are. "refuse", or None: raise
            `ZookeeperMismatchError` before anything is read or written there. "warn": log a
            warning. Use that if addresses are translated (NAT, a proxy), or if a balancer stands in
            front of a 0.8 cluster without topics (default None).
        zookeeper_options: for a secured ZooKeeper: a dict of arguments with kazoo's names.
            `auth_data`: [("digest", "user:password")]; `sasl_options` with the mechanism
            DIGEST-MD5, `username` and `password` (needs the package pure-sasl); `use_ssl` with
            `ca`, `certfile`, `keyfile`, `keyfile_password`, `verify_certs` and `check_hostname`
            (on by default, unlike kazoo's). And `set_acl`: True protects new nodes as Kafka's
            zookeeper.set.acl does: the creator may change them, all may read (default None).
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
        sasl_kerberos_keytab: str | None = None,
        sasl_kerberos_principal: str | None = None,
        zookeeper_connect: str | None = None,
        zookeeper_check: ZookeeperCheck | None = None,
        zookeeper_options: Mapping[str, Any] | None = None,
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
            sasl_kerberos_keytab=sasl_kerberos_keytab,
            sasl_kerberos_principal=sasl_kerberos_principal,
        )
        callable_or_none("on_event", on_event)
        self._router = Router(config, Telemetry(on_event, client_id=config.client_id))
        metadata = self._router.metadata
        metadata.all_topics, metadata.may_create_topics = True, False
        self._lifecycle = Lifecycle("AIOKafkaAdminClient", config.client_id, "close()")
        zookeeper_connect = default_of("zookeeper_connect", zookeeper_connect)
        check = default_of("zookeeper_check", zookeeper_check)
        check_one_of("zookeeper_check", check, [None, "refuse", "warn"])
        security = parse_security(zookeeper_options, zookeeper_connect)
        zookeeper = None
        if zookeeper_connect is not None:
            zookeeper = ClusterZookeeper(self._router, zookeeper_connect, check, security)
        self._connection = connection = AdminConnection(
            self._router, self._lifecycle, request_timeout_ms, zookeeper
        )
        self._cluster = ClusterCalls(connection)
        self._topic_changes = TopicChanges(connection)
        self._groups = GroupCalls(connection)
        self._stored_groups = StoredGroupCalls(connection, self._groups)
        self._group_changes = GroupChanges(connection, self._stored_groups)

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

    def same_metadata(self) -> AbstractContextManager[None]:
        """Return a context manager: inside, all calls that read use one Metadata response.

        Use it for several calls that together describe a large cluster: they agree on its topics
        and brokers, and the metadata is requested once. It holds for the calls in the block, and in
        tasks that the block starts; calls elsewhere request their own metadata.
        """
        return self._connection.same_metadata()

    # --- topics and cluster -----------------------------------------------------------------------

    async def ping(self, timeout_ms: int = 5000) -> None:
        """Return when some broker has responded to a small request, over an open or new connection.

        Args:
            timeout_ms: how long to try one broker after another, in milliseconds, from 1 on
                (default 5000).

        Raises:
            NoBrokersAvailable: no broker has responded; the text has the reason of each.
            IllegalStateError: the client isn't started, or was closed.
        """
        await self._cluster.ping(check_positive("timeout_ms", timeout_ms) / 1000)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics; one that was just created may be missing."""
        return await self._cluster.list_topics()

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
        return await self._cluster.describe_topics(topics)

    async def describe_cluster(self) -> ClusterDescription:
        """Return brokers ({node_id, host, port, rack}), cluster_id and controller_id, in a dict.

        `controller_id` is -1 and `rack` None on brokers before 0.10, `cluster_id` None before
        0.10.1. `brokers` is empty on an 0.8 cluster without topics, because its metadata response
        has an empty broker list (docs/brokers.md 4.1).
        """
        return await self._cluster.describe_cluster()

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
        return await self._cluster.list_offsets(positions)

    async def broker_releases(self) -> dict[int, str | None]:
        """Return the release of each broker by its node id.

        It is "0.8.0", "0.8.1", "0.8.2", "0.9", or the release that the broker's API versions stand
        for: "0.10.2", "2.5 or 2.6". It is "0.8" if the cluster has no topic by which the lines of
        0.8 could be told apart, and None for a broker that doesn't respond within
        `start_timeout_ms`. A broker of 0.8.0 logs errors when it is asked (docs/brokers.md 2.5).

        Raises:
            NoBrokersAvailable: no broker responds.
        """
        return await self._cluster.broker_releases()

    async def ping_brokers(self) -> dict[int, BrokerVersion | KafkaError]:
        """Return for each broker, by node id, its version if it responds, or else its error.

        The brokers are those of the last metadata response: call `describe_cluster` first. Each
        gets one request, ListOffsets without topics, which all lines know. The line of a version
        may be `BrokerLine.V0_8`, which stands for any of 0.8.
        """
        return await self._cluster.ping_brokers()

    async def describe_cluster_nodes(self) -> ClusterNodes:
        """Return replicas, leaders, in-sync replicas and settings of all topics from ZooKeeper.

        Unlike a broker's metadata, ZooKeeper also names dead replicas, and its in-sync replicas are
        never stale (docs/brokers.md 4.7, 4.8). It also has the topics that are marked for deletion,
        and partitions that are being reassigned.

        Returns:
            The topics by name, each with the errors of its nodes that can't be read; and the errors
            of other nodes, such as a broker's or the controller's.

        Raises:
            UnsupportedVersionError: there is no `zookeeper_connect`.
            KafkaConnectionError: ZooKeeper can't be reached.
        """
        return await self._cluster.describe_cluster_nodes()

    # --- changes of topics ------------------------------------------------------------------------

    async def create_topics(
        self,
        new_topics: list[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Create topics and wait until each partition has a leader.

        Args:
            new_topics: the topics; those of aiokafka's class are accepted, too.
            timeout_ms: how long to wait for the leaders of a topic, in milliseconds, from 1 on;
                None: `request_timeout_ms` (default None).
            validate_only: True checks the topics, and creates nothing (default False).

        Raises:
            UnsupportedVersionError: there is no `zookeeper_connect`.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaTimeoutError: a topic was created (or grown, by `create_partitions`), but has no
                leaders in time; the topics after it weren't changed.
        """
        return await self._topic_changes.create_topics(new_topics, timeout_ms, validate_only)

    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics and wait for their leaders.

        New messages of a key may go to another partition than its old ones.

        Args:
            topic_partitions: for each topic its new number of partitions; aiokafka's class is
                accepted, too.
            timeout_ms: how long to wait for the leaders of a topic, in milliseconds, from 1 on;
                None: `request_timeout_ms` (default None).
            validate_only: True checks the arguments, and adds nothing (default False).

        Raises as `create_topics`.
        """
        return await self._topic_changes.create_partitions(
            topic_partitions, timeout_ms, validate_only
        )

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
        return await self._topic_changes.delete_topics(topics, timeout_ms)

    async def list_topic_overrides(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the configs that are set for topics, by topic, without the brokers' defaults.

        Args:
            topics: names.

        Raises:
            UnknownTopicOrPartitionError: a topic doesn't exist.
            UnsupportedVersionError: there is no `zookeeper_connect`.
            KafkaConnectionError: ZooKeeper can't be reached.
        """
        return await self._topic_changes.list_topic_overrides(topics)

    async def alter_topic_overrides(
        self, topic: str, changes: Mapping[str, object | None], validate_only: bool = False
    ) -> dict[str, str]:
        """Change configs of a topic, and notify the brokers; return the topic's resulting configs.

        Brokers apply them at once, without a restart.

        Args:
            topic: its name.
            changes: the configs to set; None returns one to the brokers' default.
            validate_only: True checks the changes, and makes none; the result is as if they were
                made (default False).

        Raises:
            UnknownTopicOrPartitionError: the topic doesn't exist.
            InvalidConfigurationError: the brokers don't know a config, or can't use its value.
            UnsupportedVersionError: there is no `zookeeper_connect`; or the brokers are of 0.8.0,
                which has no topic configs.
            KafkaConnectionError: ZooKeeper can't be reached.
        """
        return await self._topic_changes.alter_topic_overrides(topic, changes, validate_only)

    # --- groups -----------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the node id of a group's coordinator (brokers from 0.8.2 on).

        Args:
            group_id: the group.
            coordinator_type: 0 for a group (default 0).

        Raises:
            UnsupportedVersionError: the brokers have no coordinators; or `coordinator_type` isn't
                0, which needs brokers from 0.11 on.
            GroupCoordinatorNotAvailableError: no broker named it within `request_timeout_ms`.
        """
        return await self._groups.find_coordinator(group_id, coordinator_type)

    async def list_consumer_groups(
        self, broker_ids: list[int] | None = None
    ) -> list[tuple[str, str]]:
        """Return name and protocol type of all groups.

        Brokers from 0.9 on list the groups that they coordinate. The type is "consumer" for groups
        of consumers. It is "" for groups that have committed offsets, but never had a member. On
        0.8 the groups in ZooKeeper are listed.

        Args:
            broker_ids: the node ids of the brokers to ask; None for all (default None).

        Raises:
            UnsupportedVersionError: the brokers are of 0.8, and there is no `zookeeper_connect`.
            KafkaError: a broker doesn't respond, or refuses.
        """
        return await self._groups.list_consumer_groups(broker_ids)

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupDescriptions]:
        """Return state, members and assignments of the groups, in one item per coordinator.

        `aiokafka08.coordinator.protocol` decodes the members' metadata and assignments. An unknown
        group has the state "Dead". The call creates neither a group nor the offsets topic. On 0.8
        one item shows the groups in ZooKeeper, without hosts and client ids.

        Args:
            group_ids: the names.
            group_coordinator_id: the node id of the coordinator of all these groups; None finds it
                (default None).
            include_authorized_operations: True raises `UnsupportedVersionError` (default False).

        Raises:
            UnsupportedVersionError: the brokers are of 0.8, and there is no `zookeeper_connect`; or
                `include_authorized_operations` is given, which needs brokers from 2.3 on.
            KafkaError: a coordinator doesn't respond, or refuses.
        """
        return await self._groups.describe_consumer_groups(
            group_ids, group_coordinator_id, include_authorized_operations
        )

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: list[TopicPartition] | None = None,
        *,
        offsets_storage: OffsetsStorage | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed.

        Args:
            group_id: the group.
            group_coordinator_id: the node id of its coordinator; None finds it (default None).
            partitions: return these, with offset -1 where nothing is committed. None: return all
                partitions that have a committed offset (default None).
            offsets_storage: "kafka", "zookeeper" or "dual", the same as the group's consumers;
                None for the default of the brokers' line (`docs/groups.md`; default None).

        Raises:
            KafkaConfigurationError: the brokers are of 0.8.0, and there is no `zookeeper_connect`.
            UnsupportedVersionError: the brokers' line doesn't have the storage.
            KafkaError: the offsets could not be fetched.
        """
        return await self._groups.list_consumer_group_offsets(
            group_id, group_coordinator_id, partitions, offsets_storage=offsets_storage
        )

    async def list_consumer_group_lag(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None = None,
        *,
        offsets_storage: OffsetsStorage | None = None,
    ) -> dict[TopicPartition, int | None]:
        """Return how many offsets a group is behind the end of each partition.

        The lag counts offsets, not messages: compaction and transactions leave gaps. It is None
        where nothing is committed. The arguments are those of `list_consumer_group_offsets`, with
        the same defaults, and so are the errors.
        """
        return await self._groups.list_consumer_group_lag(
            group_id, partitions, offsets_storage=offsets_storage
        )

    # --- groups of both stores --------------------------------------------------------------------

    async def list_stored_groups(self) -> list[StoredGroup]:
        """Return all groups of the cluster, ordered, each once per store that it is in.

        Idle groups are included. Brokers from 0.10.1 on list them. Brokers of 0.8.2 to 0.10.0
        don't, so for these the call reads the topic `__consumer_offsets`, at first all of it, and
        in later calls of this client what was added since.

        Groups in ZooKeeper are listed with `zookeeper_connect` only.

        Raises:
            UnsupportedVersionError: the brokers are older than 0.8.2, and so have groups in
                ZooKeeper only, and there is no `zookeeper_connect`.
            KafkaError: a broker or ZooKeeper doesn't respond, or refuses; or a partition of
                `__consumer_offsets` can't be read. `list_groups_of_store` returns what can be read.
        """
        return await self._stored_groups.list_stored_groups()

    async def list_groups_of_store(self, store: GroupStore) -> StoredGroupListing:
        """Return the groups of one store as `list_stored_groups` does, as many as can be read.

        Args:
            store: "kafka" or "zookeeper".

        Raises:
            UnsupportedVersionError: as `list_stored_groups`.
            KafkaError: nothing of the store can be read.
        """
        return await self._stored_groups.list_groups_of_store(store)

    async def list_groups_of_stores(
        self, stores: Collection[GroupStore] = ("kafka", "zookeeper")
    ) -> list[StoredGroupListing]:
        """Return the groups of each store, in the order of `stores`, as many as can be read.

        Args:
            stores: those to look at (default ('kafka', 'zookeeper')).

        Raises:
            UnsupportedVersionError: as `list_stored_groups`.
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
        """
        return await self._stored_groups.list_groups_of_stores(stores)

    async def possible_groups(self, group_ids: Collection[str]) -> list[StoredGroup]:
        """Return each named group in each store that it may be in, whether or not it is there.

        Args:
            group_ids: the names. Those that can't be a node of ZooKeeper aren't looked for there.

        Raises:
            UnsupportedVersionError: the brokers are of 0.8.0, which don't know groups, and there is
                no `zookeeper_connect`.
            KafkaError: no broker responds.
        """
        return await self._stored_groups.possible_groups(group_ids)

    async def list_stored_offsets(self, groups: Iterable[StoredGroup]) -> list[StoredOffsets]:
        """Return what these groups have committed, in the same order.

        It costs one request per group in Kafka, pipelined (on 0.8.2 each request names all
        partitions). Groups in ZooKeeper are read there with `zookeeper_connect`, otherwise by
        requests to brokers from 0.8.1 on.

        Args:
            groups: the groups, each in one store.

        Raises:
            KafkaError: no broker responds. The error of one group, or of one node in ZooKeeper that
                holds something else than an offset, is in the result.
        """
        return await self._stored_groups.list_stored_offsets(groups)

    async def list_group_lags(self, group_ids: Collection[str] | None = None) -> list[PartitionLag]:
        """Return how far groups are behind, a row per partition and store, ordered.

        A row is of a partition of which the group has a committed offset, or one that can't be
        read; which a member owns; or of whose topic the group has offsets of other partitions. See
        `PartitionLag` for the fields.

        Args:
            group_ids: the names; None for all groups of `list_stored_groups()` (default None). The
                offsets of a named group in ZooKeeper are found without `zookeeper_connect` too
                (except on 0.8.0), but not its members.

        Raises:
            UnsupportedVersionError: as `list_stored_groups`; with names, the brokers are of 0.8.0,
                and there is no `zookeeper_connect`.
            KafkaError: offsets or members of a group can't be read, or no broker responds.
                Partitions without a reachable leader don't fail the call.
        """
        return await self._stored_groups.list_group_lags(group_ids)

    async def read_group_lags(self, group_ids: Collection[str] | None = None) -> GroupLags:
        """Return the rows of `list_group_lags` that can be read, and the errors of the others.

        Args:
            group_ids: as in `list_group_lags` (default None).

        Raises:
            UnsupportedVersionError: as `list_group_lags`.
            KafkaError: no broker responds. A store whose groups can't be listed is among `errors`.
        """
        return await self._stored_groups.read_group_lags(group_ids)

    async def list_partition_owners(
        self, groups: Iterable[StoredGroup]
    ) -> dict[str, dict[TopicPartition, PartitionOwner]]:
        """Return the member that reads each partition, for each group with members.

        Members in ZooKeeper are known with `zookeeper_connect` only.

        Args:
            groups: the groups, each in one store.

        Raises:
            KafkaError: a coordinator or ZooKeeper doesn't respond, or refuses.
        """
        return await self._stored_groups.list_partition_owners(groups)

    async def describe_stored_groups(
        self, groups: Iterable[StoredGroup]
    ) -> list[StoredGroupDescription]:
        """Return state, members and assignments of groups, those in Kafka first.

        A group is left out if its store can't describe it: a group in Kafka before 0.9, a group in
        ZooKeeper without `zookeeper_connect`.

        Args:
            groups: the groups, each in one store.

        Raises:
            KafkaError: no broker responds. The error of one group is in its result.
        """
        return await self._stored_groups.describe_stored_groups(groups)

    async def list_log_bounds(
        self, partitions: Collection[TopicPartition] | None = None, *, starts: bool = True
    ) -> dict[TopicPartition, LogBounds]:
        """Return first and next offset of partitions, by few requests per broker.

        Args:
            partitions: the partitions; None for all of the cluster (default None). Those that don't
                exist are left out of the result.
            starts: False leaves the first offsets out, and shortens the responses (default True).

        Raises:
            KafkaError: no broker responds. A partition without a reachable leader has None in its
                bounds.
        """
        return await self._stored_groups.list_log_bounds(partitions, starts=starts)

    async def read_offsets_topic(self) -> OffsetsTopic:
        """Read the topic `__consumer_offsets`: all commits and groups in Kafka, with their times.

        No request lists these on 0.8.2 to 0.10.0. The first call reads the whole topic, later calls
        of this client what was added since. On brokers from 0.11 on the result may have offsets of
        transactions that were aborted.

        Raises:
            KafkaError: no broker responds, or no partition of the topic can be read within
                `request_timeout_ms`. The errors of some partitions are in the result.
        """
        return await self._stored_groups.read_offsets_topic()

    # --- changes of groups ------------------------------------------------------------------------

    async def reset_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, ResetTarget],
        *,
        offsets_storage: OffsetsStorage | None = None,
    ) -> dict[TopicPartition, int]:
        """Move the offsets of a group whose consumers are all stopped.

        The call refuses a group with live members. Brokers and ZooKeeper don't know consumers that
        use `assign()`: stop these before the call.

        Args:
            group_id: the group.
            offsets: per partition an offset within the log, or an `OffsetAndMetadata` to add a
                text, or "earliest", "latest", or a `datetime`. A datetime means the offset that
                `AIOKafkaConsumer.offsets_for_times` returns for it: a reader that begins there gets
                all messages of that time or later. It means "latest" if there is no such message.
            offsets_storage: as in `list_consumer_group_offsets` (default None).

        Returns:
            The offsets that are committed now.

        Raises:
            IllegalStateError: the group has live members; the error names them.
            IllegalArgumentError: an offset is outside the log, or isn't one of the values above.
            UnsupportedVersionError: the brokers are of 0.8, or the offsets are in ZooKeeper, and
                there is no `zookeeper_connect`: only ZooKeeper knows the members.
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
            KafkaError: some offsets were not committed; the error names the partitions.
        """
        return await self._group_changes.reset_consumer_group_offsets(
            group_id, offsets, offsets_storage=offsets_storage
        )

    async def plan_group_reset(
        self, group: StoredGroup, targets: Mapping[TopicPartition, PlanTarget]
    ) -> list[PlannedOffset]:
        """Return what a reset of a group would commit, ordered; change nothing.

        An offset outside the log is moved to the nearest one inside (see `PlannedOffset.wanted`).
        To carry the plan out, pass its offsets to `reset_consumer_group_offsets()`, with the
        group's store as `offsets_storage`.

        Args:
            group: the group in one store.
            targets: per partition what `reset_consumer_group_offsets()` takes, or "current" for the
                committed offset (the end of the log if there is none), or a `ShiftBy`.

        Raises:
            IllegalStateError: the group has live members, as far as the client can find out; the
                error names them.
            IllegalArgumentError: `group` is a name; or a target isn't one of these values, or is a
                `ShiftBy` for a partition without a committed offset.
            UnknownTopicOrPartitionError: a partition doesn't exist.
            KafkaError: offsets could not be fetched.
        """
        return await self._group_changes.plan_group_reset(group, targets)

    async def check_group_change(self, group: StoredGroup) -> None:
        """Raise if a reset or the deletion of a group would be refused now; change nothing.

        The reset and the deletion check this themselves. Call it for all groups before a change of
        several, so that none is changed if another one can't be.

        Args:
            group: the group in one store.

        Raises:
            IllegalStateError: the group has live members; the error names them.
            UnsupportedVersionError: the group is in ZooKeeper, or the brokers are of 0.8, and there
                is no `zookeeper_connect`.
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
            KafkaError: a broker or ZooKeeper doesn't respond, or refuses.
        """
        return await self._group_changes.check_group_changes([group])

    async def check_group_changes(self, groups: Iterable[StoredGroup]) -> None:
        """Raise if `check_group_change` would raise for one of the groups; check all together.

        Args:
            groups: the groups, each in one store.

        Raises:
            KafkaError: as `check_group_change`; the text names each such group.
        """
        return await self._group_changes.check_group_changes(groups)

    async def delete_stored_group(self, group: StoredGroup) -> GroupDeletion:
        """Delete a group without members from one store, with its committed offsets.

        - In ZooKeeper the group's node is deleted. It needs `zookeeper_connect`.
        - In Kafka from 1.1 on the coordinator deletes the group at once.
        - In Kafka from 0.8.2 to 1.0, which have no request for it, the offsets are committed again
          as of 1970. So the coordinator removes them at its next check, within
          `offsets.retention.check.interval.ms` (by default ten minutes), and writes the tombstones.

        Args:
            group: the group in one store.

        Raises:
            IllegalStateError: the group has live members; the error names them.
            UnsupportedVersionError: the group is in ZooKeeper, or the brokers are of 0.8, and there
                is no `zookeeper_connect`.
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
            KafkaError: a broker or ZooKeeper doesn't respond, or refuses.
        """
        [deletion] = await self._group_changes.delete_stored_groups([group])
        if isinstance(deletion, KafkaError):
            raise deletion
        return deletion

    async def delete_stored_groups(
        self, groups: Iterable[StoredGroup]
    ) -> list[GroupDeletion | KafkaError]:
        """Delete groups as `delete_stored_group` does, many at a time.

        Args:
            groups: the groups, each in one store; a group that is named twice is deleted once.

        Returns:
            For each group, in their order, the outcome, or the error that prevented the deletion.

        Raises:
            UnsupportedVersionError, ZookeeperMismatchError: as `delete_stored_group`; nothing is
                deleted.
        """
        return await self._group_changes.delete_stored_groups(groups)

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
