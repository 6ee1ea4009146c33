"""`Library`: aiokafka or this package, with the clients that a comparison makes for a cluster.

Invariant: a comparison never branches on the library. Where the two differ on purpose,
docs/aiokafka.md says so; then there is no comparison, or one that shows the difference (`both`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from tests.brokers.cluster import RealCluster
from tests.support.names import unique_name

T = TypeVar("T")

NAMES = ("aiokafka", "aiokafka08")

Observe = Callable[["Library"], Awaitable[T]]
"""A comparison: what it returns must be the same for both libraries."""


class Library:
    """One of the two libraries on a real cluster. Its started clients are stopped at the exit.

    Attributes:
        kafka: the package itself; so `library.kafka.AIOKafkaProducer`.
        errors: its module `errors`.
        bootstrap_servers: the address of the broker, "host:port".
    """

    def __init__(self, name: str, cluster: RealCluster) -> None:
        self.kafka: Any = importlib.import_module(name)
        self.errors: Any = self.module("errors")
        self.bootstrap_servers = cluster.bootstrap_servers
        self._cluster = cluster
        self._clients = contextlib.AsyncExitStack()

    def module(self, name: str) -> ModuleType:
        """Return a module of the package: `module("admin")`."""
        return importlib.import_module(f"{self.kafka.__name__}.{name}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._clients.aclose()

    async def create_topic(self, partitions: int = 1) -> str:
        """Create a topic with a new name and return the name."""
        name = unique_name()
        await asyncio.to_thread(self._cluster.create_topic, name, partitions)
        return name

    # --- clients ----------------------------------------------------------------------------------

    def new_producer(self, **options: Any) -> Any:
        """Return a producer that isn't started; the comparison starts and stops it."""
        return self.kafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap_servers, **options)

    def new_consumer(self, *topics: str, **options: Any) -> Any:
        """Return a consumer that isn't started; the comparison starts and stops it."""
        options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **options}
        return self.kafka.AIOKafkaConsumer(
            *topics, bootstrap_servers=self.bootstrap_servers, **options
        )

    async def run(self, client: Any) -> Any:
        """Start a client and return it; it is stopped when the comparison ends."""
        await client.start()
        self._clients.push_async_callback(client.stop)
        await asyncio.sleep(0)  # aiokafka's consumer can't be stopped before its tasks have begun
        return client

    async def producer(self, **options: Any) -> Any:
        """Return a started producer."""
        return await self.run(self.new_producer(**options))

    async def consumer(self, *topics: str, **options: Any) -> Any:
        """Return a started consumer."""
        return await self.run(self.new_consumer(*topics, **options))

    async def reader(self, topic: str, *partitions: int, **options: Any) -> Any:
        """Return a started consumer with these partitions assigned, by default partition 0."""
        consumer = self.new_consumer(**options)
        consumer.assign([self.kafka.TopicPartition(topic, one) for one in partitions or (0,)])
        return await self.run(consumer)

    async def admin(self, **options: Any) -> Any:
        """Return a started admin client. Only this package's takes the address of ZooKeeper."""
        if self.kafka.__name__ == "aiokafka08":
            options["zookeeper_connect"] = self._cluster.zookeeper_connect
        client = self.module("admin").AIOKafkaAdminClient(
            bootstrap_servers=self.bootstrap_servers, **options
        )
        await client.start()
        self._clients.push_async_callback(client.close)
        return client

    async def fill(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        """Append messages to a partition."""
        producer = await self.producer()
        for value in values:
            await producer.send_and_wait(topic, value, partition=partition)


class Comparison:
    """Runs a comparison with both libraries."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster

    async def __call__(self, observe: Observe[T]) -> T:
        """Return what `observe` returns with aiokafka; fail if it differs with this package."""
        theirs, ours = await self.both(observe)
        assert ours == theirs, f"ours {ours}, theirs {theirs}"
        return theirs

    async def both(self, observe: Observe[T]) -> tuple[T, T]:
        """Return what `observe` returns with aiokafka and with this package.

        For the differences that docs/aiokafka.md names: a test shows what they are.
        """
        theirs, ours = [await self._run(name, observe) for name in NAMES]
        return theirs, ours

    async def _run(self, name: str, observe: Observe[T]) -> T:
        async with asyncio.timeout(40), Library(name, self._cluster) as library:
            return await observe(library)


async def outcome(call: Awaitable[Any]) -> str:
    """Return the name of the exception that a call raises, or "returned"."""
    try:
        await call
    except Exception as error:
        return type(error).__name__
    return "returned"
