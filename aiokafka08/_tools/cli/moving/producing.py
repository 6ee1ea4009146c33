"""`produce`: read messages from stdin or files, and send them.

Invariants: a message is sent as soon as it is complete, whether or not more input comes. The
messages of a partition keep the order of the input. Memory holds at most the producer's
`buffer_memory` and a block of the input. Whatever ends the run, messages that were buffered before
are flushed, and the counts say how many messages were acknowledged.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiokafka08 import AIOKafkaProducer, Deliveries
from aiokafka08._core.concurrency.rate import RateLimit
from aiokafka08._tools.cli.connection import producer
from aiokafka08._tools.cli.moving.input_messages import (
    delimited_messages,
    file_messages,
    total_bytes,
)
from aiokafka08._tools.cli.moving.pipes import BLOCK_BYTES, Output, open_stdout
from aiokafka08._tools.cli.progress import Progress
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._tools.reading.read_plan import Note
from aiokafka08._tools.records.formats import InputOptions, record_decoder
from aiokafka08._tools.records.headers import refused_headers
from aiokafka08._tools.records.raw import with_fixed_key
from aiokafka08._tools.records.types import InputMessages, RecordFormatError
from aiokafka08._wording import counted
from aiokafka08.embedded_headers import Headers
from aiokafka08.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.telemetry import Event, TopicCreated

# The default of buffer.memory here.
_BUFFER_MEMORY: Final = 16 * 1024 * 1024
_MAX_REQUEST_BYTES: Final = 1048576
# The most calls of `send_many` whose deliveries aren't awaited yet.
_MOST_PENDING: Final = 256
# How long `connection.run` may take to notice that stdout is closed.
_CANCEL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceJob:
    """The destination of messages, and how they are sent."""

    topic: str
    # None: the message names it, or the producer's partitioner chooses.
    partition: int | None = None
    # The key of messages without one.
    key: bytes | None = None
    # Stop after this many messages.
    count: int | None = None
    bytes_per_s: float | None = None
    # Headers of each message, before its own.
    headers: Headers = ()
    # A codec, "none", or None for that of the settings.
    compression: str | None = None


@dataclass(slots=True)
class ProduceCounts:
    """How many messages were read and acknowledged."""

    # Messages of the input, without those after the first wrong one.
    read: int = 0
    # Messages acknowledged; with acks=0, written.
    acknowledged: int = 0
    # The word for them in texts: "acknowledged" or "written".
    done: str = "acknowledged"


class ProduceFailed(KafkaError):
    """A message wasn't acknowledged; the text names its number in the input."""


class _Sent(NamedTuple):
    """Messages of one `send_many` call."""

    deliveries: Deliveries
    # The number of each message in the input, from 1 on.
    numbers: Sequence[int]


def max_message_bytes(settings: Settings) -> int:
    """Return the size of the largest message that the producer accepts, before compression."""
    return int(settings.producer.get("max_request_size", _MAX_REQUEST_BYTES))


async def produce(
    settings: Settings,
    job: ProduceJob,
    paths: Sequence[str],
    options: InputOptions,
    *,
    tee: bool = False,
    note: Note,
) -> ProduceCounts:
    """Send the messages of files, or of stdin, and wait until all are acknowledged.

    Args:
        settings: the cluster, and the producer's options.
        job: where to send them.
        paths: the files; none: stdin.
        options: how to read the input.
        tee: write the values to stdout as well (default False).
        note: shows a line on stderr: how many messages were acknowledged, if this is cancelled; how
            many may be lost, with acks=0; that the topic was unknown at first.

    Raises:
        IllegalArgumentError: options don't go together, or there are headers, which the mode
            "refuse" refuses.
        RecordFormatError: the input is wrong.
        ProduceFailed: a message wasn't acknowledged.
        OSError: a file can't be read.
        KafkaError: the topic doesn't exist and isn't created, or the producer refused a message.
    """
    if sys.stdin is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdin")
    stdin = sys.stdin.fileno()
    if job.headers and settings.headers == "refuse":
        raise refused_headers(f"-H {job.headers[0][0]}")
    counts = ProduceCounts(done="written" if settings.producer.get("acks") == 0 else "acknowledged")
    total = total_bytes(paths, stdin)
    if options.format == "files":
        source = file_messages(paths, stdin, options.max_bytes)
    else:
        block_bytes = BLOCK_BYTES
        if job.bytes_per_s is not None:
            block_bytes = min(block_bytes, RateLimit(job.bytes_per_s, 0).block_bytes)
        source = delimited_messages(paths, stdin, record_decoder(options), block_bytes)
    output = open_stdout() if tee else None

    def on_event(event: Event) -> None:
        if isinstance(event, TopicCreated):
            note(str(event))

    arguments = producer_arguments(settings, job)
    async with producer(settings, **arguments, on_event=on_event) as sending:
        try:
            with Progress("produced", total, "bytes", is_shown=not tee) as progress:
                await send_all(
                    sending,
                    job,
                    source,
                    counts,
                    progress=progress,
                    tee=output,
                    flush_timeout_s=settings.timeout_s,
                )
        except asyncio.CancelledError:
            note(f"interrupted: {_describe(counts)}")
            raise
        except KafkaError as error:
            if counts.read:
                error.args = (f"{error.text}. {_describe(counts)}",)
            raise
        except BrokenPipeError:
            raise
        except OSError as error:
            text = f"{error.strerror}. {_describe(counts)}"
            raise OSError(error.errno, text, error.filename) from None
        finally:
            if unknown := int(sending.metrics()["acks0_unknown"]):
                note(
                    "acks=0: a broker closed the connection after "
                    f"{counted(unknown, 'message')}, which may "
                    "be stored or lost; use acks=1 or acks=all to know"
                )
    return counts


