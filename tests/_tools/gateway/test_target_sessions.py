"""The sessions of connections to the target: how they are prolonged, on a scripted broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.server.connection import Exchange
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08._tools.gateway.upstream import Upstream, Upstreams, connect
from aiokafka08.protocol.api import ApiKey, Topic
from aiokafka08.protocol.requests.committed_offsets import CommitPartition, OffsetCommitRequest
from tests._tools.gateway.gateways import HOST, RawClient, ScriptedBroker, first_port, running
from tests.support.memory import reads_proc, resident_bytes
from tests.support.waiting import until

pytestmark = pytest.mark.fast


class SaslBroker(ScriptedBroker):
    """Takes any token; the sessions are so short that the gateway prolongs them each second."""

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.keys: list[int] = []

    def _answered(self, frame: bytes) -> bytes:
        key, correlation_id = frame[1], frame[4:8]
        self.keys.append(key)
        responses: dict[int, bytes] = {
            ApiKey.API_VERSIONS: struct.pack(">hi" + 2 * "hhh", 0, 2, 17, 0, 1, 36, 0, 1),
            ApiKey.SASL_HANDSHAKE: struct.pack(">hi", 0, 0),
            ApiKey.SASL_AUTHENTICATE: struct.pack(">hhiq", 0, -1, 0, 1),
        }
        return correlation_id + responses.get(key, b"")


def network_to(broker: SaslBroker) -> NetConfig:
    return target_network(
        broker.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
    )


@asynccontextmanager
async def through(broker: SaslBroker) -> AsyncIterator[RawClient]:
    """Connect to a gateway that logs in at the broker."""
    async with (
        running("unused:1", network=network_to(broker)) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
        asyncio.timeout(50),
    ):
        yield client


async def test_nothing_is_sent_or_reordered_while_a_session_is_prolonged() -> None:
    async with SaslBroker() as broker, through(broker) as client:
        sent = answered = 0
        while broker.keys.count(ApiKey.SASL_AUTHENTICATE) < 4:
            for _ in range(20):  # in flight at once
                client.send(struct.pack(">hhih", ApiKey.HEARTBEAT, 0, sent, -1))
                sent += 1
            while answered < sent:
                assert int.from_bytes(await client.frame(), "big") == answered
                answered += 1
    begun = [at for at, key in enumerate(broker.keys) if key == ApiKey.SASL_HANDSHAKE]
    assert len(begun) >= 4
    for at in begun:
        assert broker.keys[at + 1] == ApiKey.SASL_AUTHENTICATE


class Unanswered(Exchange):
    """An exchange of no client, which is never completed."""

    def __init__(self) -> None:
        pass


async def test_what_waits_for_a_session_counts_in_the_memory() -> None:
    begun, warnings = asyncio.Event(), list[str]()

    async def authenticate(stream: object) -> float:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    upstreams = Upstreams()
    resources = ServerResources(1 << 20, "max_held_bytes", lambda: None)
    async with SaslBroker() as broker:
        upstream = Upstream(
            "a broker", upstreams, resources, 1 << 20, lambda _: None, lambda _: None,
            warnings.append,
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: upstream, HOST, broker.port)
        upstream.keep_session(1, authenticate)
        await begun.wait()
        upstream.send(1, [bytes(1 << 19)], Unanswered(), None)
        assert not warnings
        upstream.send(2, [bytes(1 << 19), bytes(1 << 17)], Unanswered(), None)
        assert "max_held_bytes" in warnings[0]
        await upstreams.wait_lost()
    await resources.close()


@reads_proc
async def test_lost_connection_to_a_broker_holds_no_memory() -> None:
    """Its incomplete response is freed at once, though something may refer to the connection."""
    writers = list[asyncio.StreamWriter]()

    def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((64 << 20).to_bytes(4, "big") + bytes(48 << 20))
        writers.append(writer)

    upstreams, lost = Upstreams(), list[Exception | None]()
    resources = ServerResources(1 << 30, "max_held_bytes", lambda: None)
    before = resident_bytes()
    async with await asyncio.start_server(respond, HOST, 0) as server:
        upstream = Upstream(
            "a broker", upstreams, resources, 64 << 20, lambda _: None, lost.append, lambda _: None
        )
        port = server.sockets[0].getsockname()[1]
        await asyncio.get_running_loop().create_connection(lambda: upstream, HOST, port)
        await until(lambda: writers and not writers[0].transport.get_write_buffer_size())
        assert resident_bytes() - before > 30 << 20
        writers[0].transport.abort()
        await until(lambda: lost, "the connection is lost")
        assert resident_bytes() - before < 24 << 20
    await resources.close()


@pytest.mark.parametrize("reads", [True, False])
async def test_what_waits_for_a_session_is_sent_for_a_client_that_has_gone(reads: bool) -> None:
    """Whether the client did read its responses."""
    async with SaslBroker() as broker, asyncio.timeout(30):
        accepted, held = broker.answer, list[bytes]()

        def answered(frame: bytes) -> bytes:
            response: bytes = accepted(frame)
            if frame[1] == ApiKey.SASL_HANDSHAKE and broker.keys.count(frame[1]) > 1:
                held.append(response)
                return b""
            return response

        broker.answer = answered
        resources = ServerResources(1 << 30, "max_held_bytes", lambda: None)
        begun, lost, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        failures: list[Exception | None] = []
        warnings: list[str] = []

        def on_lost(error: Exception | None) -> None:
            failures.append(error)
            lost.set()

        upstreams = Upstreams()
        upstream = Upstream(
            "broker", upstreams, resources, 1000, lambda _: begun.set(), on_lost, warnings.append
        )
        await connect(upstream, (HOST, broker.port), network_to(broker))
        await begun.wait()
        await until(lambda: held, "the session is being prolonged")
        if not reads:
            upstream.pause_reading()
        produce = struct.pack(">hhih", ApiKey.PRODUCE, 7, 1, -1) + bytes(10)
        upstream.send(1, [produce], _Exchange(ended), None, expects_response=False)
        upstream.close()
        broker.send(held[0])
        await until(lambda: broker.keys[-2:] == [ApiKey.SASL_AUTHENTICATE, ApiKey.PRODUCE])
        await lost.wait()
        await upstreams.wait_lost()
        await resources.close()
    assert ended.is_set()
    assert (failures, warnings) == ([None], [])


class _Exchange(Exchange):
    """Notes its end; it has no connection of a client."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def end(self) -> None:
        self._ended.set()


