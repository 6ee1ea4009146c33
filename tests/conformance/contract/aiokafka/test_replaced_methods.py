"""`send_and_wait` calls a `send`, and `async for` a `getone`, that the user has replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison, Library

pytestmark = pytest.mark.real


def recorded(method: Callable[..., Any], calls: list[str], name: str) -> Callable[..., Any]:
    """Return a coroutine function that notes each call and calls `method`."""

    @functools.wraps(method)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return await method(*args, **kwargs)

    return wrapper


class Proxy:
    """A callable that forwards every attribute, as wrapt's wrappers do; also a descriptor."""

    def __init__(self, wrapped: Any, calls: list[str]) -> None:
        self._wrapped = wrapped
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._wrapped.__class__

    def __get__(self, instance: Any, owner: Any) -> Proxy:
        return Proxy(self._wrapped.__get__(instance, owner), self._calls)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls.append("proxy")
        return await self._wrapped(*args, **kwargs)


# --- send_and_wait --------------------------------------------------------------------------------


async def test_send_and_wait_in_subclass_calls_its_send(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        seen: list[Any] = []

        base: Any = library.kafka.AIOKafkaProducer

        class Loud(base):
            async def send(self, *args: Any, **kwargs: Any) -> Any:
                seen.append((args[1:], kwargs))
                return await super().send(args[0], b"replaced")

        topic = await library.create_topic()
        producer = await library.run(Loud(bootstrap_servers=library.bootstrap_servers))
        sent = await producer.send_and_wait(topic, b"v", key=b"k", timestamp_ms=7)
        reader = await library.reader(topic)
        return [*seen, sent.offset, (await reader.getone()).value]

    # All arguments by position, as a wrapper may read them by position or by name.
    assert await compare(observe) == [((b"v", b"k", None, 7, None), {}), 0, b"replaced"]


async def test_send_and_wait_follows_patches_of_send(compare: Comparison) -> None:
    """Class and instance are patched after the construction, and both patches are undone."""

    async def observe(library: Library) -> list[str]:
        calls: list[str] = []
        topic = await library.create_topic()
        producer = await library.producer()
        cls, original = type(producer), type(producer).send

        async def send(text: str) -> None:
            calls.append(text)
            await producer.send_and_wait(topic, b"v")

        await send("plain")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cls, "send", recorded(original, calls, "class"))
            await send("patched class")
            patch.setattr(producer, "send", recorded(producer.send, calls, "instance"))
            await send("patched instance")
        await send("plain")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producer, "send", recorded(producer.send, calls, "instance"))
            await send("patched instance")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cls, "send", Proxy(original, calls))
            await send("wrapped class")
        await send("plain")
        return calls

    assert await compare(observe) == [
        "plain",
        *("patched class", "class"),
        *("patched instance", "instance", "class"),
        "plain",
        *("patched instance", "instance"),
        *("wrapped class", "proxy"),
        "plain",
    ]


# --- async for ------------------------------------------------------------------------------------


async def read(consumer: Any, count: int) -> list[bytes]:
    """Read messages with `async for`."""
    values: list[bytes] = []
    async for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


async def test_iteration_in_subclass_calls_its_getone(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        calls: list[Any] = []

        base: Any = library.kafka.AIOKafkaConsumer

        class Loud(base):
            async def getone(self, *partitions: Any) -> Any:
                record = await super().getone(*partitions)
                calls.append(partitions)
                return record

        class Steps(base):
            async def __anext__(self) -> Any:
                calls.append("step")
                return await super().__anext__()

        topic = await library.create_topic()
        await library.fill(topic, [b"0", b"1", b"2"])
        for subclass in (Loud, Steps):
            options = {"bootstrap_servers": library.bootstrap_servers}
            consumer = await library.run(subclass(topic, auto_offset_reset="earliest", **options))
            calls.append(await read(consumer, 3))
        return calls

    values = [b"0", b"1", b"2"]
    assert await compare(observe) == [(), (), (), values, "step", "step", "step", values]


async def test_iteration_follows_patches_of_getone(compare: Comparison) -> None:
    """Each `async for` looks at `getone` once; `anext()` of the consumer looks each time."""

    async def observe(library: Library) -> list[Any]:
        calls: list[Any] = []
        topic = await library.create_topic()
        await library.fill(topic, [b"%d" % number for number in range(6)])
        consumer = await library.reader(topic)
        cls, original = type(consumer), type(consumer).getone
        calls.append(await read(consumer, 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cls, "getone", recorded(original, calls, "class"))
            calls.append(await read(consumer, 1))
            patch.setattr(consumer, "getone", recorded(consumer.getone, calls, "instance"))
            calls.append(await read(consumer, 1))
            calls.append((await anext(consumer)).value)
        calls.append(await read(consumer, 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cls, "getone", Proxy(original, calls))
            calls.append(await read(consumer, 1))
        return calls

    assert await compare(observe) == [
        [b"0"],
        *("class", [b"1"]),
        *("instance", "class", [b"2"]),
        *("instance", "class", b"3"),
        [b"4"],
        *("proxy", [b"5"]),
    ]


async def test_iteration_with_replaced_getone_ends_at_stop(compare: Comparison) -> None:
    async def observe(library: Library) -> list[bytes]:
        base: Any = library.kafka.AIOKafkaConsumer

        class Stops(base):
            async def getone(self, *partitions: Any) -> Any:
                record = await super().getone(*partitions)
                if record.value == b"last":
                    await self.stop()
                return record

        topic = await library.create_topic()
        await library.fill(topic, [b"first", b"last", b"never read"])
        options = {"bootstrap_servers": library.bootstrap_servers}
        consumer = await library.run(Stops(topic, auto_offset_reset="earliest", **options))
        return [record.value async for record in consumer]

    assert await compare(observe) == [b"first", b"last"]
