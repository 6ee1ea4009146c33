"""Send lines from stdin, or from any number of TCP connections, to a topic.

    python examples/ingest_daemon.py --topic access < access.log
    tail -F access.log | python examples/ingest_daemon.py --topic access
    python examples/ingest_daemon.py --topic access --listen 127.0.0.1:5140

On SIGTERM or Ctrl-C the daemon reads what this machine has received from the connections or the
pipe, closes them, and sends the whole lines, for at most `delivery_timeout_ms` (120 s). It exits
with 0 if all of them were acknowledged, else with 1. It needs the extra `uvloop`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine

import uvloop

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import KafkaError

log = logging.getLogger("ingest")

CHUNK_BYTES = 256 * 1024
LONGEST_LINE_BYTES = 900_000  # by default brokers accept messages of 1,000,000 bytes
LARGEST_PIPE_BYTES = 1024 * 1024  # Linux: /proc/sys/fs/pipe-max-size
DRAIN_S = 5.0  # how long the end reads on from a peer that sends without a pause


class Ingest:
    """Reads lines and sends them in lists. A slow cluster slows the readers down."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._outstanding: set[asyncio.Task[None]] = set()
        self.is_stopping = False
        self.read = 0
        self.acknowledged = 0
        self.failed = 0

    @property
    def unsent(self) -> int:
        """The number of lines that were read, and are neither acknowledged nor failed."""
        return self.read - self.acknowledged - self.failed

    async def lines(self, read: Callable[[int], Awaitable[bytes]]) -> None:
        """Send each line that `read` returns, until it returns nothing.

        A last line without its end is sent too, unless this daemon has ended the input.
        """
        rest = b""
        while chunk := await read(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            await self._send(lines)
            if len(rest) > LONGEST_LINE_BYTES:
                self.read += 1
                self.failed += 1
                raise ValueError(f"input failed: a line exceeds {LONGEST_LINE_BYTES} bytes")
        await self._send([rest] if rest and not self.is_stopping else [])

    async def _send(self, lines: list[bytes]) -> None:
        self.read += len(lines)
        short = [line for line in lines if len(line) <= LONGEST_LINE_BYTES]
        if len(short) < len(lines):  # one of them would refuse the whole list
            self.failed += len(lines) - len(short)
            log.error("a line exceeds %d bytes, and isn't sent", LONGEST_LINE_BYTES)
        if not short:
            return
        # What has been read is sent, even if the reader is cancelled while this waits for memory.
        await asyncio.shield(self._run(self._buffer(short)))

    async def _buffer(self, lines: list[bytes]) -> None:
        try:
            deliveries = await self._producer.send_many(self._topic, lines)
        except KafkaError:
            self.failed += len(lines)  # some may be in the log
            raise
        self._run(self._count(deliveries, len(lines)))

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._outstanding.add(task)
        task.add_done_callback(self._outstanding.discard)
        return task

    async def _count(self, deliveries: object, count: int) -> None:
        try:
            await deliveries  # type: ignore[misc]
            self.acknowledged += count
        except KafkaError as error:
            failed = len(deliveries.errors())  # type: ignore[attr-defined]
            self.failed += failed
            self.acknowledged += count - failed
            log.error("%d lines not delivered: %s", failed, error)

    async def drain(self) -> None:
        """Wait until every line sent so far is acknowledged or failed."""
        # Not while the set has any: since Python 3.12 gather() doesn't yield for tasks that are
        # done, so they would never leave it.
        while outstanding := [task for task in self._outstanding if not task.done()]:
            await self._producer.flush()
            await asyncio.gather(*outstanding, return_exceptions=True)  # failures are counted


async def main(options: argparse.Namespace) -> int:
    """Run until the input ends or a signal arrives."""
    stop = asyncio.Event()
    async with AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        client_id=f"ingest-{os.getpid()}",  # tells the daemons apart, in brokers' logs and metrics
        acks="all",
        linger_ms=20,
        start_timeout_ms=600_000,  # the daemon may start before the brokers
        max_batch_size=256 * 1024,
        compression_type=options.compression,
    ) as producer:
        ingest = Ingest(producer, options.topic)

        def end() -> None:
            if stop.is_set():
                return
            ingest.is_stopping = True
            stop.set()
            log.info("stopping, %d lines unsent", ingest.unsent)

        for number in (signal.SIGTERM, signal.SIGINT):  # before, they end the process
            asyncio.get_running_loop().add_signal_handler(number, end)
        input_failed = False
        try:
            await _read(ingest, options.listen, stop)
        except (KafkaError, OSError, ValueError) as error:
            log.critical("%s", error)
            input_failed = True
        end()
        await ingest.drain()
    log.info("%d lines acknowledged, %d failed", ingest.acknowledged, ingest.failed)
    return 1 if input_failed or ingest.failed else 0


