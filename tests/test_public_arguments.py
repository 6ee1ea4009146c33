"""Every argument of a call of a client: accepted, or refused by an error of the documented types.

Types and ranges are drawn, also what no caller means: an error of a C function, or of a library, is
a hole in the checks. What is accepted may fail later; that is not the subject here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster

pytestmark = [pytest.mark.client]

T0 = TopicPartition("t", 0)

REFUSED = (TypeError, ValueError, KafkaError)
"""`IllegalArgumentError` is both of the latter; where aiokafka raises ValueError, so does this."""

NUMBERS = st.one_of(
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.sampled_from([sign * 2**n + off for n in (15, 31, 32, 63, 64) for sign in (1, -1)
                     for off in (-1, 0, 1)] + [10**400, -(10**400)]),
    st.floats(),
    st.fractions(),
    st.booleans(),
)  # fmt: skip
SCALARS = st.one_of(
    NUMBERS,
    st.none(),
    st.binary(max_size=20),
    st.text(st.characters(), max_size=20),
    st.sampled_from(["t", T0, ("t", 0), object(), len, b"v", "\ud800", "x" * 300]),
)
KEYS = st.one_of(st.just(T0), st.tuples(st.just("t"), NUMBERS), st.text(max_size=3), st.integers())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=2),
        st.builds(TopicPartition, st.just("t"), inner),
    ),
    max_leaves=4,
)

Call = Callable[["Clients", Any], Any]


class Clients:
    """The clients of one example."""

    def __init__(self, bootstrap_servers: str) -> None:
        options: dict[str, Any] = {
            "bootstrap_servers": bootstrap_servers,
            "request_timeout_ms": 10_000,  # on a busy machine a start takes more than a second
            "retry_backoff_ms": 10,
        }
        self.producer = AIOKafkaProducer(**options, delivery_timeout_ms=10_000)
        self.consumer: Any = AIOKafkaConsumer(
            "t", **options, group_id="g", enable_auto_commit=False
        )
        self.admin = AIOKafkaAdminClient(**options)

    async def __aenter__(self) -> Clients:
        await asyncio.gather(self.producer.start(), self.consumer.start(), self.admin.start())
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(self.producer.stop(), self.consumer.stop(), self.admin.close())


def _append(clients: Clients, **message: Any) -> object:
    return clients.producer.create_batch().append(**message)


def _send_batch(clients: Clients, topic: Any, partition: Any) -> object:
    batch = clients.producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    return clients.producer.send_batch(batch, topic, partition=partition)


CALLS: dict[str, Call] = {
    "send(topic)": lambda on, it: on.producer.send(it, b"v"),
    "send(value)": lambda on, it: on.producer.send("t", it),
    "send(key)": lambda on, it: on.producer.send("t", b"v", it),
    "send(partition)": lambda on, it: on.producer.send("t", b"v", partition=it),
    "send(timestamp_ms)": lambda on, it: on.producer.send("t", b"v", timestamp_ms=it),
    "send(headers)": lambda on, it: on.producer.send("t", b"v", headers=it),
    "send_many(topic)": lambda on, it: on.producer.send_many(it, [b"v"]),
    "send_many(values)": lambda on, it: on.producer.send_many("t", it),
    "send_many(values[])": lambda on, it: on.producer.send_many("t", [it]),
    "send_many(keys)": lambda on, it: on.producer.send_many("t", [b"v"], keys=it),
    "send_many(keys[])": lambda on, it: on.producer.send_many("t", [b"v"], keys=[it]),
    "send_many(partition)": lambda on, it: on.producer.send_many("t", [b"v"], partition=it),
    "send_many(timestamps)": lambda on, it: on.producer.send_many("t", [b"v"], timestamps_ms=it),
    "send_many(timestamps[])": lambda on, it: on.producer.send_many(
        "t", [b"v"], timestamps_ms=[it]
    ),
    "send_many(headers)": lambda on, it: on.producer.send_many("t", [b"v"], headers=it),
    "send_many(headers[])": lambda on, it: on.producer.send_many("t", [b"v"], headers=[it]),
    "append(timestamp)": lambda on, it: _append(on, key=None, value=b"v", timestamp=it),
    "append(key)": lambda on, it: _append(on, key=it, value=b"v", timestamp=None),
    "append(value)": lambda on, it: _append(on, key=None, value=it, timestamp=None),
    "append(headers)": lambda on, it: _append(on, key=None, value=b"v", timestamp=None, headers=it),
    "send_batch(batch)": lambda on, it: on.producer.send_batch(it, "t", partition=0),
    "send_batch(topic)": lambda on, it: _send_batch(on, it, 0),
    "send_batch(partition)": lambda on, it: _send_batch(on, "t", it),
    "producer.partitions_for": lambda on, it: on.producer.partitions_for(it),
    "producer.ping": lambda on, it: on.producer.ping(timeout_ms=it),
    "seek(partition)": lambda on, it: on.consumer.seek(it, 0),
    "seek(offset)": lambda on, it: on.consumer.seek(T0, it),
    "getmany(timeout_ms)": lambda on, it: on.consumer.getmany(timeout_ms=it),
    "getmany(max_records)": lambda on, it: on.consumer.getmany(max_records=it),
    "getmany(partitions)": lambda on, it: on.consumer.getmany(it),
    "getone(partitions)": lambda on, it: on.consumer.getone(it),
    "commit": lambda on, it: on.consumer.commit(it),
    "commit(offset)": lambda on, it: on.consumer.commit({T0: it}),
    "commit(metadata)": lambda on, it: on.consumer.commit({T0: (0, it)}),
    "committed": lambda on, it: on.consumer.committed(it),
    "position": lambda on, it: on.consumer.position(it),
    "highwater": lambda on, it: on.consumer.highwater(it),
    "pause": lambda on, it: on.consumer.pause(it),
    "resume": lambda on, it: on.consumer.resume(it),
    "beginning_offsets": lambda on, it: on.consumer.beginning_offsets(it),
    "end_offsets": lambda on, it: on.consumer.end_offsets(it),
    "offsets_for_times": lambda on, it: on.consumer.offsets_for_times(it),
    "offsets_for_times(time)": lambda on, it: on.consumer.offsets_for_times({T0: it}),
    "seek_to_beginning": lambda on, it: on.consumer.seek_to_beginning(it),
    "seek_to_end": lambda on, it: on.consumer.seek_to_end(it),
    "seek_to_committed": lambda on, it: on.consumer.seek_to_committed(it),
    "partitions_for_topic": lambda on, it: on.consumer.partitions_for_topic(it),
    "consumer.ping": lambda on, it: on.consumer.ping(timeout_ms=it),
    "describe_topics": lambda on, it: on.admin.describe_topics(it),
    "describe_groups": lambda on, it: on.admin.describe_consumer_groups(it),
    "list_group_offsets": lambda on, it: on.admin.list_consumer_group_offsets(it),
    "admin.ping": lambda on, it: on.admin.ping(timeout_ms=it),
}


async def _make(calls: list[tuple[str, Any]]) -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        Clients(cluster.bootstrap_servers) as clients,
    ):
        for name, value in calls:
            try:
                async with asyncio.timeout(0.02) as limit:
                    result = CALLS[name](clients, value)
                    if inspect.isawaitable(result):
                        await result
            except Exception as error:
                is_refused = isinstance(error, REFUSED) and not isinstance(error, UnicodeError)
                # Accepted, if the call waits for the brokers.
                if not is_refused and not (isinstance(error, TimeoutError) and limit.expired()):
                    error.add_note(f"{name}: {value!r:.200}")
                    raise


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(list(CALLS)), VALUES), min_size=20, max_size=40))
@example([(name, number) for name in CALLS for number in (2**63, 10**400)])
@example([("send_many(timestamps)", [2**63]), ("append(timestamp)", float("nan"))])
@example([("offsets_for_times", []), ("commit(metadata)", "\ud800")])
def test_each_value_is_accepted_or_refused_as_documented(calls: list[tuple[str, Any]]) -> None:
    asyncio.run(_make(calls))


@pytest.mark.full
@pytest.mark.timeout(300)
@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(CALLS)), VALUES), min_size=20, max_size=40))
def test_many_values_are_accepted_or_refused_as_documented(calls: list[tuple[str, Any]]) -> None:
    asyncio.run(_make(calls))
