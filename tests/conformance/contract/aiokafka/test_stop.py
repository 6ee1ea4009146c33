"""How calls end that wait while the consumer is stopped, and calls after that."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison, Library, outcome
from tests.support.names import unique_name
from tests.support.waiting import until

pytestmark = pytest.mark.real


@pytest.mark.parametrize("grouped", [False, True], ids=["assigned", "in a group"])
async def test_stop_ends_pending_calls(compare: Comparison, grouped: bool) -> None:
    async def observe(library: Library) -> list[object]:
        topic = await library.create_topic()
        if grouped:
            reader = await library.consumer(topic, group_id=unique_name("g"))
        else:
            reader = await library.reader(topic)
        tp = library.kafka.TopicPartition(topic, 0)
        await until(lambda: reader.highwater(tp) is not None, "the first response")
        many = [
            asyncio.create_task(reader.getmany(*some, timeout_ms=30_000)) for some in ((), (tp,))
        ]
        ones = [asyncio.create_task(outcome(reader.getone(*some))) for some in ((), (tp,))]

        async def walk() -> list[object]:
            return [record async for record in reader]

        walking = asyncio.create_task(walk())
        await asyncio.sleep(0)
        await reader.stop()
        ended = await asyncio.gather(*many, *ones, walking)
        return [
            *ended,
            await outcome(reader.getmany()),
            await outcome(reader.getone()),
            await outcome(walk()),
        ]

    stopped = "ConsumerStoppedError"
    assert await compare(observe) == [{}, {}, stopped, stopped, [], stopped, stopped, stopped]