async def _read(ingest: Ingest, listen: tuple[str, int] | None, stop: asyncio.Event) -> None:
    if listen is not None:
        await _listen(ingest, *listen, stop)
    elif _is_pollable(sys.stdin.fileno()):
        await _read_pipe(ingest, stop)
    else:

        async def read(size: int) -> bytes:
            return b"" if stop.is_set() else await asyncio.to_thread(sys.stdin.buffer.read, size)

        await ingest.lines(read)


async def _read_pipe(ingest: Ingest, stop: asyncio.Event) -> None:
    """Send the lines of a pipe; at `stop`, those that it holds."""
    reader = asyncio.StreamReader()
    number = os.dup(sys.stdin.fileno())  # the transport closes its own
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )

    async def end() -> None:
        await stop.wait()
        if transport.is_closing():  # the pipe has ended
            return
        # Paused, it would read on when the reader has room: behind the end of its input.
        transport.close()
        with contextlib.suppress(BlockingIOError):  # the pipe is empty
            for _ in range(LARGEST_PIPE_BYTES // CHUNK_BYTES):
                if chunk := os.read(number, CHUNK_BYTES):
                    reader.feed_data(chunk)
        reader.feed_eof()

    ending = asyncio.create_task(end())
    try:
        await ingest.lines(reader.read)
    finally:
        ending.cancel()
        transport.close()
        os.close(number)


async def _listen(ingest: Ingest, host: str, port: int, stop: asyncio.Event) -> None:
    """Read from all connections until `stop`; then send what they hold, and close them."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    # No coroutine function: its task would enter itself later, and might be missed at the end.
    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_connection(ingest, reader, writer))
        connections[task] = writer
        task.add_done_callback(connections.pop)

    server = await asyncio.start_server(connected, host, port)
    try:
        address = server.sockets[0].getsockname()
        log.info("listening on %s:%d", address[0], address[1])
        # Not serve_forever(): since Python 3.12.1 its end waits until the clients have gone.
        await stop.wait()
    finally:
        server.close()
        await asyncio.sleep(0)  # a connection accepted just now is made in the next iteration
        for writer in connections.values():
            _end_input(writer)
        if connections:
            await asyncio.wait(connections, timeout=DRAIN_S)
        while connections:
            for writer in connections.values():
                writer.close()  # the reader returns what has come, and then the end
            await asyncio.wait(connections)


def _end_input(writer: asyncio.StreamWriter) -> None:
    """Let the reader return what this machine has received from the peer, and then the end."""
    with contextlib.suppress(OSError):  # the peer has gone
        number = os.dup(writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=number) as connection:
            connection.shutdown(socket.SHUT_RD)


def _is_pollable(file: int) -> bool:
    """Return True if an event loop can wait for the descriptor: not for a regular file."""
    mode = os.fstat(file).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file)


async def _connection(
    ingest: Ingest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    peer = writer.get_extra_info("peername")
    try:
        await ingest.lines(reader.read)
    except (KafkaError, ValueError) as error:
        log.error("connection of %s closed: %s", peer, error)
    except OSError as error:  # the client has gone
        log.warning("connection of %s closed: %s", peer, error)
    finally:
        writer.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r}: expected HOST:PORT")
    return host, int(port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send lines to a topic.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--listen", type=_address, metavar="HOST:PORT", help="TCP instead of stdin")
    parser.add_argument("--compression", choices=["gzip", "snappy", "lz4"])
    arguments = parser.parse_args()
    if sys.stdin is None:  # uvloop would use its number for a file of its own, and abort
        parser.error("standard input is closed: with --listen, give it /dev/null")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s"
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            sys.exit(runner.run(main(arguments)))
        except (KafkaError, OSError, ValueError) as error:
            log.critical("%s", error)
            sys.exit(1)
        except KeyboardInterrupt:  # before the producer has started
            sys.exit(130)
