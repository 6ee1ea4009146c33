"""`OldTarget`: a target of 0.8.2 to 0.10, through this package's own client.

These releases have no transactions, and librdkafka doesn't speak to those before 0.10. Positions
are committed offsets in Kafka, which exist from 0.8.2 on. ZooKeeper creates and grows topics there,
so this needs `target.zookeeper`.

Invariants: the connections open at the first call. A record of the target is written with
acks="all".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final

from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.bridge.addresses import START_TIMEOUT_MS, named_addresses
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetError, TargetUnavailableError
from aiokafka08.bridge.range_records import RangeRecords
from aiokafka08.bridge.target_cluster import TargetCluster, TargetRecord, TopicSpec
from aiokafka08.bridge.topics import UNCLEAN
from aiokafka08.consumer.range_router import open_range_router
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    TopicAlreadyExistsError,
)
from aiokafka08.net.coordinator_lookup import CoordinatorLookup
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.router import Router
from aiokafka08.net.tls import ssl_context
from aiokafka08.offset_store import CommitIdentity
from aiokafka08.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.properties import (
    NETWORK,
    TLS,
    is_tls,
    one_of,
    positive,
    show_option,
    tls_options,
)
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

_TLS_NAMES: Final = (
    *TLS,
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "enable.ssl.certificate.verification",
)
_TIMEOUTS: Final = (
    "request.timeout.ms",
    "socket.timeout.ms",
    "socket.connection.setup.timeout.ms",
)
_CLOSE_S: Final = 0.5
"""How long `close()` waits for the acknowledgement of records."""
DEFAULT_MESSAGE_BYTES: Final = 1_000_012
"""The default of `message.max.bytes` before 0.11, which no request tells."""


def has_unknown_security(properties: Mapping[str, str]) -> bool:
    """Return whether `target.properties` have SASL, or TLS settings that only librdkafka knows."""
    return any(
        name.startswith(("sasl.", "ssl.")) and name not in _TLS_NAMES for name in properties
    ) or properties.get("security.protocol", "").strip().upper().startswith("SASL")


def target_network(config: BridgeConfig, *, probe: bool = False) -> dict[str, Any]:
    """Return the arguments of this package's clients that are about the target's connections.

    Args:
        config: the file of the bridge; `target.properties` may have TLS, by librdkafka's names.
        probe: True takes TLS and the shortest timeout only: it isn't known yet which client will
            connect, and librdkafka knows many properties that this one doesn't (default False).

    Raises:
        IllegalArgumentError: a property isn't known, or has a wrong value.
        UnsupportedVersionError: a property asks for SASL.
        KafkaConfigurationError: a file for TLS can't be read.
    """
    given = config.target.properties
    known = sorted({*NETWORK, *_TLS_NAMES} - {"bootstrap.servers", "client.id"})
    network: dict[str, Any] = {}
    for name, text in given.items():
        option = f"target.properties.{name}"
        if probe and name in _TIMEOUTS:
            shortest = network.get("request_timeout_ms", 2**31)
            network["request_timeout_ms"] = min(shortest, positive(option, text))
        if probe and name not in (*_TLS_NAMES, "security.protocol"):
            continue
        if name not in known:
            raise IllegalArgumentError(
                f"{show_option(option, text)}: the target is of {config.target.release}, to which "
                f"the bridge speaks by its own client; expected {one_of(known)}"
            )
        if name in NETWORK:
            argument, parse = NETWORK[name]
            network[argument] = parse(option, text)
    tls = tls_options(given, "target.properties.") if is_tls(given) else None
    return {
        "start_timeout_ms": START_TIMEOUT_MS,
        **network,
        "bootstrap_servers": config.target.bootstrap,
        "client_id": config.client_id,
        "ssl_context": ssl_context(tls, prefix="target.properties."),
    }


class OldTarget(TargetCluster):
    """A connection to a target that has no transactions; `close()` ends it.

    Args:
        config: the file of the bridge.

    Raises:
        KafkaError: `target.properties` has what this client doesn't support.
    """

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config
        self.network = target_network(config)
        self._open = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._admin: AIOKafkaAdminClient | None = None
        self._router: Router | None = None
        self._producer: AIOKafkaProducer | None = None
        self._stores: dict[str, KafkaOffsetStore] = {}

    async def close(self) -> None:
        """Release the connections."""
        await self._open.aclose()
        self._admin = self._router = self._producer = None
        self._stores.clear()

    async def admin(self) -> AIOKafkaAdminClient:
        """Return a started admin client, which `close()` ends.

        Raises:
            KafkaError: no broker responds.
        """
        async with self._lock:
            if self._admin is None:
                zookeeper = self._config.target.zookeeper
                made = AIOKafkaAdminClient(**self.network, zookeeper_connect=zookeeper)
                self._admin = await self._open.enter_async_context(made)
            return self._admin

    async def router(self) -> Router:
        """Return a started router for reads, which `close()` ends.

        Raises:
            KafkaError: no broker responds.
        """
        async with self._lock:
            if self._router is None:
                opening = open_range_router(self.network)
                self._router = await self._open.enter_async_context(opening)
            return self._router

    async def producer(self) -> AIOKafkaProducer:
        """Return a started producer for small records, which `close()` ends.

        Raises:
            KafkaError: no broker responds.
        """
        async with self._lock:
            if self._producer is None:
                made = AIOKafkaProducer(**self.network, acks="all", linger_ms=1)
                await made.start()
                self._open.push_async_callback(made.stop, _CLOSE_S)
                self._producer = made
            return self._producer

    @asynccontextmanager
    async def asking(self, what: str) -> AsyncIterator[None]:
        """Raise errors of the client in the block as those of the target.

        Args:
            what: what the block does, in words.

        Raises:
            TargetError: a `KafkaError` came up; `TargetUnavailableError` if it may pass.
        """
        try:
            with named_addresses("target", self._config.target):
                yield
        except TargetError:
            raise
        except KafkaError as error:
            kind = TargetUnavailableError if error.retriable else TargetError
            where = f"target {self._config.target.bootstrap}"
            raise kind(f"{where}: {what}: {error}") from error

    async def partition_counts(self) -> dict[str, int]:
        """See `TargetCluster`."""
        async with self.asking("list the topics"):
            topics = await (await self.admin()).describe_topics()
        return {
            topic["topic"]: 1 + max(one["partition"] for one in topic["partitions"])
            for topic in topics
            if topic["partitions"]
        }

    async def create_topic(self, spec: TopicSpec) -> bool:
        """See `TargetCluster`; only ZooKeeper creates topics in these releases."""
        release = self._config.target.release
        what = f"create the topic {spec.name!r}"
        if self._config.target.zookeeper is None:
            settings = ", ".join(f"{name}={text}" for name, text in spec.config.items())
            raise TargetError(
                f"topic {spec.name!r} doesn't exist at the target, and only ZooKeeper creates "
                f'topics in {release}: expected target.zookeeper = "host:2181/chroot". Or create '
                f"it by hand: {spec.partitions} partitions" + (f", {settings}" if settings else "")
            )
        if spec.replication_factor < 1:
            raise TargetError(
                f"{what}: target.replication_factor={spec.replication_factor}: brokers of {release}"
                " don't tell their default; expected an integer >= 1"
            )
        async with self.asking(what):
            topic = NewTopic(
                spec.name, spec.partitions, spec.replication_factor, topic_configs=spec.config
            )
            done = await (await self.admin()).create_topics([topic])
        for _, code, text in done.topic_errors:
            if code == TopicAlreadyExistsError.errno:
                return False
            if code:
                raise TargetError(f"{what}: {text}")
        return True

    async def grow_topic(self, name: str, partitions: int) -> None:
        """See `TargetCluster`."""
        what = f"grow the topic {name!r} to {partitions} partitions"
        async with self.asking(what):
            done = await (await self.admin()).create_partitions({name: NewPartitions(partitions)})
        for _, code, text in done.topic_errors:
            if code:
                raise TargetError(f"{what}: {text}")

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `TargetCluster`; without `target.zookeeper` these are the defaults."""
        found: Mapping[str, Mapping[str, str]] = {}
        if topics and self._config.target.zookeeper is not None:
            async with self.asking("describe topics"):
                found = await (await self.admin()).list_topic_overrides(topics)
        default = {
            "max.message.bytes": str(DEFAULT_MESSAGE_BYTES),
            "message.timestamp.difference.max.ms": str(2**63 - 1),
            UNCLEAN: "true",
        }
        return {name: {**default, **found.get(name, {})} for name in topics}

    async def own_topic_config(self, topic: str) -> dict[str, str]:
        """See `TargetCluster`."""
        if self._config.target.zookeeper is None:
            return {}
        async with self.asking(f"describe the topic {topic!r}"):
            return dict((await (await self.admin()).list_topic_overrides([topic])).get(topic, {}))

    async def add_topic_config(self, topic: str, config: Mapping[str, str]) -> list[str]:
        """See `TargetCluster`; only ZooKeeper does it in these releases."""
        if self._config.target.zookeeper is None:
            return []
        async with self.asking(f"configure the topic {topic!r}"):
            admin = await self.admin()
            own = (await admin.list_topic_overrides([topic])).get(topic, {})
            add = {name: value for name, value in config.items() if name not in own}
            if add:
                await admin.alter_topic_overrides(topic, add)
        return [f"{name}={value}" for name, value in add.items()]

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """See `TargetCluster`."""
        wanted = list(partitions)
        if not wanted:
            return {}
        async with self.asking(f"read the offsets of group {group!r}"):
            found = await (await self._store(group)).fetch(wanted)
        return {tp: one.offset for tp, one in found.items() if one is not None and one.offset >= 0}

    async def commit(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit offsets with their metadata for a group without members.

        Raises:
            TargetError: the group has members, or the target doesn't respond.
        """
        async with self.asking(f"commit offsets of group {group!r}"):
            values = {tp: OffsetAndMetadata(*one) for tp, one in offsets.items()}
            await (await self._store(group)).commit(values, CommitIdentity())

    async def _store(self, group: str) -> KafkaOffsetStore:
        router = await self.router()
        if group not in self._stores:
            self._stores[group] = KafkaOffsetStore(router, CoordinatorLookup(router, group))
        return self._stores[group]

    async def wait_decided(self, topic: str) -> None:
        """Do nothing: there are no transactions."""

    async def log_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """See `TargetCluster`."""
        wanted = list(partitions)
        if not wanted:
            return {}
        async with self.asking("read the bounds of the logs"):
            router = await self.router()
            first = await list_offsets(router, dict.fromkeys(wanted, EARLIEST))
            end = await list_offsets(router, dict.fromkeys(wanted, LATEST))
        return {tp: (first[tp][0], end[tp][0]) for tp in wanted}

    async def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `TargetCluster`."""
        return {tp: end for tp, (_, end) in (await self.log_bounds(partitions)).items()}

    async def ever_had_records(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, bool]:
        """See `TargetCluster`: without transactions each offset has been a record."""
        return {tp: end > 0 for tp, (_, end) in (await self.log_bounds(partitions)).items()}

    async def read_range(self, tp: TopicPartition, first: int, end: int) -> list[TargetRecord]:
        """See `TargetCluster`."""
        records: list[TargetRecord] = []
        async with self.asking(f"read {tp.topic}/{tp.partition}"):
            reader = RangeRecords(await self.router())
            try:
                async with aclosing(reader.read(tp, first, end)) as slices:
                    async for some in slices:
                        records += [
                            TargetRecord(
                                tp.partition,
                                one.offset,
                                one.key,
                                one.value,
                                -1 if one.timestamp is None else one.timestamp,
                            )
                            for one in some
                        ]
            finally:
                await reader.close()
        return records

    async def write_all(self, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """See `TargetCluster`."""
        if not records:
            return
        async with self.asking(f"write to {topic}"):
            keys, values = zip(*records, strict=True)
            await (await (await self.producer()).send_many(topic, values, keys, 0))
