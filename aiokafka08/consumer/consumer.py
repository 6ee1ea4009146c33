"""`AIOKafkaConsumer`: the public class. It checks arguments and state, and delegates.

Names, keyword arguments, signatures and return types are those of aiokafka 0.14; what is added is
`getmany_arrow`, `metrics`, `ready`, `on_event`, `offsets_storage` and `zookeeper_connect`. What is
read is `assignment`'s business, what is handed out `feed`'s, the calls about partitions are in
`partitions`, groups and committed offsets behind the seams `membership` and `offset_store`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from aiokafka08 import arrow
from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.concurrency.stop_scope import StopScope
from aiokafka08.consumer.config import consumer_config
from aiokafka08.consumer.engine import ConsumerEngine
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Membership
from aiokafka08.consumer.membership.choose import (
    check_group_options,
    check_subscribe,
    choose_membership,
)
from aiokafka08.consumer.partitions import PartitionCalls
from aiokafka08.consumer.record_buffer import Deserializer
from aiokafka08.consumer.subscription import Kind, Subscription
from aiokafka08.errors import (
    ConsumerStoppedError,
    IllegalStateError,
)
from aiokafka08.net.cluster import check_partitions
from aiokafka08.net.config import ApiVersion, BootstrapServers, net_config
from aiokafka08.net.coordinator_lookup import CoordinatorLookup
from aiokafka08.net.lifecycle import Lifecycle, run_all_steps
from aiokafka08.net.router import Router
from aiokafka08.offset_store import OffsetStore
from aiokafka08.offset_store.choose import choose_offset_store
from aiokafka08.offset_store.no_store import NoOffsetStore
from aiokafka08.structs import (
    ConsumerRecord,
    TopicPartition,
)
from aiokafka08.telemetry import Event, Telemetry

ARROW_RECORDS = 10_000
"""The rows of an Arrow batch, unless somebody says otherwise."""


class AIOKafkaConsumer(PartitionCalls):
    """Reads from a Kafka cluster of brokers 0.8.0 to 3.9.

    The keyword arguments are aiokafka's; see there for those not named here. `async with` starts
    and stops it.

    Args:
        topics: subscribe to these, as `subscribe()` does.
        bootstrap_servers: "host:port,…" or a list of them; some of the cluster's brokers.
        api_version: "auto" (or None) finds out what each broker speaks; (0, 8, 2) or "0.8.2" pins
            it.
        group_id: the group that shares the work of `subscribe()`, and that commits are for.
        fetch_max_bytes: bounds the message sets that are buffered or asked for, over all
            partitions and brokers (`consumer.shares` says how exactly), and the largest message
            that can be fetched. aiokafka's bounds one answer of one broker.
        max_partition_fetch_bytes: what is asked of a partition at once; larger messages are fetched
            all the same, up to `fetch_max_bytes`.
        fetch_max_wait_ms: how long a broker waits for `fetch_min_bytes`; 100 ms at most are asked
            of brokers 0.8.0 and 0.8.1, which keep errors back for as long and may oversleep.
        key_deserializer, value_deserializer: called with the bytes, or None. What they raise comes
            out of the call that would give the message, each time until somebody seeks past it.
        check_crcs: check each message's CRC-32.
        request_timeout_ms: how long to wait for a broker's answer, and for a topic's metadata.
        enable_auto_commit: commit positions every `auto_commit_interval_ms`, before partitions are
            taken away, and at the stop; only with a `group_id`.
        offsets_storage: where committed offsets are kept: "kafka" (brokers from 0.8.2 on),
            "zookeeper", or "dual": both, the larger is read. None: Kafka from 0.8.2 on, but
            ZooKeeper on 0.8.2 with `zookeeper_connect`.
        zookeeper_connect: "host:port,…/chroot", for groups on 0.8, and for offsets on 0.8.0.
        session_timeout_ms: after how long without a sign of life a member is put out of its group;
            with brokers also how long a rebalance waits for it (JoinGroup 0 knows no
            `rebalance_timeout_ms`).
        max_poll_interval_ms: who takes no messages for so long leaves the group until it does.
        partition_assignment_strategy: classes derived from
            `coordinator.assignors.abstract.AbstractPartitionAssignor`; by default roundrobin, then
            range; in ZooKeeper range.
        rebalance_backoff_ms, rebalance_max_retries: for groups in ZooKeeper, as the Scala
            consumer's: how long it waits for others to release partitions, and how often.
        on_event: called with each `aiokafka08.telemetry` event.

    Raises:
        IllegalArgumentError: a value that isn't allowed (a `ValueError` too).
        UnsupportedVersionError: what the 0.8 protocol can't do: `read_committed`, static group
            members, fetching from followers, SASL.
    """

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: BootstrapServers = "localhost",
        client_id: str | None = None,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1048576,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
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
        security_protocol: str = "PLAINTEXT",
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
        client_rack: str | None = None,
        offsets_storage: str | None = None,
        zookeeper_connect: str | None = None,
        rebalance_backoff_ms: int = 2000,
        rebalance_max_retries: int = 4,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        if loop is not None:
            warnings.warn(
                "the loop argument is deprecated: the consumer uses the loop that starts it",
                DeprecationWarning,
                stacklevel=2,
            )
        net = net_config(
            bootstrap_servers=bootstrap_servers,
            client_id="aiokafka08-consumer" if client_id in (None, "") else client_id,
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
        )
        largest = self._config.fetch_max_bytes + self._config.max_partition_fetch_bytes
        net = replace(net, max_frame_bytes=max(net.max_frame_bytes, 2 * largest))
        self._lifecycle = Lifecycle("AIOKafkaConsumer")
        self._calls = StopScope(ConsumerStoppedError)
        self._stopping: asyncio.Task[None] | None = None
        self._telemetry = Telemetry(on_event)
        self._router = Router(net, self._telemetry)
        self._subscription = Subscription(
            exclude_internal_topics=self._config.exclude_internal_topics
        )
        self._member_state = MemberState()
        self._coordinator = (
            CoordinatorLookup(self._router, group_id) if group_id is not None else None
        )
        self._assignors = check_group_options(self._config)
        # `start()` chooses both by the brokers' line.
        self._store: OffsetStore = NoOffsetStore(IllegalStateError("the client isn't started"))
        self._membership: Membership | None = None
        self._assignment = ConsumerEngine(
            self._router,
            self._config,
            self._subscription,
            self._member_state,
            self._lifecycle,
        )
        self._feed = self._assignment.feed
        self._router.metadata.add_listener(self._assignment.follow_metadata)
        if topics:
            self.subscribe(topics)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._router.config.bootstrap)
        state = "running" if self._lifecycle.is_running else "not running"
        return f"<AIOKafkaConsumer {servers} {state} partitions={len(self._assignment.cursors)}>"

    def __del__(self) -> None:
        lifecycle: Lifecycle | None = getattr(self, "_lifecycle", None)
        if lifecycle is not None:
            lifecycle.warn_if_not_stopped(self)

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster and the topics. After a failure nothing is left, make a new consumer.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker; the text says why for each.
            UnsupportedVersionError: only 4.x brokers were found; or there is a subscription with a
                `group_id`, but no `zookeeper_connect`, and the brokers have no groups (0.8).
            BrokerResponseError: the group refuses this member; says why.
            UnknownTopicOrPartitionError: a subscribed topic doesn't exist, and isn't created.
            ConsumerStoppedError: `stop()` was called meanwhile.
        """
        self._lifecycle.bind_to_loop()
        try:
            await self._calls.run(self._start())
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        router = self._router
        self._track()
        await router.start()
        if self._subscription.by_topic:
            check_subscribe(self._config, router)
        for topic in sorted(self._subscription.tracked_topics or ()):
            await router.metadata.wait_for_topic(topic, timeout_s=router.config.request_timeout_s)
        self._store = choose_offset_store(
            router,
            self._coordinator,
            self._config.offsets_storage,
            self._config.zookeeper_connect,
        )
        await self._store.start()
        self._membership = choose_membership(
            self._config,
            self._assignors,
            router,
            self._subscription,
            self._assignment,
            self._member_state,
            self._coordinator,
        )
        self._assignment.start(self._store, self._membership)
        await self._membership.start()

    async def stop(self) -> None:
        """Stop reading and close all connections; calls that wait get `ConsumerStoppedError`.

        May be called more than once. What was fetched and not taken is dropped.

        Raises:
            IllegalStateError: it belongs to another event loop or process; it goes on there.
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
        self._calls.cancel_all()
        await run_all_steps(
            self._assignment.finish,
            self._stop_membership,
            self._assignment.stop,
            self._store.stop,
            self._router.stop,
        )

    async def _stop_membership(self) -> None:
        if self._membership is not None:
            await self._membership.stop()

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
        """Read these topics, or those whose names match `pattern`: with a `group_id` the share that
        the group gives to this member, else all partitions.

        Replaces an earlier subscription of the same kind. New partitions and matching new topics
        come in with the metadata refresh that shows them (`metadata_max_age_ms`).

        Raises:
            IllegalStateError: there is a subscription of another kind.
            TypeError: not exactly one of topics and pattern is given, the pattern is bytes, or the
                listener is no `ConsumerRebalanceListener`.
            ValueError: the pattern isn't a regular expression.
            InvalidTopicError: a name that brokers don't take.
            UnsupportedVersionError: there is a `group_id`, and the brokers have no groups (0.8).
        """
        if isinstance(topics, str) or not isinstance(topics, Collection):
            raise TypeError(f"topics must be a list of names, not {topics!r}")
        if bool(topics) == (pattern is not None):
            raise TypeError("exactly one of `topics` and `pattern` must be given")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener must be a ConsumerRebalanceListener")
        check_subscribe(self._config, self._router)
        if pattern is not None:
            self._subscription.subscribe_pattern(pattern, listener)
        else:
            self._subscription.subscribe(topics, listener)
        self._subscription_changed()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to, or that the pattern matches now."""
        return self._subscription.topics(self._router.metadata.snapshot)

    def unsubscribe(self) -> None:
        """Read nothing any more; a subscription of any kind may come next."""
        self._assignment.commits.later(self.assignment())
        self._subscription.unsubscribe()
        self._assignment.replace(())
        self._subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, in place of those assigned before.

        Raises:
            TypeError: something else than a list of partitions.
            InvalidTopicError: a name that brokers don't take.
            IllegalArgumentError: a number that no partition has.
            IllegalStateError: there is a subscription to topics or a pattern.
        """
        self._subscription.assign(partitions)
        self._assignment.commits.later(self.assignment() - self._subscription.assigned)
        self._assignment.replace(self._subscription.assigned)
        self._subscription_changed()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._assignment.cursors)

    def _track(self) -> None:
        """Keep the metadata of what is subscribed to."""
        topics = self._subscription.tracked_topics
        self._router.metadata.all_topics = topics is None
        self._router.metadata.set_topics(topics or ())

    def _subscription_changed(self) -> None:
        self._track()
        if self._lifecycle.is_running:
            meant = self._subscription.partitions(self._router.metadata.snapshot)
            self._assignment.hold_back(self.assignment() - meant)
            if self._subscription.kind is not Kind.NONE:
                self._router.metadata.request_refresh()
            if self._membership is not None:
                self._membership.on_change()

    # --- messages ---------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next message, of these partitions or of all; waits for one.

        A partition that isn't there, or has no leader, is waited for too: it may come.
        `position()` and `end_offsets()` tell by an error within `request_timeout_ms`, `ready()` at
        once, and `on_event` and the log why (`PartitionFailed`).

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            CorruptRecordException: the next message is damaged; says where, `seek()` goes past it.
            OffsetOutOfRangeError, NoOffsetForPartitionError: with auto_offset_reset="none".
            RecordTooLargeError: the next message is larger than `fetch_max_bytes`.
            Exception: what a deserializer raised on the next message; its `__notes__` say where
                that is, `seek()` goes past it.
            TypeError: a partition is neither a `TopicPartition` nor a plain pair.
        """
        if partitions:
            check_partitions(partitions)
        elif not self._lifecycle.stopped:
            for record in self._feed.walk:
                return record
        return await self._feed.one(partitions)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """What has been fetched, by partition; waits up to `timeout_ms` for the first messages.

        Args:
            partitions: which ones; none named: all.
            timeout_ms: milliseconds; 0 doesn't wait.
            max_records: the most messages to give; `max_poll_records` by default.

        Raises as `getone`, but only where there are no messages to give.
        """
        check_partitions(partitions)
        timeout_s = _seconds(timeout_ms)
        return await self._feed.many(partitions, timeout_s, self._limit(max_records))

    async def getmany_arrow(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> arrow.RecordBatch:
        """`getmany`, as one `pyarrow.RecordBatch`; empty where nothing came.

        Its columns are those of Spark's Kafka source (`aiokafka08.arrow.schema`). It has at most
        `max_records` rows, by default `max_poll_records` or 10,000, and fewer where more would
        hold the event loop for longer than a few milliseconds.

        Raises, as well as `getmany`:
            KafkaConfigurationError: pyarrow isn't installed (`aiokafka08[arrow]`).
            IllegalStateError: there are deserializers; Arrow takes the bytes.
        """
        arrow.require_pyarrow()
        decoding = self._config.decoding
        if decoding.key_deserializer is not None or decoding.value_deserializer is not None:
            raise IllegalStateError("getmany_arrow() gives bytes: construct without deserializers")
        check_partitions(partitions)
        limit = self._limit(max_records) or ARROW_RECORDS
        taken = await self._feed.columns(partitions, _seconds(timeout_ms), limit)
        try:
            return arrow.record_batch(taken.runs, taken.columns)
        except BaseException:
            for tp, position in taken.positions.items():  # give them back
                self._assignment.seek(self._assignment.cursor(tp), position)
            raise

    def __aiter__(self) -> Self:
        if self._lifecycle.stopped:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """As `getone()`; ends when the consumer is stopped."""
        for record in self._feed.walk:
            return record
        try:
            return await self._feed.one(())
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def _limit(self, max_records: int | None) -> int | None:
        if max_records is None:
            return self._config.max_poll_records
        if type(max_records) is not int or max_records < 1:
            raise ValueError(f"max_records={max_records!r}: allowed are integers from 1 on")
        return max_records

    # --- health -----------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether all assigned partitions have a position and a leader that answers."""
        if not self._lifecycle.is_running:
            return False
        return self._assignment.healthy()

    def metrics(self) -> dict[str, float]:
        """Counters since the start, and gauges of now.

        Of every event its counter (`aiokafka08.telemetry`), and: messages_consumed, bytes_fetched,
        fetch_requests, fetch_request_failures, buffered_bytes, asked_bytes, assigned_partitions,
        paused_partitions, lag (in offsets, behind the high watermarks, where they are known) and
        "lag{topic-partition}" of each partition.
        """
        return self._assignment.metrics()


def _seconds(timeout_ms: float) -> float:
    if not isinstance(timeout_ms, int | float):
        raise TypeError(f"timeout_ms={timeout_ms!r}: a number of milliseconds is wanted")
    return timeout_ms / 1000
