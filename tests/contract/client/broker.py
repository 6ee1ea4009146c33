"""A cluster, mostly of one broker, embedded or real, as the contract suite sees it.

Law: a test never asks which kind it has. What differs between *lines* of brokers is told by
`version`; what differs between the kinds is a bug of the embedded one.
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
from aiokafka08.protocol.message_set import Entry, entries
from aiokafka08.structs import ConsumerRecord
from tests.contract.targets import version_numbers
from tests.names import unique_name
from tests.waiting import eventually

AUTO_PARTITIONS = 3
"""What a topic has that a broker creates by itself."""

Consumer = AIOKafkaConsumer
Record = ConsumerRecord[Any, Any]
CreateTopic = Callable[[str, int, int, Mapping[str, str] | None], Awaitable[None]]
"""Of name, partitions, replicas, config."""

Compact = Callable[[str], Awaitable[None]]
"""Have a topic's partition 0 compacted; where the broker does so by itself, nothing."""


class Logged(NamedTuple):
    """A message as it stands in the log; `codec` is that of its wrapper, 0 without one."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    codec: int


class Broker:
    """The cluster under test, and the clients that tests make for it.

    Attributes:
        version: the line, as numbers: (0, 8, 2).
        clients: those that were made here; they are stopped at the end of the test.
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
        """Messages of its log are of format 1."""
        return self.version >= (0, 10)

    @property
    def has_lz4(self) -> bool:
        return self.version >= (0, 8, 2)

    @property
    def codecs(self) -> list[str]:
        """The values of `compression_type` that it knows."""
        return ["gzip", "snappy", "lz4"] if self.has_lz4 else ["gzip", "snappy"]

    def unique_topic(self, prefix: str = "t") -> str:
        """A name that nobody has used."""
        return unique_name(prefix)

    async def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replicas: int = 1,
    ) -> str:
        """A topic that can be used when this returns; gives its name."""
        name = name or self.unique_topic()
        await self._create_topic(name, partitions, replicas, config)
        return name

    # --- clients --------------------------------------------------------------------------------

    async def producer(self, **options: Any) -> AIOKafkaProducer:
        """A started producer."""
        return await self._clients.enter_async_context(self.new_producer(**options))

    def new_producer(self, **options: Any) -> AIOKafkaProducer:
        """One that isn't started; it is the test's to stop."""
        options.setdefault("retry_backoff_ms", 20)
        return AIOKafkaProducer(bootstrap_servers=self.bootstrap_servers, **options)

    async def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A started consumer, from the beginning unless said otherwise."""
        return await self._clients.enter_async_context(self.new_consumer(*topics, **options))

    async def reader(self, topic: str, *partitions: int, **options: Any) -> Consumer:
        """A started consumer with these partitions assigned, 0 where none is named."""
        consumer = self.new_consumer(**options)
        consumer.assign([TopicPartition(topic, partition) for partition in partitions or (0,)])
        return await self._clients.enter_async_context(consumer)

    def new_consumer(self, *topics: str, **options: Any) -> Consumer:
        """One that isn't started; it is the test's to stop."""
        options.setdefault("retry_backoff_ms", 20)
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("fetch_max_wait_ms", 100)
        return AIOKafkaConsumer(*topics, bootstrap_servers=self.bootstrap_servers, **options)

    async def admin(self, **options: Any) -> AIOKafkaAdminClient:
        """A started admin client."""
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
        """Append messages; `options` are those of the producer."""
        async with self.new_producer(**options) as producer:
            await (await producer.send_many(topic, values, partition=partition))

    async def new_log(self, values: Iterable[bytes | None], **options: Any) -> str:
        """A new topic of one partition with these messages."""
        topic = await self.create_topic()
        await self.fill(topic, values, **options)
        return topic

    # --- the log, without the clients -------------------------------------------------------------

    async def request(self, request: api.Request[Any], version: int = 0) -> Any:
        """The answer to a request, on a connection of its own."""
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
        """Append bytes as they are to partition 0."""
        sets = [api.ProducePartition(0, message_set)]
        answer = await self.request(api.ProduceRequest(1, 5000, [api.Topic(topic, sets)]))
        [produced] = answer.topics[0].partitions
        assert not produced.error_code

    async def log(self, topic: str, partition: int = 0) -> list[Logged]:
        """All messages of a partition of the one broker, read without the code under test."""
        logged: list[Logged] = []
        while True:
            offset = logged[-1].offset + 1 if logged else 0
            asked = [api.FetchPartition(partition, offset, 4 << 20)]
            request = api.FetchRequest(-1, 0, 0, [api.Topic(topic, asked)])
            answer = await self.request(request, 2 if self.has_timestamps else 0)
            [fetched] = answer.topics[0].partitions
            assert not fetched.error_code, f"{topic}/{partition}: {fetched.error_code}"
            new = [
                message
                for entry in entries(fetched.message_set)
                for message in _opened(entry)
                if message.offset >= offset
            ]
            logged += new
            if not new:
                return logged

    async def compact(self, topic: str, *, below: int) -> None:
        """Until less than so many messages are left in a compacted topic's partition 0."""
        await self._compact(topic)

        async def it_is_compacted() -> bool:
            return len(await self.log(topic)) < below

        await eventually(it_is_compacted, 40)

    async def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of a partition's messages, in the order of the log."""
        return [message.value for message in await self.log(topic, partition)]


def _opened(entry: Entry) -> list[Logged]:
    """An entry's messages. In a wrapper of format 1 offsets count from its first message."""
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
    """The next `count` messages."""
    async with asyncio.timeout(seconds):
        return [await consumer.getone() for _ in range(count)]
