"""`AIOKafkaConsumer`, the public class: check arguments and state, then delegate.

Names, keyword arguments, signatures and return types are those of aiokafka 0.14. docs/aiokafka.md
lists the additions.

The class makes a `Router` (connections and metadata), a `Subscription` (what the user wants to
read) and a `ConsumerEngine` (everything else). Invariant: `stop()` ends every other method that
waits for the network, with `ConsumerStoppedError` (`async for` just ends, `getmany()` returns
nothing). Such a method runs in `_stop_scope`, or waits for `Collector.changed` and then runs
`ConsumerEngine.check`, which raises.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import warnings
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import replace
from types import MethodType, TracebackType
from typing import Any, Final, Generic, Self

from aiokafka08._core import arrow, arrow_headers
from aiokafka08._core.concurrency.stop_scope import StopScope
from aiokafka08._core.net.client_attributes import ClientAttributes
from aiokafka08._core.net.cluster import INTERNAL_TOPICS, check_partitions
from aiokafka08._core.net.config import (
    MAX_INT64,
    ApiVersion,
    BootstrapServers,
    NetConfig,
    OffsetsStorage,
    SecurityProtocol,
    ZookeeperCheck,
    as_integer,
    as_number,
    callable_or_none,
    check_positive,
    net_config,
    numbered_client_id,
)
from aiokafka08._core.net.lifecycle import Lifecycle
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.offsets_for_times import offsets_for_times, wait_for_partitions
from aiokafka08._core.net.router import Router
from aiokafka08._wording import partition_text, shorten
from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.consumer.attributes import CoordinatorAttributes, SubscriptionAttributes
from aiokafka08.consumer.collector import CALL_COLUMN_BYTES, CollectedColumns, Collector
from aiokafka08.consumer.commits import CommitOffsets, as_offset, check_offsets
from aiokafka08.consumer.config import AutoOffsetReset, ConsumerConfig, consumer_config
from aiokafka08.consumer.cursor import Cursor, StartPosition, TakenRecords
from aiokafka08.consumer.engine import ConsumerEngine
from aiokafka08.consumer.membership.choose import check_subscribe
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.embedded_headers import HeadersMode
from aiokafka08.errors import (
    Action,
    ConsumerStoppedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    action_for,
)
from aiokafka08.protocol import twins
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import KT, VT, ConsumerRecord, OffsetAndTimestamp, TopicPartition
from aiokafka08.telemetry import Event, Telemetry

ARROW_ROWS: Final = 10_000
"""The most rows of an Arrow batch, if neither `max_records` nor `max_poll_records` is given."""

EMBEDDED_ARROW_ROWS: Final = 1000
"""The most rows of an Arrow batch with embedded headers, which are read row by row in Python."""

EMBEDDED_ARROW_BYTES: Final = 64 * 1024
"""The bytes of keys and values after which an Arrow batch with embedded headers takes no more rows,
since reading 64 KiB of envelopes takes about 10 ms."""


class AIOKafkaConsumer(Generic[KT, VT]):
    """Read messages from a Kafka cluster with brokers 0.8.0 to 3.9.

    `async with` starts and stops the consumer. For type checkers the class is generic in the types
    of keys and values, which are the results of the deserializers: `AIOKafkaConsumer[str, Order]`
    returns records whose `key` is `str | None`. `AIOKafkaConsumer` means
    `AIOKafkaConsumer[bytes, bytes]`.

    Options whose names end with `_ms` are in milliseconds.

    Args:
        topics: topics to subscribe to, as with `subscribe()`.
        loop: deprecated, without effect: `start()` takes the running event loop (default None).
        bootstrap_servers: addresses of some of the cluster's brokers: "host:port,…", or a list of
            "host:port" or of pairs (host, port). Without a port it is 9092; an IPv6 address with a
            port needs brackets (default "localhost").
        client_id: the name that brokers log, at most 32767 bytes. None or "":
            "aiokafka08-consumer-" and a number (default None).
        group_id: the group that shares the partitions of `subscribe()`, and owns the committed
            offsets; None for a consumer without a group (default None).
        group_instance_id: for static members, which need brokers from 2.3 on, so a value other than
            None raises `UnsupportedVersionError` (default None).
        key_deserializer, value_deserializer: called with the bytes of a key or value, or with None
            if it is null; the result is the `key` or `value` of the record. The call that would
            return the message raises their exception (see `getone`), and so do later calls until it
            succeeds or you `seek()` past it. None leaves bytes as they are (default None).
        fetch_max_wait_ms: how long a broker may wait for `fetch_min_bytes`, from 0 on (default
            500). Even with less than 100 ms, or with `fetch_min_bytes=0`, it waits up to 100 ms for
            a first message. With a `group_id`, brokers 0.8.0 and 0.8.1 wait for at most 100 ms,
            because they send no errors during a wait. Messages in the log come without this wait,
            also after a `seek()`, `resume()` or a new assignment, over a second connection.
        fetch_max_bytes: the most bytes of message sets that are requested or buffered, over all
            partitions and brokers (see `consumer.fetch_memory`), and the size of the largest
            message that can be fetched. In aiokafka it bounds one response of one broker. From 1 on
            (default 52428800).
        fetch_min_bytes: a broker that has fewer bytes waits for more, up to `fetch_max_wait_ms`.
            From 0 on (default 1).
        max_partition_fetch_bytes: the usual size of a fetch of one partition, in bytes, from 1 on.
            Larger messages are fetched too, up to `fetch_max_bytes` (default 1048576).
        request_timeout_ms: how long to wait for a broker's response, and for a topic's metadata,
            from 1 on (default 40000).
        start_timeout_ms: how long `start()` tries to reach a broker before it raises; then as long
            to reach the coordinator of the group, and as long to read the committed offsets. From 1
            on. A service that starts before its cluster needs more. A rebalance isn't limited, but
            a JoinGroup or SyncGroup is given up after `session_timeout_ms` + `request_timeout_ms`.
            None: `request_timeout_ms` (default None).
        retry_backoff_ms: the first pause before a failed request is repeated; later pauses grow to
            a second. From 0 on (default 100).
        metadata_max_age_ms: refresh the metadata at this age, from 1 on (default 300000).
        auto_offset_reset: where to begin in a partition without a committed offset, or whose offset
            the broker no longer has: at the "earliest" message, at the "latest" (after the last
            message); "none" raises an error (default "latest").
        enable_auto_commit: True commits positions every `auto_commit_interval_ms`, before
            partitions are revoked, and at the stop, if there is a `group_id` (default True).
        auto_commit_interval_ms: the time between automatic commits, from 0 on (default 5000).
        check_crcs: whether to check the CRC-32 of each message (default True).
        partition_assignment_strategy: a list of classes derived from
            `coordinator.assignors.abstract.AbstractPartitionAssignor`, in order of preference. An
            empty list means roundrobin, then range; for groups in ZooKeeper, range (default ()).
        max_poll_interval_ms: a consumer that takes no messages for this long leaves its group until
            it takes some. From 1 on (default 300000).
        rebalance_timeout_ms: without effect: see `session_timeout_ms` (default None).
        session_timeout_ms: a member that sends no heartbeat for this long is removed from its
            group. In a group that brokers coordinate, a rebalance also waits this long for each
            member (JoinGroup 0 has no `rebalance_timeout_ms`). From 1 on; brokers allow a range, by
            default 6,000 to 30,000 or more (default 10000).
        heartbeat_interval_ms: the time between heartbeats, from 1 on; with a group that brokers
            coordinate, less than `session_timeout_ms` (default 3000).
        consumer_timeout_ms: without effect, as in aiokafka (default 200).
        max_poll_records: the most messages that `getmany()` returns, from 1 on; None for no limit
            (default None).
        api_version: the version of the brokers. None or "auto" detects that of each broker;
            "0.8.2" or (0, 8, 2) sets it, from 0.8.0 to 3.9 (default None).
        security_protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"; "PLAINTEXTSASL" is
            HDP's name of "SASL_PLAINTEXT" (default "PLAINTEXT").
        ssl_context: the `ssl.SSLContext` of "SSL" and "SASL_SSL", for example of
            `helpers.create_ssl_context()`; None without TLS (default None).
        connections_max_idle_ms: close a connection after this many idle milliseconds, from 1 on,
            but not the last one; None never closes one (default 540000).
        exclude_internal_topics: True hides internal topics from patterns and from `topics()`
            (default True).
        isolation_level: "read_uncommitted"; "read_committed", which needs brokers from 0.11 on,
            raises `UnsupportedVersionError` (default "read_uncommitted").
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
        client_rack: for fetches from followers, which need brokers from 2.4 on, so a value other
            than None raises `UnsupportedVersionError` (default None).
        offsets_storage: where committed offsets are stored: "kafka" (brokers from 0.8.2 on),
            "zookeeper", or "dual" (both; the larger offset is read). None means ZooKeeper on 0.8.0
            and 0.8.1, Kafka from 0.9 on. On 0.8.2 it means ZooKeeper if `zookeeper_connect` is
            given, else Kafka (default None).
        zookeeper_connect: "host:port,.../chroot" of the cluster's ZooKeeper. Needed for groups on
            all brokers before 0.9, and for committed offsets on 0.8.0. From 0.9 on the consumer
            joins its group only when no member is left in ZooKeeper (default None).
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
        rebalance_backoff_ms: for groups in ZooKeeper, as in the Scala consumer: the pause before
            the next attempt to claim partitions that other members haven't released yet; from 0.9
            on, with `zookeeper_connect`, to join a group that still has members in ZooKeeper. From
            1 on (default 2000).
        rebalance_max_retries: for groups in ZooKeeper: the number of these attempts, from 1 on
            (default 4).
        allow_auto_create_topics: False: never name a topic in a Metadata request, so that brokers
            with `auto.create.topics.enable` don't create it. The consumer then requests the
            metadata of all topics (default True).
        headers: "embedded": read headers out of values in the envelope of Spring Cloud Stream (see
            `aiokafka08.embedded_headers`), into `ConsumerRecord.headers` and the Arrow column
            `headers`. A value that begins with 0xff but is no whole envelope then raises
            `EmbeddedHeadersError`. "refuse", "drop": return values as they are. None: the
            environment variable AIOKAFKA08_HEADERS, or "refuse" without it (default None).
        on_event: called with each event of `aiokafka08.telemetry`, in the event loop
            (default None).

    Raises:
        IllegalArgumentError: an option has a wrong value (this is a `ValueError` too).
        UnsupportedVersionError: an option needs more than the protocol of 0.8: `read_committed`,
            static group members, fetching from followers.
    """

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: BootstrapServers = "localhost",
        client_id: str | None = None,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[bytes], KT] | None = None,
        value_deserializer: Callable[[bytes], VT] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1048576,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: AutoOffsetReset = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300000,
        partition_assignment_strategy: Sequence[Any] = (),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        security_protocol: SecurityProtocol = "PLAINTEXT",
        api_version: ApiVersion = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: object = None,
        sasl_kerberos_keytab: str | None = None,
        sasl_kerberos_principal: str | None = None,
        client_rack: str | None = None,
        offsets_storage: OffsetsStorage | None = None,
        zookeeper_connect: str | None = None,
        zookeeper_check: ZookeeperCheck | None = None,
        zookeeper_options: Mapping[str, Any] | None = None,
        rebalance_backoff_ms: int = 2000,
        rebalance_max_retries: int = 4,
        start_timeout_ms: int | None = None,
        allow_auto_create_topics: bool = True,
        headers: HeadersMode | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        if loop is not None:
            warnings.warn(
                "loop is deprecated: the consumer uses the event loop in which start() is called",
                DeprecationWarning,
                stacklevel=2,
            )
        net = net_config(
            bootstrap_servers=bootstrap_servers,
            client_id=numbered_client_id("aiokafka08-consumer", client_id),
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
        self._config = consumer_config(
            group_id=group_id,
            group_instance_id=group_instance_id,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            fetch_max_wait_ms=fetch_max_wait_ms,
            fetch_max_bytes=fetch_max_bytes,
            fetch_min_bytes=fetch_min_bytes,
            max_partition_fetch_bytes=max_partition_fetch_bytes,
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            check_crcs=check_crcs,
            partition_assignment_strategy=partition_assignment_strategy,
            max_poll_interval_ms=max_poll_interval_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            rebalance_backoff_ms=rebalance_backoff_ms,
            rebalance_max_retries=rebalance_max_retries,
            consumer_timeout_ms=consumer_timeout_ms,
            max_poll_records=max_poll_records,
            exclude_internal_topics=exclude_internal_topics,
            isolation_level=isolation_level,
            client_rack=client_rack,
            offsets_storage=offsets_storage,
            zookeeper_connect=zookeeper_connect,
            zookeeper_check=zookeeper_check,
            zookeeper_options=zookeeper_options,
            headers=headers,
        )
        largest = self._config.fetch_max_bytes + self._config.max_partition_fetch_bytes
        net = replace(net, max_frame_bytes=max(net.max_frame_bytes, 2 * largest))
        self._lifecycle = Lifecycle("AIOKafkaConsumer", net.client_id, twins=twins.CONSUMER_TWINS)
        self._stop_scope = StopScope(ConsumerStoppedError)
        self._stopping: asyncio.Task[None] | None = None
        callable_or_none("on_event", on_event)
        self._router = self._make_router(net, Telemetry(on_event, client_id=net.client_id))
        self._router.metadata.may_create_topics = allow_auto_create_topics
        self._router.metadata.all_topics = not allow_auto_create_topics
        self._client = ClientAttributes(self._router, bootstrap_servers, net.request_timeout_s)
        self._wanted = Subscription(exclude_internal_topics=self._config.exclude_internal_topics)
        self._engine = self._make_engine(self._router, self._config, self._wanted, self._lifecycle)
        self._config = self._engine.config
        self._collector = self._engine.collector
        if topics:
            self.subscribe(topics)

    def _make_router(self, config: NetConfig, telemetry: Telemetry) -> Router:
        """Make the router. A subclass may do it with other limits."""
        return Router(config, telemetry)

    def _make_engine(
        self,
        router: Router,
        config: ConsumerConfig,
        subscription: Subscription,
        lifecycle: Lifecycle,
    ) -> ConsumerEngine:
        """Make the engine. A subclass may do it with other limits and parts."""
        return ConsumerEngine(router, config, subscription, lifecycle)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._router.config.bootstrap)
        state = "running" if self._lifecycle.is_running else "not running"
        count, impl = len(self._engine.cursors), twins.describe(twins.CONSUMER_TWINS)
        return f"<AIOKafkaConsumer {servers} {state} partitions={count} impl={impl}>"

    def __del__(self) -> None:
        lifecycle: Lifecycle | None = getattr(self, "_lifecycle", None)
        if lifecycle is not None:
            lifecycle.warn_if_not_stopped(self)

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and begin to read; with a subscription, wait for its partitions.

        It waits for their positions too (up to 3 s, since a leader may be away). So a message sent
        after the start is read, even with `auto_offset_reset="latest"`, unless the group has just
        begun to rebalance again. A consumer whose start has failed is stopped; make a new one.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker within `start_timeout_ms`; the
                text has the last error of each.
            UnsupportedVersionError: only brokers of 4.x were found; or there is a subscription with
                a `group_id` but without `zookeeper_connect`, and the brokers have no groups (0.8).
            BrokerResponseError: the group refuses this member; the text says why.
            KafkaTimeoutError, GroupCoordinatorNotAvailableError: the group's coordinator couldn't
                be found or reached within `start_timeout_ms`, for the membership or for the
                committed offsets; the text has the last error and the coordinator's address.
            KafkaUnavailableError: other members haven't released their partitions, or are left in
                ZooKeeper (see the option `rebalance_max_retries`).
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
            UnknownTopicOrPartitionError: a subscribed topic doesn't exist and isn't created within
                `request_timeout_ms`. The event `TopicMissing` names similar topics after 1 s.
            ConsumerStoppedError: `stop()` was called meanwhile.
        """
        self._lifecycle.bind_to_loop()
        self._engine.bind_loop()
        try:
            await self._stop_scope.run(self._engine.start())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop reading, make the last automatic commit, leave the group, close all connections.

        Calls that wait raise `ConsumerStoppedError`, but a `getmany()` that waits returns `{}`.
        Messages that were fetched but not returned are dropped. If a thread is decompressing a
        message, `stop()` waits for it, up to about a second. Safe to call more than once.

        Raises:
            IllegalStateError: the consumer belongs to another event loop or process, and goes on
                running there.
        """
        if self._stopping is None:
            if not self._lifecycle.is_running:
                self._lifecycle.stopped = True
                return
            self._lifecycle.check()
            self._lifecycle.stopped = True
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._stop_scope.cancel_all()
        await self._engine.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or the topics whose names match `pattern`.

        With a `group_id` the group assigns a share of the partitions to this consumer; without one
        it reads all partitions. Replaces an earlier subscription of the same kind. The consumer
        begins to read a new partition, or a new topic that matches, when a metadata refresh shows
        it (`metadata_max_age_ms`); with `zookeeper_connect` and brokers of 0.8, at once. It looks
        for a named topic that doesn't exist yet about once a second, later every five seconds;
        `TopicMissing` reports it in the log and to `on_event`, with similar names.

        Args:
            topics: a list of names (default ()).
            pattern: a regular expression that matches the beginning of names (default None).
            listener: called when partitions are revoked and assigned (default None).

        Raises:
            IllegalStateError: there is a subscription of another kind.
            TypeError: not exactly one of topics and pattern is given, the pattern is bytes, or the
                listener isn't a `ConsumerRebalanceListener`.
            ValueError: the pattern isn't a regular expression.
            InvalidTopicError: a topic name isn't valid.
            UnsupportedVersionError: there is a `group_id`, and the brokers have no groups (0.8).
        """
        if isinstance(topics, str) or not isinstance(topics, Collection):
            raise TypeError(f"topics={topics!r}: expected a list of topic names")
        if bool(topics) == (pattern is not None):
            raise TypeError("subscribe(): expected exactly one of topics and pattern")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"listener={listener!r}: expected a ConsumerRebalanceListener")
        check_subscribe(self._config, self._router)
        if pattern is not None:
            self._wanted.subscribe_pattern(pattern, listener)
        else:
            self._wanted.subscribe(topics, listener)
        self._engine.subscription_changed()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics, or those that match the pattern now."""
        return self._wanted.topics(self._router.metadata.snapshot)

    def unsubscribe(self) -> None:
        """Stop reading all partitions. A subscription of any kind may follow."""
        self._engine.commits.commit_revoked_soon(self.assignment())
        self._wanted.unsubscribe()
        self._engine.set_partitions(())
        self._engine.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these `partitions`, in place of those assigned before.

        `TopicMissing` reports a topic that doesn't exist, with similar names.

        Raises:
            TypeError: not a list of partitions.
            InvalidTopicError: a topic name isn't valid.
            IllegalArgumentError: a partition number isn't possible.
            IllegalStateError: there is a subscription to topics or a pattern.
        """
        self._wanted.assign(partitions)
        self._engine.commits.commit_revoked_soon(self.assignment() - self._wanted.assigned)
        self._engine.set_partitions(self._wanted.assigned)
        self._engine.subscription_changed()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer now.

        While its group rebalances, these are still the former ones, if brokers coordinate the group
        and keep its offsets; otherwise there are none. `position()`, `commit()`, `seek()` and the
        other calls about the former ones work until the new ones are there. After that each
        partition continues at its committed offset and isn't paused, even if it was assigned
        before.
        """
        return set(self._engine.assigned)

    # --- messages ---------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[KT, VT]:
        """Wait for the next message of these partitions (by default of all) and return it.

        Also waits for a partition that doesn't exist or has no leader, since it may appear. For
        such a partition `position()` and `end_offsets()` raise within `request_timeout_ms`,
        `ready()` returns False at once, and `on_event` and the log give the reason
        (`PartitionFailed`).

        The error of a partition is raised by the next call, before it returns messages of other
        partitions; those come with the calls after it. (In aiokafka the others' messages come
        first.) Until you `seek()`, the consumer tries the partition again. If that fails in the
        same way, the error is raised again only by a call that gets no messages of other partitions
        within 200 ms.

        Args:
            partitions: the partitions to read; by default all that are assigned.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            CorruptRecordException: the next message is damaged in two fetches, or its envelope of
                headers is damaged (`EmbeddedHeadersError`). The error has its `offset`,
                and as `next_offset` the offset to `seek()` to. If that is None, `seek()` to a
                clearly later offset: brokers may not find messages just after the damage.
            OffsetOutOfRangeError, NoOffsetForPartitionError: with auto_offset_reset="none".
            RecordTooLargeError: the next message is larger than `fetch_max_bytes`.
            Exception: a deserializer raised it for the next message. Its `__notes__` give the
                offset; `seek()` past it.
            TypeError: a partition is neither a `TopicPartition` nor a plain pair.
        """
        if partitions:
            check_partitions(partitions)
        elif not self._lifecycle.stopped:
            for record in self._collector.remaining:  # the usual case: a decoded message is left
                return record
        return await self._collector.get_one(partitions)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        """Return the messages that were fetched, by partition; wait for the first ones.

        Returns `{}` if there are none within `timeout_ms`, or if `stop()` is called meanwhile.

        Args:
            partitions: the partitions to read; by default all that are assigned.
            timeout_ms: how long to wait, in milliseconds; 0 doesn't wait (default 0).
            max_records: the most messages to return, from 1 on; None: `max_poll_records`
                (default None).

        Raises as `getone`, and then returns no messages. Those stay for the next call. An error
        that was raised before is raised again after `timeout_ms`, if no messages have come.
        """
        check_partitions(partitions)
        timeout_s = _seconds(timeout_ms)
        return await self._collector.get_many(partitions, timeout_s, self._limit(max_records))

    async def getmany_arrow(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> arrow.RecordBatch:
        """As `getmany`, but return one `pyarrow.RecordBatch`; it is empty if nothing came.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset,
        timestamp (microseconds, UTC) and timestampType, and `headers` at the end if
        `headers="embedded"`: a list of structs of key and value, or null. There are fewer rows than
        `max_records` if they have over 4 MiB of keys and values (64 KiB, and at most 1,000 rows,
        with embedded headers), or if more would hold the event loop for more than a few
        milliseconds. The first call imports pyarrow, in a thread.

        The caller may keep batches. The memory of a batch is reused for a later one only when
        nothing refers to it any more.

        Args:
            partitions: the partitions to read; by default all that are assigned.
            timeout_ms: how long to wait, in milliseconds; 0 doesn't wait (default 0).
            max_records: the most rows to return, from 1 on; None: `max_poll_records`, or 10,000
                without that (default None).

        Raises as `getmany`, and:
            KafkaConfigurationError: pyarrow isn't installed (`aiokafka08[arrow]`).
            IllegalStateError: the consumer has deserializers; Arrow columns contain bytes.
        """
        self._engine.check()
        await arrow.import_pyarrow(self._engine.offload)
        decoding = self._config.decoding
        if decoding.key_deserializer is not None or decoding.value_deserializer is not None:
            raise IllegalStateError(
                "getmany_arrow() returns bytes: make the consumer without deserializers"
            )
        check_partitions(partitions)
        limit, max_bytes = self._limit(max_records) or ARROW_ROWS, CALL_COLUMN_BYTES
        if decoding.embedded_headers:
            limit, max_bytes = min(limit, EMBEDDED_ARROW_ROWS), EMBEDDED_ARROW_BYTES
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _seconds(timeout_ms)
        while True:
            wait_s = deadline - loop.time()
            collected = await self._collector.get_columns(partitions, wait_s, limit, max_bytes)
            batch = await self._record_batch(collected)
            if batch.num_rows or not collected.runs:
                return batch
            # Only damaged envelopes came. The collector's next call raises a new error at once, but
            # one that was raised before only if no other partition has messages.

    async def _record_batch(self, collected: CollectedColumns) -> arrow.RecordBatch:
        """Return taken messages as a batch. What isn't returned is put back."""
        cursors = {tp: self._engine.cursor(tp) for tp in collected.positions}
        taken = {tp: TakenRecords(position) for tp, position in collected.positions.items()}
        # Until these messages are returned, a commit has the position before them.
        for tp, cursor in cursors.items():
            cursor.unreturned += (taken[tp],)

        def rewind(tp: TopicPartition, offset: int, error: Exception | None = None) -> None:
            cursor = cursors[tp]
            if taken[tp] in cursor.unreturned and self._engine.assigned.get(tp) is cursor:
                self._engine.rewind(cursor, offset)
                if error is not None:
                    self._engine.fail(cursor, error)

        try:
            batch = arrow.record_batch(collected.runs, collected.columns)
            if not self._config.decoding.embedded_headers:
                return batch
            return await self._extract_headers(batch, collected, rewind)
        except BaseException:
            for tp, position in collected.positions.items():  # the messages were not returned
                rewind(tp, position)
            raise
        finally:
            for tp, cursor in cursors.items():
                cursor.unreturned = tuple(one for one in cursor.unreturned if one is not taken[tp])

    async def _extract_headers(
        self,
        received: arrow.RecordBatch,
        collected: CollectedColumns,
        rewind: Callable[[TopicPartition, int, Exception | None], None],
    ) -> arrow.RecordBatch:
        """Return each partition's rows before its first damaged envelope, and rewind the partition
        to that. Only the first damaged envelope of the batch fails its partition."""
        counts = [count for _, count in collected.runs]
        steps = arrow_headers.extract_rows(received, counts, self._config.decoding.extract)
        batch, kept, error = await self._collector.run_steps(steps)
        if error is not None:
            start = 0
            for (tp, count), left in zip(collected.runs, kept, strict=True):
                if left < count:
                    is_of_this = error.partition == tp
                    offset = received["offset"][start + left].as_py()
                    rewind(tp, offset, error if is_of_this else None)
                start += count
        return batch

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[KT, VT]]:
        """Iterate over the messages, each as from `getone()`, until the consumer is stopped.

        If a subclass, a patch or a wrapper has replaced `getone`, the iteration calls the
        replacement for each message.
        """
        if self._lifecycle.stopped:
            raise ConsumerStoppedError
        getone = self.getone
        if (
            type(getone) is MethodType
            and getone.__func__ is _GETONE
            and type(self).__anext__ is _ANEXT
        ):
            return _MessageIterator(self, self._collector)
        return self

    async def __anext__(self) -> ConsumerRecord[KT, VT]:
        """Call `getone()`. The iteration ends when the consumer is stopped."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def _limit(self, max_records: int | None) -> int | None:
        if max_records is None:
            return self._config.max_poll_records
        limit = as_integer(max_records)
        if limit is None or limit < 1:
            raise ValueError(f"max_records={max_records!r}: expected an integer >= 1")
        return limit

    # --- positions --------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next message of `partition`.

        Raises:
            IllegalStateError: the partition isn't assigned.
            NoOffsetForPartitionError: nothing is committed, and auto_offset_reset is "none".
            KafkaTimeoutError: not found within `request_timeout_ms`; the text says why the last
                attempt failed, or if the partition or its leader is missing (aiokafka waits for
                ever).
        """
        self._engine.check()
        cursor = self._engine.cursor(partition)
        if cursor.position is None and not await self._engine.wait_positions([partition]):
            why = self._engine.start_offsets.failure(cursor)
            if why is None:
                why = self._router.metadata.snapshot.no_leader_reason(partition)
            raise KafkaTimeoutError(
                f"{partition_text(partition)}: no position found "
                f"within {self._router.config.request_timeout_s * 1000:.0f} ms"
                + (f": {why}" if why else "")
            )
        position = self._engine.cursor(partition).position
        assert position is not None
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue in `partition` at `offset`; its messages that were fetched are dropped.

        A rebalance of the group ends this, even one that has begun: the partition then continues at
        its committed offset. To seek in a new assignment, call this in `on_partitions_assigned`.

        Raises:
            IllegalStateError: the partition isn't assigned.
            ValueError: the offset isn't an integer from 0 to 2**63 - 1.
        """
        checked = as_offset(offset)
        if checked is None:
            raise ValueError(f"offset={offset!r}: expected an integer from 0 to 2**63 - 1")
        self._engine.seek(self._engine.cursor(partition), checked)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first messages that the brokers have.

        Args:
            partitions: by default all that are assigned.

        Returns:
            False if the offsets weren't found within `request_timeout_ms`. The search goes on.

        Raises:
            IllegalStateError: a partition isn't assigned.
            TypeError: a partition isn't a `TopicPartition`.
        """
        return await self._restart(partitions, StartPosition.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue after the last messages of `partitions`; otherwise as `seek_to_beginning`."""
        return await self._restart(partitions, StartPosition.LATEST)

    async def _restart(self, partitions: Collection[TopicPartition], start: StartPosition) -> bool:
        self._engine.check()
        cursors = self._select(partitions)
        for cursor in cursors:
            self._engine.restart(cursor, start)
        return await self._engine.wait_positions([cursor.topic_partition for cursor in cursors])

    def _select(self, partitions: Collection[TopicPartition]) -> list[Cursor]:
        cursors = self._engine.select(partitions)
        if not cursors:
            raise IllegalStateError("seek: no partitions are assigned")
        return cursors

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, and return them; None where nothing is committed.

        Args:
            partitions: by default all that are assigned.

        Raises as `committed`, and:
            IllegalStateError: a partition isn't assigned, or none is.
        """
        self._engine.check()
        selected = {cursor.topic_partition: cursor for cursor in self._select(partitions)}
        self._engine.require_store()
        offsets = await self._stop_scope.run(self._engine.fetch_committed(selected))
        for tp, offset in offsets.items():
            # If the cursor was replaced, the partition was revoked meanwhile. Another member may
            # have committed since, so this offset may be stale.
            if offset is not None and self._engine.assigned.get(tp) is selected[tp]:
                self.seek(tp, offset)
        return offsets

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of `partition`: the offset of the next message to be written.

        None: it isn't known yet.
        """
        cursor = self._engine.cursor(partition)
        return None if cursor.high_watermark < 0 else cursor.high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return None: this client's Fetch versions have no last stable offset of `partition`."""
        self._engine.cursor(partition)
        return None

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when the `highwater` of `partition` came, in milliseconds since the epoch.

        None: it isn't known yet.
        """
        return self._engine.cursor(partition).polled_at_ms

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no messages of these `partitions`; what was fetched is kept.

        A rebalance of the group ends this, even one that has begun: newly assigned partitions
        aren't paused. To pause them, call this in `on_partitions_assigned`.
        """
        self._each(partitions, self._engine.pause)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {tp for tp, cursor in self._engine.assigned.items() if cursor.paused}

    def resume(self, *partitions: TopicPartition) -> None:
        """Return messages of these paused `partitions` again."""
        self._each(partitions, self._engine.resume)

    def _each(self, partitions: Collection[TopicPartition], act: Callable[[Cursor], None]) -> None:
        if partitions:
            for cursor in self._engine.select(partitions):
                act(cursor)

    # --- committed offsets ------------------------------------------------------------------------

    async def commit(self, offsets: CommitOffsets | None = None) -> None:
        """Commit offsets, by default the positions of all partitions.

        Args:
            offsets: for each partition the offset of the next message to read, or a pair of that
                and a metadata string; None commits the positions (default None).

        Raises:
            CommitFailedError: the group has rebalanced without this member, or has revoked a
                partition (`PartitionRevokedError`, which is an `IllegalStateError`, too).
            IllegalOperation: there is no `group_id`.
            IllegalStateError: a partition isn't assigned, and isn't of the subscription.
            OffsetMetadataTooLargeError: the metadata has over 4096 characters (1024 below 0.8.2).
            ValueError, TypeError: `offsets` has another form.
            KafkaTimeoutError: not committed within `request_timeout_ms`; the text names the
                partitions and the reason.
            KafkaError: the broker refused the commit; the text names the partitions.
        """
        self._engine.check()
        self._engine.require_store()
        if offsets is None:
            commits = self._engine.commit_positions()
        else:
            commits = check_offsets(offsets)
            self._engine.check_commit(commits)
        await self._stop_scope.run(self._engine.commits.commit(commits))

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of `partition`, which need not be assigned.

        None: nothing is committed.

        Raises:
            IllegalOperation: there is no `group_id`.
            TypeError: not a `TopicPartition`.
            IllegalArgumentError: the partition isn't an integer >= 0.
            KafkaTimeoutError: not found within `request_timeout_ms`.
        """
        self._engine.check()
        self._engine.require_store()
        return (await self._stop_scope.run(self._engine.fetch_committed([partition])))[partition]

    # --- the cluster ------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Return the names of all topics; internal topics only if they aren't excluded."""
        self._engine.check()
        metadata = await self._stop_scope.run(self._router.metadata.fetch_all())
        return {
            state.topic
            for state in metadata.topics
            if action_for(state.error_code) is not Action.FINAL
            and not (
                self._config.exclude_internal_topics
                and (state.is_internal or state.topic in INTERNAL_TOPICS)
            )
        }

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of `topic`, or None if the consumer has no metadata of it."""
        return set(self._router.metadata.snapshot.partitions(topic)) or None

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return for each of `partitions` the offset of the first message that the brokers have.

        Positions don't change.

        Raises:
            KafkaTimeoutError: not found within `request_timeout_ms`.
            UnknownTopicOrPartitionError: there is no such partition.
            TypeError, ValueError: not a list of partitions, or an impossible partition number.
        """
        return await self._log_ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return for each of `partitions` the offset after the last message.

        Raises as `beginning_offsets`.
        """
        return await self._log_ends(partitions, LATEST)

    async def _log_ends(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        self._engine.check()
        wanted = dict.fromkeys(check_partitions(partitions), timestamp)
        listed = await self._stop_scope.run(list_offsets(self._router, wanted))
        return {tp: offsets[0] for tp, offsets in listed.items() if offsets}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the offset from which to read the messages since a given time.

        Brokers from 0.10.1 on find the first message whose timestamp is at or after the given one,
        as with aiokafka (ListOffsets 1, KIP-79).

        Older brokers (0.8, 0.9, 0.10.0), and brokers that store the topic in message format 0, know
        only times of whole *segments*. A segment takes `log.roll.hours` or `log.segment.bytes` of
        messages, by default a week or 1 GiB. The client subtracts one second from the given time,
        since file times are coarse; the result is the start of the first segment whose last write
        came after that. It is never after the first message that was written since the given time,
        and often before it. Format 0 has no timestamps, so the earlier messages can't be recognized
        and skipped.

        The last write of a segment is the modification time of its file on the leader. If the
        leader has copied the file from another replica, this is the time of the copy, and the
        result is too early. If the clock of a producer is ahead of the broker's, the timestamp of a
        message may be later than the last write of its segment: a search for that timestamp may
        miss the message, since these brokers go by the time of the write. Brokers from 0.10.1 on
        use file times too, for messages without timestamps and for segments that are older than the
        upgrade of the broker.

        Args:
            timestamps: for each partition the milliseconds since the epoch.

        Returns:
            `OffsetAndTimestamp`, with timestamp None for the start of a segment; None if there is
            no message that late.

        Raises:
            TypeError, ValueError: a time or a partition isn't possible.
            KafkaTimeoutError: not found, or no such partition, within `request_timeout_ms`.
        """
        if not isinstance(timestamps, Mapping):
            raise TypeError(
                f"timestamps={shorten(timestamps)}: expected a dict of TopicPartition to "
                "milliseconds since the epoch"
            )
        times = {
            tp: _time_ms(tp, at)
            for tp, at in zip(check_partitions(timestamps), timestamps.values(), strict=True)
        }
        self._engine.check()

        async def search() -> dict[TopicPartition, OffsetAndTimestamp | None]:
            await wait_for_partitions(self._router, times)
            return await offsets_for_times(self._router, times)

        return await self._stop_scope.run(search())

    # --- health -----------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Return whether the consumer is started and reaches what it reads, for readiness checks.

        It costs nothing: no request is sent. True means that `start()` has returned; that a
        connection is open, and some broker has responded within `metadata_max_age_ms`; that each
        assigned partition has a position and a leader that responds; and, after `subscribe()` with
        a `group_id`, that this consumer is a member and the group doesn't rebalance just now. A
        member without partitions is ready, too. The consumer keeps a connection also when it has
        nothing to fetch; if it is lost, it is opened again with pauses of up to 5 s. `ping()` sends
        a request instead.
        """
        return self._lifecycle.is_running and self._engine.is_healthy()

    async def ping(self, timeout_ms: int = 5000) -> None:
        """Return when some broker has responded to a small request, over an open or new connection.

        Args:
            timeout_ms: how long to try one broker after another, in milliseconds, from 1 on
                (default 5000).

        Raises:
            NoBrokersAvailable: no broker has responded; the text has the reason of each.
            ConsumerStoppedError: the consumer was stopped.
            IllegalStateError: it isn't started.
        """
        timeout_s = check_positive("timeout_ms", timeout_ms) / 1000
        if self._lifecycle.stopped:
            raise ConsumerStoppedError
        self._lifecycle.check()
        await self._stop_scope.run(self._router.ping(timeout_s))

    def metrics(self) -> dict[str, float]:
        """Return counters since the start, and current gauges.

        There is a counter for each event of `aiokafka08.telemetry` that a consumer emits, and:
        messages_consumed, bytes_fetched, fetch_requests, fetch_request_failures, buffered_bytes (0
        after `stop()`), buffered_limit_bytes (what `fetch_max_bytes`, `max_partition_fetch_bytes`
        and the number of partitions allow; brokers from 0.11 on may exceed it a little),
        requested_bytes (of the fetches in flight; those of partitions that aren't assigned any more
        count while another partition is read from the same broker), assigned_partitions,
        paused_partitions, compiled (1; 0 if message sets are decoded in pure Python, as `repr()`
        and the log line at the start say), lag (in offsets behind the high watermarks, where these
        are known) and "lag{topic-partition}" of each partition.

        Histograms, in seconds: `fetch_request_seconds` (from the write of a Fetch request to its
        response, for which the broker waits up to `fetch_max_wait_ms`) and `commit_seconds` (of
        commits that succeeded, retries included). A histogram `x` has the counters `x_count`,
        `x_sum` and `x_bucket{bound}`, the number of times up to that bound.
        """
        return self._engine.metrics()

    # --- what instrumentors and frameworks read of aiokafka's consumer, too -----------------------
    # They also read `_client`, which has the addresses and the client id.

    @property
    def _closed(self) -> bool:
        """Whether the consumer was stopped."""
        return self._lifecycle.stopped

    @property
    def _group_id(self) -> str | None:
        """The `group_id`."""
        return self._config.group_id

    @property
    def _coordinator(self) -> CoordinatorAttributes:
        """This member of the group."""
        return CoordinatorAttributes(self._engine.member_id, self._engine.generation)

    @property
    def _subscription(self) -> SubscriptionAttributes:
        """The subscribed topics."""
        return SubscriptionAttributes(self.subscription())


_GETONE: Final = AIOKafkaConsumer.getone
_ANEXT: Final = AIOKafkaConsumer.__anext__


class _MessageIterator(Generic[KT, VT]):
    """The usual iteration: does what `getone()` does, without one more coroutine per message."""

    __slots__ = ("_collector", "_consumer")

    def __init__(self, consumer: AIOKafkaConsumer[KT, VT], collector: Collector) -> None:
        self._consumer = consumer  # keeps the consumer alive during the iteration
        self._collector = collector

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[KT, VT]:
        for record in self._collector.remaining:
            return record
        try:
            return await self._collector.get_one(())
        except ConsumerStoppedError:
            raise StopAsyncIteration from None


def _seconds(timeout_ms: object) -> float:
    number = as_number(timeout_ms)
    if number is None:
        raise TypeError(f"timeout_ms={timeout_ms!r}: expected a number of milliseconds")
    number = max(min(number, MAX_INT64), -1)
    if math.isnan(number):
        raise IllegalArgumentError(f"timeout_ms={timeout_ms!r}: expected a number of milliseconds")
    return number / 1000


def _time_ms(tp: TopicPartition, at: object) -> int:
    number = as_number(at)
    if number is None:
        raise TypeError(f"timestamps[{tp}]={at!r}: expected milliseconds since the epoch")
    if not 0 <= number < 2**63:
        raise ValueError(f"timestamps[{tp}]={at}: expected milliseconds from 0 to 2**63 - 1")
    return int(number)
