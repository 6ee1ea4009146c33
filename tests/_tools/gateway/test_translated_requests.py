"""How translated requests are carried out: in threads, over other brokers, within limits."""

from __future__ import annotations

import asyncio
import gc
import struct
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import pytest

from aiokafka08._tools.gateway.coordinators import Coordinators
from aiokafka08.protocol.api import Topic, encode_request
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    ScriptedBroker,
    connected,
    first_port,
    running,
)
from tests._tools.gateway.test_handler import (
    LARGE_ACKS_0,
    UnreadBroker,
    found_coordinator,
    request,
    send_acks_0,
)
from tests.brokers.ports import free_port
from tests.protocol.batch_oracle import marker
from tests.support.memory import reads_proc, resident_bytes
from tests.support.stream_server import StreamServer
from tests.support.waiting import until

pytestmark = pytest.mark.fast
MIB = 1 << 20


# --- time -----------------------------------------------------------------------------------------


def bomb(codec: Codec, plain_bytes: int) -> bytes:
    value = compress(codec, encode_entry(0, None, bytes(plain_bytes)))
    return encode_entry(0, None, value, attributes=codec)


async def test_small_request_with_much_inside_does_not_hold_the_loop() -> None:
    """The time isn't asserted, the machine may be busy: others are served meanwhile."""
    message_set = bomb(Codec.GZIP, 20 * MIB)
    produce = ProduceRequest(1, 1000, [Topic("t", [ProducePartition(0, message_set)])])
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + bytes(8)) as broker,
        connected(broker.address) as (gateway, client),
        await RawClient.connect(first_port(gateway)) as other,
    ):
        await other.call(ListOffsetsRequest(-1, []), 0)
        client.send_request(produce, 0)
        first = asyncio.create_task(client.frame())
        overtaken = 0
        while not first.done():
            await other.call(ListOffsetsRequest(-1, []), 0)
            overtaken += 1
        assert overtaken >= 3


async def test_refusal_of_many_items_does_not_hold_the_loop() -> None:
    """As above: DeleteTopics of 30,000 empty names, which the gateway answers itself."""
    names = b"\xb1\xea\x01" + b"\1" * 30_000
    delete_topics = struct.pack(">hhih", 20, 4, 1, -1) + b"\0" + names + struct.pack(">ib", 1000, 0)
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + bytes(8)) as broker,
        connected(broker.address) as (gateway, client),
        await RawClient.connect(first_port(gateway)) as other,
    ):
        other.send(request(16, 0))
        await other.frame()
        client.send(delete_topics)
        first = asyncio.create_task(client.frame())
        overtaken = 0
        while not first.done():
            other.send(request(16, 0))
            await other.frame()
            overtaken += 1
        assert len(await first) > 30_000
        assert overtaken >= 3


async def test_work_for_clients_that_have_gone_ends() -> None:
    """Each of these bombs takes some hundred milliseconds in the worker thread."""
    parts = [ProducePartition(0, bomb(Codec.GZIP, 20 * MIB))]
    frame = b"".join(encode_request(ProduceRequest(1, 1000, [Topic("t", parts)]), 0, 1, "gone"))
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + bytes(8)) as broker,
        running(broker.address) as gateway,
    ):
        for _ in range(50):
            async with await RawClient.connect(first_port(gateway)) as gone:
                gone.writer.write(frame)
                await gone.writer.drain()
        async with await RawClient.connect(first_port(gateway)) as client:
            client.writer.write(frame)
            await client.frame()
        assert len([one for one in broker.requests if one[:4] == b"\0\0\0\3"]) < 10


