"""Takes lines from connections, and sends them to a topic: docs/guides/ingestion.md."""

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import KafkaError

log = logging.getLogger("ingest")
CHUNK_BYTES = 256 * 1024
UNCONFIRMED = 16  # lists of a connection that wait for their acknowledgements


class Ingest:
    """Sends the lines of each connection, and counts what became of them."""

    def __init__(self, producer, topic):
        self.producer, self.topic = producer, topic
        self.acknowledged = self.failed = 0

    async def connection(self, reader, writer):
        pending, rest = deque(), b""
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:  # waits while `buffer_memory` is full: the peer then waits, too
                    pending.append(await self.producer.send_many(self.topic, lines))
                if len(pending) > UNCONFIRMED:
                    await self.confirm(pending.popleft())
            if rest:
                pending.append(await self.producer.send_many(self.topic, [rest]))
        except (OSError, KafkaError) as error:
            log.warning("connection closed: %s", error)
        for deliveries in pending:
            await self.confirm(deliveries)
        writer.close()

    async def confirm(self, deliveries):
        with contextlib.suppress(KafkaError):  # `errors()` has them all, by their index in the list
            await deliveries
        failed = len(deliveries.errors())
        self.failed += failed
        self.acknowledged += len(deliveries) - failed


async def serve(servers, topic, port, started=lambda server: None):
    """Take lines until SIGTERM; then send what has arrived."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        client_id=f"ingest-{os.getpid()}",  # tells the daemons apart
        acks="all",
        linger_ms=20,  # small lists of several connections share a request
        compression_type="gzip",
        start_timeout_ms=600_000,  # the daemon may start before the brokers
    ) as producer:
        ingest = Ingest(producer, topic)
        connections = {}

        def connected(reader, writer):
            task = asyncio.create_task(ingest.connection(reader, writer))
            connections[task] = writer
            task.add_done_callback(connections.pop)

        server = await asyncio.start_server(connected, "127.0.0.1", port)
        started(server)
        await stop.wait()
        server.close()
        for writer in connections.values():
            writer.close()  # reads no more; the task sends what was read
        await asyncio.gather(*connections)
    return ingest
