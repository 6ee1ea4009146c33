"""Takes lines from connections, and sends them to a topic: docs/guides/ingestion.md."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from contextlib import suppress

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import KafkaError

log = logging.getLogger("ingest")
CHUNK_BYTES = 256 * 1024
LONGEST_LINE_BYTES = 900_000  # by default brokers accept messages of 1,000,000 bytes
UNCONFIRMED = 16  # lists of a connection that wait for their acknowledgements
DRAIN_S = 5.0  # how long the end reads on from a peer that sends without a pause


class Ingest:
    """Sends the lines of each connection. Each that was read is acknowledged, or counts as failed.

    A failed line may be in the log, if only its acknowledgement was late.
    """

    def __init__(self, producer, topic):
        self.producer, self.topic = producer, topic
        self.acknowledged = self.failed = 0
        self.stopping = False

    async def connection(self, reader, writer):
        pending, rest = deque(), b""
        try:
            while len(rest) <= LONGEST_LINE_BYTES and (chunk := await reader.read(CHUNK_BYTES)):
                *lines, rest = (rest + chunk).split(b"\n")
                await self.send(lines, pending)
            if rest and not self.stopping:  # which may have cut the line
                await self.send([rest], pending)
        except (OSError, KafkaError) as error:
            log.warning("connection of %s closed: %s", writer.get_extra_info("peername"), error)
        for deliveries in pending:
            await self.confirm(deliveries)
        writer.close()

    async def send(self, lines, pending):
        short = [line for line in lines if len(line) <= LONGEST_LINE_BYTES]
        if len(short) < len(lines):  # one of them would refuse the whole list
            self.failed += len(lines) - len(short)
            log.error("a line exceeds %d bytes, and isn't sent", LONGEST_LINE_BYTES)
        try:
            if short:  # waits while `buffer_memory` is full: the peer then waits, too
                pending.append(await self.producer.send_many(self.topic, short))
        except KafkaError:
            self.failed += len(short)
            raise
        if len(pending) > UNCONFIRMED:
            await self.confirm(pending.popleft())

    async def confirm(self, deliveries):
        try:
            await deliveries
        except KafkaError as error:  # the first; `errors()` has them all, by their index
            log.error("lines not delivered: %s", error)
        failed = len(deliveries.errors())
        self.failed += failed
        self.acknowledged += len(deliveries) - failed


def end_input(writer):
    """Let the reader return what this machine has received from the peer, and then the end."""
    with suppress(OSError):  # the peer has gone
        number = os.dup(writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=number) as connection:
            connection.shutdown(socket.SHUT_RD)


async def serve(servers, topic, port, started=lambda server: None):
    """Take lines until SIGTERM or Ctrl-C; then send those that this machine has received."""
    stop = asyncio.Event()
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        client_id=f"ingest-{os.getpid()}",  # tells the daemons apart
        acks="all",
        linger_ms=20,  # small lists of several connections share a request
        compression_type="gzip",
        start_timeout_ms=600_000,  # the daemon may start before the brokers
    ) as producer:
        for number in (signal.SIGTERM, signal.SIGINT):  # before, they end the process
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        ingest = Ingest(producer, topic)
        connections = {}

        def connected(reader, writer):
            task = asyncio.create_task(ingest.connection(reader, writer))
            connections[task] = writer
            task.add_done_callback(connections.pop)

        server = await asyncio.start_server(connected, "127.0.0.1", port)
        log.info("listening on %s:%d", *server.sockets[0].getsockname())
        started(server)
        await stop.wait()
        server.close()
        await asyncio.sleep(0)  # a connection accepted just now is made in the next iteration
        ingest.stopping = True
        log.info("stopping")
        for writer in connections.values():
            end_input(writer)
        if connections:
            await asyncio.wait(connections, timeout=DRAIN_S)
        while connections:
            for writer in connections.values():
                writer.close()  # reads no more; the task sends what was read
            await asyncio.wait(connections)
    log.info("%d lines acknowledged, %d failed", ingest.acknowledged, ingest.failed)
    return ingest


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        sys.exit(asyncio.run(serve("localhost:9092", "access", 5140)).failed > 0)
    except KeyboardInterrupt:  # before the producer has started
        sys.exit(130)