async def test_no_response_follows_one_that_is_left_out() -> None:
    """The responses come when the client has sent its FIN; the first needs the worker thread."""
    fetch = FetchRequest(-1, 500, 1, [Topic("t", [FetchPartition(0, 0, 1 << 20)])])
    async with (
        ScriptedBroker(lambda frame: b"" if frame[7] else frame[4:8] + bytes(4)) as broker,
        running(broker.address) as gateway,
        await RawClient.connect(first_port(gateway)) as other,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        client.send_request(fetch, 0, correlation_id=1)
        client.send(request(16, 0, 2))
        await until(lambda: len(broker.requests) == 2, "the broker has both requests")
        client.writer.write_eof()
        other.send(request(16, 0, 0))
        await other.frame()
        broker.send(b"\0\0\0\1" + bytes(1 << 20))
        broker.send(b"\0\0\0\2" + bytes(4))
        assert await client.reader.read() == b""


# --- memory ---------------------------------------------------------------------------------------


async def test_what_waits_for_the_broker_counts_after_its_client_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = len(LARGE_ACKS_0) * 3 // 2
    async with UnreadBroker() as broker, running(broker.address, max_held_bytes=limit) as gateway:
        await send_acks_0(gateway)
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(LARGE_ACKS_0)
            await until(lambda: f"max_held_bytes={limit}" in caplog.text, "one is closed")
        broker.reads.set()
        await until(lambda: broker.lost or broker.requests, "a connection has ended")
    assert caplog.text.count("max_held_bytes=") == 1


async def test_responses_that_are_not_whole_count(caplog: pytest.LogCaptureFixture) -> None:
    """Each client's broker has sent 8 of 16 MiB."""

    class Halting(ScriptedBroker):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                if (own := self.own_answer(frame)) is None:
                    break
                writer.write((4 + len(own)).to_bytes(4, "big") + frame[4:8] + own)
            writer.write((4 + 16 * MIB).to_bytes(4, "big") + frame[4:8] + bytes(8 * MIB - 8))
            with suppress(ConnectionError):
                await reader.read()

    limit = 30 * MIB
    async with (
        Halting(None) as broker,
        running(broker.address, max_held_bytes=limit) as gateway,
        AsyncExitStack() as stack,
    ):
        for _ in range(6):
            client = await stack.enter_async_context(await RawClient.connect(first_port(gateway)))
            client.send(request(16, 0))
        await until(lambda: "connection to node 0 closed, it holds" in caplog.text, "one is closed")


async def test_what_is_kept_of_requests_counts_until_the_broker_responds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partitions = [FetchPartition(number, 0, 1 << 20) for number in range(50_000)]
    limit = 30 * MIB
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, max_held_bytes=limit) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        client.send_request(FetchRequest(-1, 3_600_000, 1, [Topic("t", partitions)]), 0)
        await until(lambda: len(broker.requests) == 1, "the broker has it")
        assert not caplog.text
        client.send_request(FetchRequest(-1, 3_600_000, 1, [Topic("t", partitions)]), 0)
        await until(lambda: f"max_held_bytes={limit}" in caplog.text, "the connection is closed")


async def test_what_is_remembered_between_fetches_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log of each partition ends with a control batch, which the client can't see."""
    partition_count, limit = 5000, 4 * MIB
    records = marker(0, 1, 7)
    part = struct.pack(">hqqqii", 0, 1, 1, 0, -1, len(records)) + records
    parts = b"".join(number.to_bytes(4, "big") + part for number in range(partition_count))
    answer = bytes(10) + struct.pack(">ih1si", 1, 1, b"t", partition_count) + parts
    partitions = [FetchPartition(number, 0, 1000) for number in range(partition_count)]
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + answer) as broker,
        running(broker.address, max_held_bytes=limit) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        client.send_request(FetchRequest(-1, 100, 1, [Topic("t", partitions)]), 1)
        await until(lambda: f"max_held_bytes={limit}" in caplog.text, "the connection is closed")
        assert len(broker.requests) == 1


@reads_proc
async def test_answered_request_that_may_create_topics_leaves_no_garbage() -> None:
    """Memory isn't bounded if the frames of earlier requests wait for the garbage collector."""
    metadata = MetadataRequest([f"{number:0>1000}" for number in range(3000)])
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + bytes(8)) as broker,
        running(broker.address) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        gc.disable()
        try:
            before = resident_bytes()
            for _ in range(20):
                client.send_request(metadata, 0)
                assert await client.frame()
                broker.requests.clear()
            assert resident_bytes() - before < 24 * MIB
        finally:
            gc.enable()


# --- groups ---------------------------------------------------------------------------------------


async def test_version_0_of_offsets_works_at_any_broker() -> None:
    async with (
        EmbeddedCluster(3, version="0.10", topics={"t": 2}) as cluster,
        running(cluster.bootstrap_servers) as gateway,
    ):
        offset = 0
        for port in gateway.ports.values():
            async with await RawClient.connect(port) as client:
                for _ in range(2):  # the second time the coordinator is known
                    offset += 1
                    parts = [CommitPartition(0, offset, -1, "at"), CommitPartition(1, 7, -1, None)]
                    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", parts)])
                    (topic,) = (await client.call(commit, 0)).topics
                    assert [one.error_code for one in topic.partitions] == [0, 0]
                    for other in gateway.ports.values():
                        async with await RawClient.connect(other) as reader:
                            asked = OffsetFetchRequest("g", [Topic("t", [0, 1])])
                            (found,) = (await reader.call(asked, 0)).topics
                            assert [(one.error_code, one.offset) for one in found.partitions] == [
                                (0, offset),
                                (0, 7),
                            ]


