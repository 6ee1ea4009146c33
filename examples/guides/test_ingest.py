"""Lines arrive though a leader dies, with ingest.py of docs/guides/ingestion.md."""

import asyncio
import contextlib
import os
import signal
import socket

import pytest
from ingest import LONGEST_LINE_BYTES, Ingest, end_input, serve

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import KafkaTimeoutError


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(brokers=3, topics={"access": 1})
async def test_lines_are_in_the_log_when_the_daemon_ends(kafka_cluster):
    started = asyncio.get_running_loop().create_future()
    daemon = asyncio.create_task(
        serve(kafka_cluster.bootstrap_servers, "access", 0, started.set_result)
    )
    port = (await started).sockets[0].getsockname()[1]
    kafka_cluster.kill(0)  # the leader: the daemon goes on with the next one
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"one\ntwo\nthree")
    writer.write_eof()
    assert await reader.read() == b""  # the daemon has sent all lines, and closed the connection
    writer.close()
    os.kill(os.getpid(), signal.SIGTERM)
    ingest = await daemon
    assert (ingest.acknowledged, ingest.failed) == (3, 0)
    assert [one.value for one in kafka_cluster.log("access", 0)] == [b"one", b"two", b"three"]


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"access": 1})
async def test_the_end_sends_what_a_socket_holds(kafka_cluster):
    accepted = asyncio.get_running_loop().create_future()
    async with AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        ingest = Ingest(producer, "access")

        async def connected(reader, writer):
            writer.transport.pause_reading()  # as while `buffer_memory` is full
            accepted.set_result(writer)
            await ingest.connection(reader, writer)

        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            with socket.create_connection(server.sockets[0].getsockname()) as peer:
                peer.sendall(b"one\ntwo\nthr")
                writer = await accepted
                ingest.stopping = True
                end_input(writer)
                writer.transport.resume_reading()
                await writer.wait_closed()
    assert (ingest.acknowledged, ingest.failed) == (2, 0)


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"access": 1})
async def test_a_connection_accepted_with_the_signal_is_read(kafka_cluster):
    started = asyncio.get_running_loop().create_future()
    daemon = asyncio.create_task(
        serve(kafka_cluster.bootstrap_servers, "access", 0, started.set_result)
    )
    address = (await started).sockets[0].getsockname()
    os.kill(os.getpid(), signal.SIGTERM)
    with socket.create_connection(address) as peer:  # the event loop finds both at once
        peer.sendall(b"one\n")
        ingest = await daemon
    assert (ingest.acknowledged, ingest.failed) == (1, 0)


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"access": 1})
async def test_each_line_counts(kafka_cluster):
    long = b"x" * (LONGEST_LINE_BYTES + 1)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, delivery_timeout_ms=500
    ) as producer:
        ingest = Ingest(producer, "access")
        await send(ingest, b"one\n" + long + b"\ntwo\n")  # lines before and after are sent
        assert (ingest.acknowledged, ingest.failed) == (2, 1)
        await send(ingest, b"three\n" + long * 3)  # no end in sight: the connection is closed
        assert (ingest.acknowledged, ingest.failed) == (3, 2)
        kafka_cluster.kill(0)
        await send(ingest, b"four\nfive\n")
        assert (ingest.acknowledged, ingest.failed) == (3, 4)
        ingest.stopping = True
        await send(ingest, b"half a li")
        assert (ingest.acknowledged, ingest.failed) == (3, 4)
    assert [one.value for one in kafka_cluster.log("access", 0)] == [b"one", b"two", b"three"]


@pytest.mark.asyncio
async def test_lines_that_find_no_memory_count():
    class FullProducer:
        async def send_many(self, topic, values):
            raise KafkaTimeoutError("no memory within 500 ms")

    ingest = Ingest(FullProducer(), "access")
    await send(ingest, b"one\ntwo\nthree")
    assert (ingest.acknowledged, ingest.failed) == (0, 2)  # the third one was never sent


async def send(ingest, sent):
    """Run a connection that sends this."""
    server = await asyncio.start_server(ingest.connection, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