def producer_arguments(settings: Settings, job: ProduceJob) -> dict[str, Any]:
    """Return the producer's arguments: those of the settings, and defaults for a stream."""
    # Keep the producer's default size of message sets, because larger sets without compression
    # cost the broker more CPU time for each reader (docs/performance.md).
    arguments = {"buffer_memory": _BUFFER_MEMORY, **settings.producer}
    if job.compression is not None:
        arguments["compression_type"] = None if job.compression == "none" else job.compression
    return arguments


def _describe(counts: ProduceCounts) -> str:
    were = "was" if counts.read == 1 else "were"
    return f"{counts.acknowledged} of {counted(counts.read, 'message')} {were} {counts.done}"


async def send_all(
    producer: AIOKafkaProducer,
    job: ProduceJob,
    source: AsyncIterable[tuple[InputMessages, int]],
    counts: ProduceCounts,
    *,
    progress: Progress,
    tee: Output | None = None,
    flush_timeout_s: float,
) -> None:
    """Send the messages of the input and wait until all are acknowledged.

    If this fails or is cancelled, the producer is stopped.

    Args:
        producer: a started producer.
        job: where to send them.
        source: parts of the input, each with the number of bytes that it took there.
        counts: updated all the time, also if this raises or is cancelled.
        progress: gets the bytes of the input.
        tee: a second output for the values, each with a newline (default None).
        flush_timeout_s: how long to wait for buffered messages, if this fails or is cancelled.

    Raises:
        RecordFormatError: the input is wrong.
        ProduceFailed: a message wasn't acknowledged.
        KafkaError: the producer refused a message.
        OSError: the input can't be read, or the copy can't be written.
    """
    sender = _Sender(producer, job, counts)
    now = asyncio.get_running_loop().time()
    limit = None if job.bytes_per_s is None else RateLimit(job.bytes_per_s, now)
    try:
        async for messages, size in source:
            await _copy(tee, await sender.send(messages))
            progress.add(size)
            if sender.is_complete:
                break
            if messages.error is not None:
                raise messages.error
            if limit is not None:
                delay_s = limit.delay_s(size, asyncio.get_running_loop().time())
                await asyncio.sleep(delay_s)
        await sender.flush()
    except (asyncio.CancelledError, Exception):
        try:
            with suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(flush_timeout_s):
                    await sender.flush()
        finally:
            await producer.stop(timeout=0)  # unacknowledged messages fail
            with suppress(KafkaError):
                await sender.flush()  # counts the acknowledged ones at once
        raise


async def _copy(tee: Output | None, messages: InputMessages) -> None:
    if tee is not None and messages.values:
        try:
            await tee.write(b"".join([(value or b"") + b"\n" for value in messages.values]))
        except BrokenPipeError:
            # `connection.run` notices the closed stdout too, and cancels this task. Wait for the
            # cancellation here, so that it doesn't interrupt the flush that follows.
            await asyncio.sleep(_CANCEL_S)
            raise