async def test_version_1_at_another_broker_gets_error_16() -> None:
    async with (
        EmbeddedCluster(2, version="0.10", topics={"t": 1}) as cluster,
        running(cluster.bootstrap_servers) as gateway,
    ):
        codes = set()
        for port in gateway.ports.values():
            async with await RawClient.connect(port) as client:
                await found_coordinator(client)
                commit = OffsetCommitRequest(
                    "g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])]
                )
                (topic,) = (await client.call(commit, 1)).topics
                codes.add(topic.partitions[0].error_code)
        assert codes == {0, 16}


async def test_coordinator_that_moves_is_found_again() -> None:
    """Requests behind it wait, and come in order."""
    asked: list[tuple[int, int]] = []
    coordinator = [0]

    def answering(number: int) -> Any:
        def answer(frame: bytes) -> bytes:
            key = frame[1]
            asked.append((number, key))
            if key == 10:
                port = brokers[coordinator[0]].port
                return frame[4:8] + struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", port)
            if key == 8:
                code = 0 if number == coordinator[0] else 16
                return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, code)
            return frame[4:8]

        return answer

    brokers = [ScriptedBroker(answering(number)) for number in range(3)]
    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with brokers[0], brokers[1], brokers[2]:
        brokers[0].metadata = lambda nodes=None: brokers[2].__class__.metadata(  # type: ignore[method-assign]
            brokers[0], {2: brokers[2].port}
        )
        async with connected(brokers[0].address) as (_, client):
            for coordinator[0] in (2, 1, 1, 0):
                client.send_request(commit, 0)
                client.send(request(16, 0, 2))
                assert (await client.frame())[-2:] == bytes(2)
                assert await client.frame() == b"\0\0\0\2"
    assert asked == [
        *[(2, 8), (2, 16)],
        *[(2, 8), (2, 10), (1, 8), (2, 16)],
        *[(1, 8), (2, 16)],
        *[(1, 8), (2, 10), (0, 8), (2, 16)],
    ]


@pytest.mark.parametrize("code", [14, 15, 16])
async def test_coordinator_that_is_not_ready_yet_gets_time(code: int) -> None:
    """It is named as soon as it leads the partition, before it has read its groups."""
    asked: list[int] = []

    def answer(frame: bytes) -> bytes:
        asked.append(frame[1])
        if frame[1] == 10:
            return frame[4:8] + struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", broker.port)
        not_yet = asked.count(8) < 4
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, code if not_yet else 0)

    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with ScriptedBroker(answer) as broker, connected(broker.address) as (_, client):
        (topic,) = (await client.call(commit, 0)).topics
        assert topic.partitions[0].error_code == 0
    assert asked == [8, *[10, 8] * 3]


async def test_long_names_of_groups_are_not_kept() -> None:
    coordinators = Coordinators()
    coordinators.note("g" * 32_000, (HOST, 1))
    assert coordinators.get("g" * 32_000) is None
    for number in range(20_000):
        coordinators.note(f"{number}", (HOST, number))
    found = [coordinators.get(f"{number}") for number in range(20_000)]
    assert found[-1] == (HOST, 19_999)
    assert sum(one is not None for one in found) == 10_000


async def test_coordinator_that_dies_ends_the_connection_and_is_looked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def own(frame: bytes) -> bytes:
        if frame[1] == 10:
            return frame[4:8] + struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", others[0].port)
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 16)

    def committed(frame: bytes) -> bytes:
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 0)

    others = [ScriptedBroker(lambda frame: None), ScriptedBroker(committed)]
    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with (
        ScriptedBroker(own) as broker,
        others[0],
        others[1],
        running(broker.address) as gateway,
    ):
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send_request(commit, 0)
            assert await client.is_closed()
        assert f"connection to broker 127.0.0.1:{others[0].port} lost: closed" in caplog.text
        others.pop(0)
        async with await RawClient.connect(first_port(gateway)) as client:
            (topic,) = (await client.call(commit, 0)).topics
            assert topic.partitions[0].error_code == 0


