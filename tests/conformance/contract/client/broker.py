"""`Broker`: a cluster, embedded or real, as the tests of the clients see it.

Most tests use a cluster of one broker. `conftest` makes a `Broker` per test; the test makes its
clients and reads the log through it.

Invariant: a test never branches on the kind of cluster. It may branch on `version`, since lines of
brokers differ. Where the two kinds differ, the embedded cluster has a bug.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.protocol import api
from aiokafka08.protocol.compression import Codec, decompress
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.structs import ConsumerRecord
from tests.conformance.contract.targets import version_numbers
from tests.protocol.entries import Entry, entries
from tests.support.names import unique_name
from tests.support.waiting import eventually

AUTO_PARTITIONS = 3
"""The number of partitions of an auto-created topic."""

Consumer = AIOKafkaConsumer
Record = ConsumerRecord[Any, Any]
CreateTopic = Callable[[str, int, int, Mapping[str, str] | None], Awaitable[None]]
"""Creates a topic: name, partitions, replicas, config."""

Compact = Callable[[str], Awaitable[None]]
"""Compacts partition 0 of a topic; does nothing if the broker compacts by itself."""


class Logged(NamedTuple):
    """A message in the log; `codec` is the codec of its wrapper, 0 without one."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    codec: int


class Broker:
    """The cluster under test, and the clients that a test makes for it.

    Attributes:
        version: the version as numbers: (0, 8, 2).
    """

    def __init__(
        self, bootstrap_servers: str, version: str, create_topic: CreateTopic, compact: Compact
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.version = version_numbers(version)
        self._create_topic = create_topic
        self._compact = compact
        self._clients = contextlib.AsyncExitStack()

    @property
    def has_timestamps(self) -> bool:
        """Whether messages in its log have format 1."""
        return self.version >= (0, 10)

    @property
    def data_wait_ms(self) -> int:
        """A `fetch_max_wait_ms` for messages that come meanwhile.

        Brokers below 0.8.2 may oversleep those that come as the fetch does (docs/brokers.md 7.13).
        """
        return 300_000 if self.version >= (0, 8, 2) else 4_000

    @property
    def has_lz4(self) -> bool:
        return self.version >= (0, 8, 2)

    @property
    def codecs(self) -> list[str]:
        """The values of `compression_type` that it supports."""
        return ["gzip", "snappy", "lz4"] if self.has_lz4 else ["gzip", "snappy"]

    def unique_topic(self, prefix: str = "t") -> str:
        """Return a topic name that no other test uses."""
        return unique_name(prefix)

    async def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replicas: int = 1,
    ) -> str:
        """Create a topic and return its name; it can be used when this returns."""
        name = name or self.unique_topic()
        await self._create_topic(name, partitions, replicas, config)
        return name

    # --- clients --------------------------------------------------------------------------------

    async def producer(self, **options: Any) -> AIOKafkaProducer:
        """Return a started producer; it is stopped at the end of the test."""
        return await self._clients.enter_async_context(self.new_producer(**options))

    def new_producer(self, **options: Any) -> AIOKafkaProducer:
        """Return a producer that isn't started; the test stops it."""
        options.setdefault("retry_backoff_ms", 20)
        return AIOKafkaProducer(bootstrap_servers=self.bootstrap_servers, **options)

    async def consumer(self, *topics: str, **options: Any) -> Consumer:
        """Return a started consumer, by default from the beginning; it is stopped at the end of the
        test.
        """
        return await self._clients.enter_async_context(self.new_consumer(*topics, **options))

    async def reader(self, topic: str, *partitions: int, **options: Any) -> Consumer:
        """Return a started consumer with these partitions assigned, by default partition 0."""
        consumer = self.new_consumer(**options)
        consumer.assign([TopicPartition(topic, partition) for partition in partitions or (0,)])
        return await self._clients.enter_async_context(consumer)

    def new_consumer(self, *topics: str, **options: Any) -> Consumer:
        """Return a consumer that isn't started; the test stops it."""
        options.setdefault("retry_backoff_ms", 20)
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("fetch_max_wait_ms", 100)
        return AIOKafkaConsumer(*topics, bootstrap_servers=self.bootstrap_servers, **options)

    async def admin(self, **options: Any) -> AIOKafkaAdminClient:
        """Return a started admin client; it is stopped at the end of the test."""
        return await self._clients.enter_async_context(
            AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers, **options)
        )

    async def close(self) -> None:
        """Stop the clients."""
        await self._clients.aclose()

    # --- the log, with the producer ---------------------------------------------------------------

    async def fill(
        self, topic: str, values: Iterable[bytes | None], partition: int = 0, **options: Any
    ) -> None:
        """Append messages; `options` are options of the producer."""
        async with self.new_producer(**options) as producer:
            await (await producer.send_many(topic, values, partition=partition))

    async def new_log(self, values: Iterable[bytes | None], **options: Any) -> str:
        """Create a topic of one partition with these messages and return its name."""
        topic = await self.create_topic()
        await self.fill(topic, values, **options)
        return topic

    # --- the log, without the clients -------------------------------------------------------------

    async def request(self, request: api.Request[Any], version: int = 0) -> Any:
        """Send a request on a connection of its own and return the response."""
        host, _, port = self.bootstrap_servers.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.writelines(api.encode_request(request, version, 1, "contract"))
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            return api.decode_response(type(request), version, frame)
        finally:
            writer.close()
            await writer.wait_closed()

    async def append_raw(self, topic: str, message_set: bytes) -> None:
        """Append bytes unchanged to partition 0."""
        sets = [ProducePartition(0, message_set)]
        response = await self.request(ProduceRequest(1, 5000, [api.Topic(topic, sets)]))
        [produced] = response.topics[0].partitions
        assert not produced.error_code

    async def log(self, topic: str, partition: int = 0) -> list[Logged]:
        """Return all messages of a partition of the one broker, without using the clients."""
        logged: list[Logged] = []
        offset = high_watermark = 0
        while offset <= high_watermark:
            items = [FetchPartition(partition, offset, 4 << 20)]
            request = FetchRequest(-1, 0, 0, [api.Topic(topic, items)])
            response = await self.request(request, 2 if self.has_timestamps else 0)
            [fetched] = response.topics[0].partitions
            assert not fetched.error_code, f"{topic}/{partition}: {fetched.error_code}"
            high_watermark = fetched.high_watermark
            new = [
                message
                for entry in entries(fetched.message_set)
                for message in _opened(entry)
                if message.offset >= offset
            ]
            logged += new
            # Offsets without messages may give an empty set (docs/brokers.md 11.3).
            offset = new[-1].offset + 1 if new else offset + 1
        return logged

    async def compact(self, topic: str, *, below: int) -> None:
        """Wait until fewer than `below` messages are left in partition 0 of a compacted topic."""
        await self._compact(topic)

        async def it_is_compacted() -> bool:
            return len(await self.log(topic)) < below

        await eventually(it_is_compacted, 40)

    async def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values of a partition's messages in log order."""
        return [message.value for message in await self.log(topic, partition)]


def _opened(entry: Entry) -> list[Logged]:
    """Return an entry's messages; in a wrapper of format 1 offsets count from its first message."""
    if not entry.codec:
        return [Logged(entry.offset, entry.key, entry.value, entry.timestamp_ms, 0)]
    assert entry.value is not None
    inner = list(entries(decompress(Codec(entry.codec), entry.value, 1 << 26)))
    base = entry.offset - inner[-1].offset if entry.magic else 0
    appended = entry.timestamp_ms if entry.attributes & 0x08 else None
    return [
        Logged(base + one.offset, one.key, one.value, appended or one.timestamp_ms, entry.codec)
        for one in inner
    ]


async def read_records(consumer: Consumer, count: int, seconds: float = 20.0) -> list[Record]:
    """Return the next `count` records of a consumer."""
    async with asyncio.timeout(seconds):
        return [await consumer.getone() for _ in range(count)]
