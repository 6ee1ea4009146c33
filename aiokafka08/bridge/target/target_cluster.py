"""`Target`: the cluster that a bridge copies to, through confluent-kafka.

All calls to the target are here, except those of the transactional producers in `sink/`.

Invariant: no call blocks the event loop. librdkafka's calls block, so each runs in a thread.
confluent-kafka is imported on first use only. Errors are `TargetError`; those that a later attempt
may cure are `TargetUnavailableError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar, cast

from aiokafka08._core.concurrency.daemon_threads import DaemonThreads
from aiokafka08._wording import partition_name
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import (
    TargetAuthenticationError,
    TargetCoordinatorError,
    TargetError,
    TargetUnavailableError,
)
from aiokafka08.bridge.target.librdkafka_log import LibrdkafkaLog
from aiokafka08.bridge.target.when_available import when_available
from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.structs import TopicPartition

T = TypeVar("T")

_TIMEOUT_S: Final = 30.0
_THREADS: Final = DaemonThreads("aiokafka08-bridge-target")
_UNREACHABLE_NAMES: Final = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_UNSUPPORTED_FEATURE"})
_COORDINATOR_NAMES: Final = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
)
# How long one read waits, unless it gets `_READ_MESSAGES` before.
_POLL_S: Final = 0.05
_READ_MESSAGES: Final = 2000
# How many offsets of a topic are read at a time.
_PART_OFFSETS: Final = 50_000
# How often a waiting call checks whether the target refuses the user.
_WATCH_S: Final = 0.2
_STABLE_S: Final = 30.0
_STABLE_POLL_S: Final = 0.05


class TargetRecord(NamedTuple):
    """A record of the target. `key` and `value` are None if they are null."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class TopicSpec(NamedTuple):
    """A topic to create at the target; a replication factor of -1 is the target's default."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class RefusedTopic(NamedTuple):
    """Why the target wouldn't create a topic: Kafka's name of the error, and its text."""

    code: str
    text: str


def import_confluent() -> ModuleType:
    """Import confluent-kafka, with its admin client.

    Raises:
        KafkaConfigurationError: it isn't installed.
    """
    try:
        import confluent_kafka.admin
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise KafkaConfigurationError(
            "the bridge needs confluent-kafka, which isn't installed. Install it with: "
            "pip install 'aiokafka08[bridge]'"
        ) from None
    return confluent_kafka


def client_settings(config: BridgeConfig) -> dict[str, Any]:
    """Return the settings that every client of the target has.

    Clients that get one result of this function share its `error_cb`, a `TargetWatch`.
    """
    return {
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2000,
        "topic.metadata.refresh.interval.ms": 30_000,
        "allow.auto.create.topics": False,
        "log_level": 3,
        **config.target.properties,
        "bootstrap.servers": config.target.bootstrap,
        "client.id": config.client_id,
        "logger": LibrdkafkaLog(config.client_id),
        "error_cb": TargetWatch(config),
    }


class TargetWatch:
    """librdkafka's `error_cb`: notice that the target refuses the user, or that it is away.

    Attributes:
        refusals: How many times the target has refused the user.
        error: The last refusal; None if there was none.
        report: Called with the reason once the target is away, and with None once it responds, in
            any thread; None reports nothing.
    """

    # librdkafka tries again for ever, and a call that waits for a broker ends with a timeout or
    # with _TRANSPORT. Only this callback gets the reason; a client's `poll()` calls it.
    def __init__(self, config: BridgeConfig) -> None:
        self._target = config.target
        self.refusals = 0
        self.error: TargetAuthenticationError | None = None
        self.report: Callable[[str | None], None] | None = None
        self._is_connected, self._failure = True, ""

    def note_response(self) -> None:
        """Note that the target has responded."""
        self._is_connected, self._failure = True, ""
        if self.report is not None:
            self.report(None)

    def take_late(self, poll: Callable[[float], object]) -> None:
        """Call a client's `poll` for errors that are queued already, without calling `report`.

        The outage that they are about may be over.
        """
        report, self.report = self.report, None
        try:
            poll(0)
        finally:
            self.report = report

    def error_since(self, refusals: int) -> TargetAuthenticationError | None:
        """Return the last refusal, if there were more than `refusals`; else None."""
        return self.error if self.refusals > refusals else None

    def __call__(self, error: Any) -> None:
        """Note an error of librdkafka."""
        name = error.name()
        if name == "_ALL_BROKERS_DOWN":
            self._is_connected = False
        elif name in ("_TRANSPORT", "_RESOLVE", "_SSL") and ": Disconnected" not in error.str():
            self._failure = error.str()
        # The target is away only if no broker is connected and a connection has failed. Brokers
        # also close idle connections, and one of several brokers may be away.
        if self.report is not None and not self._is_connected and self._failure:
            self.report(self._failure)
        if name != "_AUTHENTICATION":
            return
        self.refusals += 1
        properties = self._target.properties
        mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
        user = properties.get("sasl.username")
        named = [
            "" if mechanism is None else f" with sasl.mechanism={mechanism}",
            "" if user is None else f" as sasl.username={user!r}",
        ]
        self.error = TargetAuthenticationError(
            f"target {self._target.bootstrap}: not authenticated{''.join(named)}: "
            f"{error.str().rstrip('.')}. Check target.properties: security.protocol, "
            "sasl.mechanism, sasl.username and sasl.password"
        )


def target_error(action: str, error: Any) -> TargetError:
    """Return the bridge's error for a failed action.

    `error` is librdkafka's error, or an exception with one.
    """
    kafka = getattr(error, "args", [None])[0] if isinstance(error, Exception) else error
    if hasattr(kafka, "code"):
        text = f"{action}: {kafka.name()}: {kafka.str()}"
        if kafka.name() in _UNREACHABLE_NAMES:
            text += ". Expected brokers of Kafka 0.11 or later at target.bootstrap"
        if kafka.name() in _COORDINATOR_NAMES:
            return TargetCoordinatorError(text)
        return (TargetUnavailableError if is_transient(kafka) else TargetError)(text)
    return TargetError(f"{action}: {error}")


def is_transient(error: Any) -> bool:
    """Return whether another attempt may succeed after a `confluent_kafka.KafkaError`."""
    names = {
        "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_WAIT_COORD",
        "_RESOLVE", "_STATE", "_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_RETRY",
        "_LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS", "NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "CONCURRENT_TRANSACTIONS", "BROKER_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR", "UNSTABLE_OFFSET_COMMIT", "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "_DESTROY", "NOT_CONTROLLER",
        "BROKER_ID_NOT_REGISTERED", "UNKNOWN_LEADER_EPOCH",
    }  # fmt: skip
    # A cluster of Kafka 4 responds with this text, and the code for a wrong option, for a moment at
    # its start.
    begins = "All brokers are currently fenced" in error.str()
    return bool(error.retriable()) or error.name() in names or begins


class Target:
    """A connection to the target; `close()` ends it.

    Args:
        config: the file of the bridge.
        timeout_s: how long a call may take.

    Raises:
        KafkaConfigurationError: confluent-kafka isn't installed, or refuses a property.

    Attributes:
        confluent: The module `confluent_kafka`.
        admin: Its `AdminClient`, until `close()`.
        settings: librdkafka's settings for further clients of the same target. They share the
            `TargetWatch`: if the target refuses the user of such a client, the `call()` that
            is running raises the refusal.
    """

    def __init__(self, config: BridgeConfig, timeout_s: float = _TIMEOUT_S) -> None:
        self.confluent = import_confluent()
        self._config = config
        self._timeout_s = timeout_s
        self.settings = client_settings(config)
        self._admin_types: Any = self.confluent.admin
        try:
            self.admin: Any = self._admin_types.AdminClient(dict(self.settings))
        except self.confluent.KafkaException as error:
            text = error.args[0].str()
            if "No provider for SASL mechanism GSSAPI" in text:
                text = (
                    "sasl.mechanism=GSSAPI (which is librdkafka's default): this build of "
                    "confluent-kafka has no Kerberos; expected PLAIN, SCRAM-SHA-256 or "
                    "SCRAM-SHA-512. Or install one that is built with libsasl2"
                )
            raise KafkaConfigurationError(f"target.properties: {text}") from None

    async def close(self) -> None:
        """Release librdkafka's handle; a call in progress ends by its timeout."""
        del self.admin

    async def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic.

        Raises:
            TargetError: the target doesn't respond.
        """
        metadata = await self.call(
            "list the topics", self.admin.list_topics, timeout=self._timeout_s
        )
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None
        }

    async def create_topic(self, spec: TopicSpec) -> bool:
        """Create a topic, and wait until its partitions have leaders; False if it exists already.

        Raises:
            TargetError: the target refused it.
        """
        action = f"create the topic {spec.name!r}"
        futures = self.admin.create_topics([self._new_topic(spec)], request_timeout=self._timeout_s)
        try:
            await self.call(action, futures[spec.name].result)
        except TargetError as error:
            if "TOPIC_ALREADY_EXISTS" in error.text:
                return False
            raise
        await self._wait_leaders(spec.name, spec.partitions)
        return True

    async def refused_topics(self, specs: Sequence[TopicSpec]) -> dict[str, RefusedTopic]:
        """Return which topics the target would refuse to create; it creates none.

        Raises:
            TargetError: the target doesn't respond.
        """
        if not specs:
            return {}
        futures = self.admin.create_topics(
            list(map(self._new_topic, specs)), request_timeout=self._timeout_s, validate_only=True
        )
        refused: dict[str, RefusedTopic] = {}
        for name, future in futures.items():
            try:
                await self.call(f"check the topic {name!r}", future.result)
            except (TargetUnavailableError, TargetAuthenticationError):
                raise
            except TargetError as error:
                kafka = cast(Any, error.__cause__).args[0]
                if kafka.name() != "TOPIC_ALREADY_EXISTS":
                    refused[name] = RefusedTopic(kafka.name(), kafka.str().rstrip("."))
        return refused

    def _new_topic(self, spec: TopicSpec) -> Any:
        return self._admin_types.NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            config=dict(spec.config),
        )

    async def grow_topic(self, name: str, partitions: int) -> None:
        """Raise the number of partitions of a topic.

        Raises:
            TargetError: the target refused it.
        """
        futures = self.admin.create_partitions([self._admin_types.NewPartitions(name, partitions)])
        action = f"grow the topic {name!r} to {partitions} partitions"
        await self.call(action, futures[name].result)
        await self._wait_leaders(name, partitions)

    async def _wait_leaders(self, name: str, partitions: int) -> None:
        """Wait until all partitions have leaders."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            action = f"describe the topic {name!r}"
            metadata = await self.call(
                action, self.admin.list_topics, name, timeout=self._timeout_s
            )
            partition_metadata = metadata.topics[name].partitions.values()
            if sum(partition.leader >= 0 for partition in partition_metadata) >= partitions:
                return
            if loop.time() > deadline:
                raise TargetUnavailableError(
                    f"topic {name!r}: {partitions} partitions were created, but not all have "
                    f"leaders after {self._timeout_s:.0f} s"
                )
            await asyncio.sleep(0.1)

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings in force of each topic; a target may leave some out.

        Raises:
            TargetError: a topic doesn't exist, or the target doesn't respond.
        """
        if not topics:
            return {}
        return {
            # The value of a setting that the target hides is None.
            topic: {name: entry.value for name, entry in entries.items() if entry.value is not None}
            for topic, entries in (await self._config_entries(topics)).items()
        }

    async def _config_entries(self, topics: Sequence[str]) -> dict[str, dict[str, Any]]:
        types = self._admin_types
        wanted = [types.ConfigResource(types.ResourceType.TOPIC, name) for name in topics]
        futures = self.admin.describe_configs(wanted, request_timeout=self._timeout_s)
        return {
            resource.name: await self.call(f"describe the topic {resource.name!r}", future.result)
            for resource, future in futures.items()
        }

    async def own_topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings that a topic has of its own, not those of its brokers.

        Raises:
            TargetError: the topic doesn't exist, or the target doesn't respond.
        """
        entries = (await self._config_entries([topic]))[topic]
        own = self._admin_types.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == own}

    async def add_topic_config(self, topic: str, config: Mapping[str, str]) -> list[str]:
        """Set the settings that a topic doesn't have of its own; its own settings stay.

        Only brokers from 2.3 on allow it.

        Returns:
            The settings that were added, each as "name=value".

        Raises:
            TargetError: the target doesn't allow it, or doesn't respond.
        """
        types, own = self._admin_types, await self.own_topic_config(topic)
        add = {name: value for name, value in config.items() if name not in own}
        if add:
            set_it = {"incremental_operation": types.AlterConfigOpType.SET}
            changes = [types.ConfigEntry(name, value, **set_it) for name, value in add.items()]
            resource = types.ConfigResource(
                types.ResourceType.TOPIC, topic, incremental_configs=changes
            )
            futures = self.admin.incremental_alter_configs(
                [resource], request_timeout=self._timeout_s
            )
            await self.call(f"configure the topic {topic!r}", futures[resource].result)
        return [f"{name}={value}" for name, value in add.items()]

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; a partition without one is left out.

        While a transaction with offsets is in progress, brokers from 2.5 on have the caller wait
        (KIP-447, `require_stable`); older brokers return the former offsets.

        Raises:
            TargetError: the target doesn't respond.
        """
        wanted = [self.confluent.TopicPartition(*tp) for tp in partitions]
        if not wanted:
            return {}

        def read() -> dict[TopicPartition, int]:
            consumer = self._consumer(group)
            try:
                offsets: dict[TopicPartition, int] = {}
                for place in consumer.committed(wanted, timeout=self._timeout_s):
                    if place.error is not None:
                        raise self.confluent.KafkaException(place.error)
                    if place.offset >= 0:
                        offsets[TopicPartition(place.topic, place.partition)] = place.offset
                return offsets
            finally:
                consumer.close()

        # A new target has no coordinator for the group until the first request for one.
        return await when_available(
            lambda: self.call(f"read the offsets of group {group!r}", read),
            timeout_s=self._timeout_s,
            only=TargetCoordinatorError,
        )

    async def wait_decided(self, topic: str) -> None:
        """Wait until the transactions that are open in a topic now have ended.

        Raises:
            TargetError: the target doesn't respond, or a transaction stays open.
        """
        count = (await self.partition_counts()).get(topic, 0)
        tps = [TopicPartition(topic, number) for number in range(count)]
        await self.wait_stable(await self.log_ends(tps))

    async def wait_stable(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until no transaction is open before these offsets.

        Raises:
            TargetError: the target doesn't respond, or a transaction stays open.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _STABLE_S
        left = {tp: end for tp, end in ends.items() if end}
        while left:
            stable = await self.log_bounds(left)
            left = {tp: end for tp, end in left.items() if stable[tp][1] < end}
            if left and loop.time() > deadline:
                (tp, end), *_ = left.items()
                raise TargetUnavailableError(
                    f"{partition_name(tp)} of the target: a transaction is still open at "
                    f"offset {stable[tp][1]} after {_STABLE_S:.0f} s; expected none in front of "
                    f"{end}. Another producer may have left it open"
                )
            if left:
                await asyncio.sleep(_STABLE_POLL_S)

    async def log_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset of each partition, and the offset after its last stable record.

        Raises:
            TargetError: the target doesn't respond.
        """
        return await self._watermarks(partitions, "read_committed")

    async def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, open transactions included.

        Raises:
            TargetError: the target doesn't respond.
        """
        watermarks = await self._watermarks(partitions, "read_uncommitted")
        return {tp: end for tp, (_, end) in watermarks.items()}

    async def _watermarks(
        self, partitions: Iterable[TopicPartition], isolation: str
    ) -> dict[TopicPartition, tuple[int, int]]:
        wanted = list(partitions)

        def read() -> dict[TopicPartition, tuple[int, int]]:
            consumer = self._consumer(self._config.position_group, isolation)
            try:
                return {
                    tp: consumer.get_watermark_offsets(
                        self.confluent.TopicPartition(*tp), timeout=self._timeout_s
                    )
                    for tp in wanted
                }
            finally:
                consumer.close()

        return await self.call("read the bounds of the logs", read) if wanted else {}

    async def ever_had_records(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, bool]:
        """Return whether partitions have a committed record, or have had one.

        Raises:
            TargetError: the target doesn't respond, or the read makes no progress.
        """
        # Bounds alone don't say it: markers and aborted records have offsets, too.
        bounds = await self.log_bounds(partitions)
        return {
            tp: first > 0
            or (
                end > 0
                and bool(
                    await self.call(f"read {partition_name(tp)}", self._read_range, tp, 0, end, 1)
                )
            )
            for tp, (first, end) in bounds.items()
        }

    async def read_topic(self, topic: str) -> list[TargetRecord]:
        """Return all records of a small topic up to its present end, committed ones only.

        A topic that doesn't exist has none.

        Raises:
            TargetError: the target doesn't respond, or the read makes no progress.
        """
        return [record async for records in self.parts_of(topic) for record in records]

    async def parts_of(self, topic: str) -> AsyncGenerator[list[TargetRecord]]:
        """Yield the records of `read_topic` in parts, to bound the memory; raises as
        `read_topic`.
        """
        count = (await self.partition_counts()).get(topic, 0)
        bounds = await self.log_bounds(TopicPartition(topic, number) for number in range(count))
        for tp, (first, end) in bounds.items():
            for start in range(first, end, _PART_OFFSETS):
                yield await self.read_range(tp, start, min(start + _PART_OFFSETS, end))

    async def read_range(self, tp: TopicPartition, first: int, end: int) -> list[TargetRecord]:
        """Return the committed records from `first` to before `end`.

        Raises:
            TargetError: the target doesn't respond, or the read makes no progress.
        """
        return await self.call(f"read {partition_name(tp)}", self._read_range, tp, first, end)

    def _read_range(
        self, tp: TopicPartition, first: int, end: int, most: int | None = None
    ) -> list[TargetRecord]:
        confluent = self.confluent
        consumer = self._consumer(self._config.position_group)
        records: list[TargetRecord] = []
        try:
            consumer.assign([confluent.TopicPartition(*tp, first)])
            idle = 0
            while True:
                messages = consumer.consume(_READ_MESSAGES, _POLL_S)
                at_end = False
                for message in messages:
                    if message.error() is None:
                        if message.offset() < end:
                            stamp = message.timestamp()[1]
                            records.append(
                                TargetRecord(
                                    message.partition(),
                                    message.offset(),
                                    message.key(),
                                    message.value(),
                                    stamp,
                                )
                            )
                        at_end = at_end or message.offset() >= end - 1
                    elif message.error().code() == confluent.KafkaError._PARTITION_EOF:
                        at_end = True
                    else:
                        raise confluent.KafkaException(message.error())
                if at_end or (most is not None and len(records) >= most):
                    return records
                # Markers and aborted records before `end` bring no message, so only time shows
                # that the read makes no progress.
                idle = 0 if messages else idle + 1
                if idle * _POLL_S > self._timeout_s:
                    raise TargetUnavailableError(
                        f"read {partition_name(tp)}: no progress for {self._timeout_s:.0f} s "
                        f"before offset {end}"
                    )
        finally:
            consumer.close()

    async def write(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Write one record to partition 0 of a topic, and wait until all replicas have it.

        Raises:
            TargetError: it wasn't written.
        """
        await self.write_all(topic, [(key, value)])

    async def write_all(self, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records with different keys to partition 0 of a topic, as `write` does one.

        Raises:
            TargetError: a record wasn't written.
        """

        def produce() -> None:
            failed: list[Any] = []
            # Without idempotence this also works on brokers before 0.11, which then refuse the
            # transactions with an error that says so. librdkafka may write a record again. That is
            # harmless, because each key's last record counts. Exception: a run's claim that is
            # written again after the claim of a newer run fences the newer run.
            settings = {**self.settings, "acks": "all", "message.timeout.ms": 30_000}
            producer = self.confluent.Producer(settings)
            for key, value in records:
                producer.produce(
                    topic, value, key, 0, lambda error, _: failed.append(error) if error else None
                )
                producer.poll(0)
            left = producer.flush(self._timeout_s + 5)
            if failed or left:
                reason = failed[0] if failed else self.confluent.KafkaError._TIMED_OUT
                raise self.confluent.KafkaException(reason)

        if records:
            await self.call(f"write to {topic}", produce)

    async def call(
        self, action: str, function: Callable[..., T], *arguments: Any, **options: Any
    ) -> T:
        """Run a blocking call in a thread; `action` describes the call in errors.

        Raises:
            TargetAuthenticationError: the target refuses the user; the thread stays busy until the
                call's timeout.
            TargetError: librdkafka raised an error.
        """
        watch: TargetWatch = self.settings["error_cb"]
        admin = getattr(self, "admin", None)  # None after `close()`
        if admin is not None:
            watch.take_late(admin.poll)  # errors queued before this call aren't its own
        refusals = watch.refusals
        call = partial(function, *arguments, **options)
        running = asyncio.get_running_loop().run_in_executor(_THREADS, call)
        try:
            while not (await asyncio.wait([running], timeout=_WATCH_S))[0]:
                if admin is not None:
                    admin.poll(0)
                # The call itself would only time out, much later.
                if (refused := watch.error_since(refusals)) is not None:
                    raise refused
            result = running.result()
            watch.note_response()
            return result
        except self.confluent.KafkaException as error:
            if admin is not None:
                admin.poll(0)
            if (refused := watch.error_since(refusals)) is not None:
                raise refused from error
            raise target_error(
                f"target {self._config.target.bootstrap}: {action}", error
            ) from error
        finally:
            running.cancel()

    def _consumer(self, group: str, isolation: str = "read_committed") -> Any:
        return self.confluent.Consumer(
            {
                **self.settings,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "error",
            }
        )