async def test_connections_to_coordinators_are_bounded() -> None:
    """The target names another address for each group."""
    opened, ended, names = 0, 0, count()

    async def commit_at_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened, ended
        opened += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                body = frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 0)
                writer.write(len(body).to_bytes(4, "big") + body)
        finally:
            ended += 1

    def own(frame: bytes) -> bytes:
        if frame[1] == 10:
            host = b"127.0.0.%d" % (100 + next(names))
            return frame[4:8] + struct.pack(">hih11si", 0, 0, 11, host, other.port)
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 16)

    async with (
        StreamServer(commit_at_each, host="0.0.0.0") as other,
        ScriptedBroker(own) as broker,
        connected(broker.address) as (_, client),
    ):
        for number in range(40):
            parts = [Topic("t", [CommitPartition(0, 1, -1, "")])]
            commit = OffsetCommitRequest(f"group {number}", -1, "", -1, parts)
            (topic,) = (await client.call(commit, 0)).topics
            assert topic.partitions[0].error_code == 0
        assert opened == 40
        await until(lambda: opened - ended <= 16)


async def test_answer_of_a_coordinator_that_cannot_be_read_ends_the_connection() -> None:
    def own(frame: bytes) -> bytes:
        if frame[1] == 10:
            return frame[4:8] + struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", other.port)
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 16)

    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + b"\0\0\0\7garbage") as other,
        ScriptedBroker(own) as broker,
        connected(broker.address) as (_, client),
    ):
        client.send_request(commit, 0)
        client.send(request(16, 0, 2))
        assert await client.is_closed()


async def test_coordinator_that_closes_beside_a_request_ends_the_connection() -> None:
    """The gateway may read the end of the one connection before the request of the other."""

    def own(frame: bytes) -> bytes:
        if frame[1] == 10:
            return frame[4:8] + struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", other.port)
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 16)

    def committed(frame: bytes) -> bytes:
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 0)

    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with (
        ScriptedBroker(committed) as other,
        ScriptedBroker(own) as broker,
        running(broker.address) as gateway,
    ):
        for _ in range(5):
            async with await RawClient.connect(first_port(gateway)) as client:
                await client.call(commit, 0)
                other.end_responses()
                client.send_request(commit, 0)
                assert await client.is_closed()


async def test_coordinator_that_cannot_be_reached_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()

    def own(frame: bytes) -> bytes:
        if frame[1] == 10:
            return frame[4:8] + struct.pack(">hih9si", 0, 0, 9, b"127.0.0.1", port)
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 16)

    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with ScriptedBroker(own) as broker, connected(broker.address) as (_, client):
        client.send_request(commit, 0)
        assert await client.is_closed()
    assert f"no connection to broker 127.0.0.1:{port}: " in caplog.text


@pytest.mark.parametrize(("code", "old"), [(30, 16), (24, -1)])
async def test_error_of_the_look_up_is_that_of_each_partition(code: int, old: int) -> None:
    def own(frame: bytes) -> bytes:
        if frame[1] == 10:
            return frame[4:8] + struct.pack(">hihi", code, -1, 0, -1)
        return frame[4:8] + struct.pack(">ih1siiqhh", 1, 1, b"t", 1, 0, -1, 0, 16)

    async with ScriptedBroker(own) as broker, connected(broker.address) as (_, client):
        asked = OffsetFetchRequest("g", [Topic("t", [0, 7])])
        (topic,) = (await client.call(asked, 0)).topics
        assert [(one.partition, one.error_code) for one in topic.partitions] == [(0, old), (7, old)]


async def test_target_without_its_topic_of_offsets_gets_time_to_create_it() -> None:
    asked: list[int] = []

    def own(frame: bytes) -> bytes:
        asked.append(frame[1])
        if frame[1] == 10:
            code = 15 if asked.count(10) == 1 else 0
            return frame[4:8] + struct.pack(">hih9si", code, 0, 9, b"127.0.0.1", broker.port)
        code = 0 if asked.count(8) > 1 else 15
        return frame[4:8] + struct.pack(">ih1siih", 1, 1, b"t", 1, 0, code)

    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    async with ScriptedBroker(own) as broker, connected(broker.address) as (_, client):
        (topic,) = (await client.call(commit, 0)).topics
        assert topic.partitions[0].error_code == 0
    assert asked == [8, 10, 10, 8]