class _Sender:
    def __init__(self, producer: AIOKafkaProducer, job: ProduceJob, counts: ProduceCounts) -> None:
        self._producer = producer
        self._job = job
        self._counts = counts
        self._pending: deque[_Sent] = deque()
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_complete(self) -> bool:
        """Return True if the count of the job is reached."""
        return self._counts.read == self._job.count

    async def send(self, messages: InputMessages) -> InputMessages:
        """Pass messages to the producer; wait while its memory is full.

        If this is cancelled, all the messages are sent nevertheless; `flush` waits for them.

        Returns:
            the messages that the count of the job allows.
        """
        if not len(messages):
            return messages
        messages = self._limited(messages)
        self._sending = asyncio.create_task(self._send(messages))
        await asyncio.shield(self._sending)
        while self._pending and (
            len(self._pending) > _MOST_PENDING or self._pending[0].deliveries.done()
        ):
            await self._await_first()
        return messages

    async def flush(self) -> None:
        """Wait until each message is acknowledged.

        Raises:
            ProduceFailed: a message wasn't acknowledged. This is raised when all the others have
                their results.
            KafkaError: the last `send` failed. This is raised when the messages before it have
                their results.
        """
        failed: BaseException | None = None
        if self._sending is not None:
            await asyncio.wait((self._sending,))  # the task runs on if this is cancelled
            failed = self._sending.exception()
        while self._pending:
            try:
                await self._await_first()
            except ProduceFailed as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _limited(self, messages: InputMessages) -> InputMessages:
        """Return the messages that the count of the job allows, with the fixed key."""
        job = self._job
        if job.key is not None:
            messages = with_fixed_key(messages, job.key)
        if job.count is not None and len(messages) > job.count - self._counts.read:
            messages = messages.select(range(job.count - self._counts.read))
        return messages

    async def _send(self, messages: InputMessages) -> None:
        first = self._counts.read + 1
        self._counts.read += len(messages)
        partitions = messages.partitions
        if partitions is None:
            await self._send_to(self._job.partition, messages, range(first, first + len(messages)))
            return
        by_partition: dict[int, list[int]] = {}
        for index, partition in enumerate(partitions):
            by_partition.setdefault(partition, []).append(index)
        for partition, indices in by_partition.items():
            numbers = [first + index for index in indices]
            await self._send_to(partition, messages.select(indices), numbers)

    async def _send_to(
        self, partition: int | None, messages: InputMessages, numbers: Sequence[int]
    ) -> None:
        headers: list[Headers] | None = None
        if messages.headers is not None or self._job.headers:
            own = messages.headers or [None] * len(messages)
            headers = [[*self._job.headers, *(message_headers or ())] for message_headers in own]
        timestamps = messages.timestamps_ms
        if timestamps is not None:
            now_ms = int(time.time() * 1000)
            timestamps = [now_ms if timestamp is None else timestamp for timestamp in timestamps]
        try:
            deliveries = await self._producer.send_many(
                self._job.topic,
                messages.values,
                messages.keys,
                partition=partition,
                timestamps_ms=timestamps,  # type: ignore[arg-type]
                headers=headers,
            )
        except UnsupportedVersionError as error:
            if headers is None or not any(headers):
                raise
            at = next(index for index, message_headers in enumerate(headers) if message_headers)
            raise refused_headers(f"message {numbers[at]} of the input") from error
        except MessageSizeTooLargeError as error:
            if len(messages) > 1:  # none is buffered: find the first that is too large
                half = len(messages) // 2
                await self._send_to(partition, messages.select(range(half)), numbers[:half])
                rest = messages.select(range(half, len(messages)))
                await self._send_to(partition, rest, numbers[half:])
                return
            size = sum(len(part or b"") for part in (messages.values[0], *(messages.keys or ())))
            raise RecordFormatError(
                f"message {numbers[0]} of the input has {size} bytes: larger than max.request.size "
                "or buffer.memory. Raise them with -X, and message.max.bytes of the brokers"
            ) from error
        except UnknownTopicOrPartitionError as error:
            if messages.partitions is not None:
                error.args = (f"message {numbers[0]} of the input: {error.text}",)
            raise
        self._pending.append(_Sent(deliveries, numbers))

    async def _await_first(self) -> None:
        sent = self._pending[0]
        try:
            await sent.deliveries
        except KafkaError:
            errors = sent.deliveries.errors()
            self._pending.popleft()
            self._counts.acknowledged += len(sent.numbers) - len(errors)
            index, error = next(iter(errors.items()))
            raise ProduceFailed(
                f"message {sent.numbers[index]} of the input wasn't {self._counts.done}: "
                f"{error.text}"
            ) from error
        self._pending.popleft()
        self._counts.acknowledged += len(sent.numbers)