async def test_refusal_to_prolong_a_session_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SaslBroker() as broker:
        accepted = broker.answer

        def refused(frame: bytes) -> bytes:
            is_again = broker.keys.count(ApiKey.SASL_AUTHENTICATE) > 1  # also to find brokers
            if frame[1] != ApiKey.SASL_AUTHENTICATE or not is_again:
                return accepted(frame)
            return frame[4:8] + struct.pack(">hh7siq", 58, 7, b"expired", 0, 0)

        broker.answer = refused
        async with through(broker) as client:
            assert await client.is_closed()
    assert "the broker refuses: expired" in caplog.text
    assert "alice-secret" not in caplog.text


async def test_coordinator_lost_while_its_session_is_prolonged_holds_nothing() -> None:
    """Its connection isn't needed then: the client's later requests go on."""
    commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])])
    committed = struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 0)
    elsewhere = struct.pack(">ih1siih", 1, 1, b"t", 1, 0, 16)
    async with SaslBroker() as other, SaslBroker() as broker:
        logs_in, leads_in = other.answer, broker.answer

        def other_answer(frame: bytes) -> bytes | None:
            if frame[1] == ApiKey.SASL_HANDSHAKE and other.keys[-1:] == [ApiKey.OFFSET_COMMIT]:
                other.keys.append(frame[1])
                return None  # it closes the connection
            is_commit = frame[1] == ApiKey.OFFSET_COMMIT
            return logs_in(frame) + (committed if is_commit else b"")

        def own_answer(frame: bytes) -> bytes:
            found = struct.pack(">hih9si", 0, 0, 9, HOST.encode(), other.port)
            more: dict[int, bytes] = {
                ApiKey.GROUP_COORDINATOR: found,
                ApiKey.OFFSET_COMMIT: elsewhere,
            }
            return leads_in(frame) + more.get(frame[1], b"")

        other.answer, broker.answer = other_answer, own_answer
        async with through(broker) as client:
            (topic,) = (await client.call(commit, 0)).topics
            assert topic.partitions[0].error_code == 0
            await until(lambda: other.keys.count(ApiKey.SASL_HANDSHAKE) > 1, timeout_s=30)
            for number in range(3):
                client.send(struct.pack(">hhih", ApiKey.HEARTBEAT, 0, number, -1))
                assert int.from_bytes(await client.frame(), "big") == number
            (topic,) = (await client.call(commit, 0)).topics  # over a new connection
            assert topic.partitions[0].error_code == 0
