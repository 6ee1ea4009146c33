"""Translate Fetch 0 to 3, with message sets, to version 10, with record batches.

Batches become messages of format 0 (versions 0 and 1) or 1 (2 and 3), and keep offsets and codecs,
except that snappy replaces zstd. Sets are cut to the sizes of the request, between messages. The
first message is never cut, so that a client can always continue.

Control batches become no messages, and neither do records of aborted transactions if the gateway
reads committed ones only. An old client that gets no messages at an offset fetches there again and
again. So `FetchPositions` remembers the next offset with messages, and the gateway asks the target
from that offset on.

Invariant: no set is null. A set is empty only if the target has no message or a limit is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from aiokafka08 import errors
from aiokafka08._core.concurrency.remembered import Remembered
from aiokafka08._tools.gateway import translation
from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.headers import CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.translation import Budget, Translation, read_body, write_response
from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol import record_batch
from aiokafka08.protocol.api import Topic, by_partition, by_topic
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry, summarize_set
from aiokafka08.protocol.record_batch import BatchHeader, ControlType, MessageRun, control_type
from aiokafka08.protocol.requests import fetch
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest
from aiokafka08.protocol.types import Buffer, FetchedBytes, Int16, Int32, Int64, NullSince, Since
from aiokafka08.structs import TopicPartition

TARGET_VERSION: Final = 10
MAX_FETCH_BYTES: Final = 64 << 20
"""The most bytes that are requested from the target: clients before version 3 name no limit."""

_POSITION_BYTES: Final = 1000  # with a long name
_UNUSED_S: Final = 60.0  # longer than clients wait for a response
_FORMAT_1_SINCE: Final = 2
_MAX_BYTES_SINCE: Final = 3
_DOWNGRADED: Final = 1000


@dataclass(slots=True)
class _AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@dataclass(slots=True)
class _FetchedPartition10:
    partition: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64
    log_start_offset: Int64
    aborted: Annotated[list[_AbortedTransaction] | None, NullSince(0)]
    records: FetchedBytes


@dataclass(slots=True)
class _FetchResponse10:
    throttle_time_ms: Annotated[Int32, Since(1, absent=0)]
    error_code: Int16
    session_id: Int32
    topics: list[Topic[_FetchedPartition10]]


class FetchPositions:
    """The gaps without messages that begin at a client's fetch offsets, by partition.

    An entry stays true for one log, since offsets in such a gap never get messages. After an error,
    or a while without a fetch, the log may be a new one: a topic may have been deleted and created
    again.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._next: Remembered[tuple[str, int], tuple[int, int]] = Remembered(_UNUSED_S)

    @property
    def held_bytes(self) -> int:
        """The approximate memory of the entries."""
        return len(self._next) * _POSITION_BYTES

    def next_offset(self, topic: str, partition: int, offset: int) -> int:
        """Return from where to fetch if the client fetches from `offset`."""
        known, following = self._next.get((topic, partition)) or (-1, -1)
        if known != offset:
            return offset
        self.remember(topic, partition, offset, following)
        return following

    def remember(self, topic: str, partition: int, offset: int, next_offset: int) -> None:
        """Note that there are no messages from `offset` up to `next_offset`."""
        self._next.note((topic, partition), (offset, next_offset))

    def in_turn(self, keys: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Rotate the partitions of a request, so that each comes first in its turn.

        The target fills a response in the order of the request, so the last ones may get nothing.
        """
        self._turn = (self._turn + 1) % max(len(keys), 1)
        return keys[self._turn :] + keys[: self._turn]

    def forget(self, topic: str, partition: int) -> None:
        """Note that nothing is known any more: the log may have been cut, or be a new one."""
        self._next.forget((topic, partition))


def translate_fetch(
    head: RequestHead, frame: memoryview, positions: FetchPositions, *, is_read_committed: bool
) -> Translation:
    """Translate a request.

    Args:
        head: its header.
        frame: its frame.
        positions: the positions of the client.
        is_read_committed: whether records of aborted and open transactions are left out.

    Raises:
        KafkaProtocolError: the request isn't whole. `Translation.respond` also raises it, if the
            response isn't.
    """
    request = read_body(FetchRequest, head.version, frame, head.body_at)
    wanted = by_partition(request.topics)
    asked_from = {key: positions.next_offset(*key, one.fetch_offset) for key, one in wanted.items()}
    max_bytes = min(request.max_bytes, MAX_FETCH_BYTES)
    is_limited = head.version >= _MAX_BYTES_SINCE
    is_much = sum(part.max_bytes for part in wanted.values()) > MAX_FETCH_BYTES
    order = positions.in_turn(list(wanted)) if is_much and not is_limited else wanted

    def asked_partition(key: tuple[str, int]) -> dict[str, int]:
        limit = wanted[key].max_bytes
        return {"Partition": key[1], "FetchOffset": asked_from[key], "PartitionMaxBytes": limit}

    topics = by_topic((key[0], asked_partition(key)) for key in order)
    asked = {
        "MaxWaitMs": request.max_wait_ms,
        "MinBytes": request.min_bytes,
        "MaxBytes": max_bytes,
        "IsolationLevel": is_read_committed,
        "SessionId": 0,
        "Topics": [{"Topic": one.topic, "Partitions": one.partitions} for one in topics],
    }

    def respond(answer: memoryview, budget: Budget) -> list[Buffer]:
        fixed = answer.toreadonly()  # only bytes that can't change are converted without the GIL
        response = read_body(_FetchResponse10, TARGET_VERSION, fixed, CORRELATION_BYTES)
        if response.error_code:
            raise KafkaProtocolError(f"FetchResponse: error {response.error_code}; expected 0")
        converter = _Converter(head, max_bytes, positions, budget)
        topics = [
            Topic(
                topic.topic,
                [
                    converter.converted(topic.topic, fetched, wanted[key], asked_from[key])
                    for fetched in topic.partitions
                    if (key := (topic.topic, fetched.partition)) in wanted
                ],
            )
            for topic in response.topics
        ]
        throttle_ms = response.throttle_time_ms if head.version else 0
        return write_response(head, fetch.FetchResponse(throttle_ms, topics))

    header_end = translation.request_end(head, frame)
    frame_10 = translation.write_request(head.key, TARGET_VERSION, header_end, asked)
    return Translation(frame_10, respond, kept_items=len(wanted))


@dataclass(slots=True)
class _Converter:
    """Makes the partitions of a response.

    Attributes:
        head: the header of the request.
        left_bytes: the limit of all sets together.
        positions: the client's positions.
        budget: limits the decompressed bytes of all sets.
        must_have_message: whether the next set must have a message, whatever its size.
    """

    head: RequestHead
    left_bytes: int
    positions: FetchPositions
    budget: Budget
    must_have_message: bool = True

    def converted(
        self, topic: str, fetched: _FetchedPartition10, wanted: FetchPartition, asked_from: int
    ) -> FetchedPartition:
        """Return a partition of the client's response.

        Args:
            topic: its topic.
            fetched: the partition in the target's response.
            wanted: the partition in the client's request.
            asked_from: the offset from which the target was asked.
        """
        partition, offset = fetched.partition, wanted.fetch_offset
        code = old_code(self.head.key, self.head.version, fetched.error_code)
        high_watermark, data = fetched.high_watermark, b""
        if fetched.error_code:
            self.positions.forget(topic, partition)
        if fetched.error_code == errors.OffsetOutOfRangeError.errno and asked_from != offset:
            code, high_watermark = 0, offset  # the client's own offset may be right
        elif not code:
            made = _SetBuilder(
                TopicPartition(topic, partition),
                int(self.head.version >= _FORMAT_1_SINCE),
                offset,
                *self._room(wanted),
                asked_from,
                self.budget,
            )
            try:
                made.add_all(fetched.records, fetched.aborted or ())
            except CorruptRecordException as error:
                code = 0 if made.size else error.errno
            # In one step, which doesn't hold the GIL: all parts are bytes.
            if data := b"".join(made.parts):
                self.must_have_message = self.must_have_message and self.head.version < 3
                self.left_bytes -= len(data)
            elif not code and made.next_offset > offset and not made.is_full:
                self.positions.remember(topic, partition, offset, made.next_offset)
                if made.next_offset >= high_watermark:
                    # There are no more messages. With the high watermark at its offset, a client
                    # that reads up to the end stops now.
                    high_watermark = offset
        self.budget.errors += bool(code)
        return FetchedPartition(partition, code, high_watermark, data)

    def _room(self, wanted: FetchPartition) -> tuple[int, int]:
        """Return how many bytes a set may have, and how many messages it must get, of any size."""
        if self.head.version < _MAX_BYTES_SINCE:
            return min(wanted.max_bytes, max(self.left_bytes, 0)), 1
        return min(wanted.max_bytes, self.left_bytes), int(self.must_have_message)


@dataclass(slots=True)
class _SetBuilder:
    """Makes a set of messages from the parts that were fetched.

    Attributes:
        partition: the partition.
        magic: the format of the messages.
        first_offset: the offset that the client has asked for.
        max_bytes: how many bytes the set may have.
        at_least: how many messages the set must get, of any size.
        next_offset: the offset after all that was converted or skipped.
        budget: limits what is decompressed.
        parts: the set.
        size: the size of the set.
        is_full: whether the size of the set has ended it.
        aborted: aborted transactions that begin after the batches read so far, the first one last.
        aborted_producers: the producers that have an aborted transaction at the current batch.
    """

    partition: TopicPartition
    magic: int
    first_offset: int
    max_bytes: int
    at_least: int
    next_offset: int
    budget: Budget
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    is_full: bool = False
    aborted: list[_AbortedTransaction] = field(default_factory=list)
    aborted_producers: set[int] = field(default_factory=set)

    def add_all(self, records: Buffer, aborted: Sequence[_AbortedTransaction]) -> None:
        """Convert parts until the set is full.

        Raises:
            CorruptRecordException: a part is damaged; those before it are converted.
        """
        self.aborted = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        for part in record_batch.parts_of(records):
            if part.next_offset <= self.first_offset:
                continue
            if isinstance(part, MessageRun):
                self._add_messages(records, part)
            elif self._is_shown(records, part):
                self._add_batch(records, part)
            else:
                self.next_offset = part.next_offset
            if self.is_full:
                return

    def _is_shown(self, records: Buffer, header: BatchHeader) -> bool:
        """Return whether a batch has messages for the client; call it for each batch in turn."""
        while self.aborted and self.aborted[-1].first_offset <= header.last_offset:
            self.aborted_producers.add(self.aborted.pop().producer_id)
        is_aborted = header.producer_id in self.aborted_producers
        if header.is_control and is_aborted and self._ends_aborted(records, header):
            self.aborted_producers.discard(header.producer_id)
        return not (header.is_control or (is_aborted and header.is_transactional))

    def _ends_aborted(self, records: Buffer, header: BatchHeader) -> bool:
        try:
            plain = _opened(records, header, self.budget)
        except CorruptRecordException as error:
            self.budget.exceeds(error)
            raise
        found = record_batch.read_records(header, plain)
        return any(control_type(one) is ControlType.ABORT for one in found)

    def _add_batch(self, records: Buffer, header: BatchHeader) -> None:
        room = max(self.max_bytes - self.size, 0)
        at_least = 0 if self.size else self.at_least
        was_used = self.budget.is_used
        try:
            plain = _opened(records, header, self.budget)
        except CorruptRecordException as error:
            if not (self.budget.exceeds(error) and was_used):
                raise
            self.is_full = True  # a later request gets this batch, as the first one in its set
            return
        converted = record_batch.convert_plain(
            header,
            plain,
            self.magic,
            first_offset=self.first_offset,
            # Don't cut within a wrapper: the client couldn't tell where the next one begins.
            limit_bytes=record_batch.MAX_BATCH_BYTES if header.codec else room,
            at_least=at_least,
        )
        if len(converted.data) > room and not at_least:
            self.is_full = True
            return
        self._add(converted.data)
        self.budget.messages += converted.messages
        if converted.messages or converted.next_offset == header.next_offset:
            self.next_offset = converted.next_offset
        self.is_full = converted.next_offset < header.next_offset

    def _add(self, data: bytes) -> None:
        self.parts.append(data)
        self.size += len(data)

    def _add_messages(self, records: Buffer, run: MessageRun) -> None:
        """Add messages that the log has in an old format."""
        room = max(self.max_bytes - self.size, 0)
        messages = memoryview(records).cast("B")[run.start : run.stop]
        if run.magic > self.magic:
            messages, is_whole = self._downgraded(messages, room)
            self.is_full = not is_whole
        summary = summarize_set(messages[:room])
        whole_bytes = summary.whole_bytes
        if summary.next_offset is not None:  # wrappers aren't opened, so gaps count too
            self.budget.messages += summary.next_offset - max(self.next_offset, self.first_offset)
        if not whole_bytes and not self.size and self.at_least:
            whole_bytes = 12 + int.from_bytes(messages[8:12], "big")
        self._add(bytes(messages[:whole_bytes]))
        self.is_full = self.is_full or whole_bytes < len(messages)
        if not self.is_full:
            self.next_offset = run.next_offset

    def _downgraded(self, messages: memoryview, room: int) -> tuple[memoryview, bool]:
        """Return messages of format 1 in format 0, without wrappers, and whether these are all.

        If they aren't all, they take more than `room` bytes.
        """
        self.budget.require_thread()
        reader = MessageSetReader(
            self.partition,
            messages,
            self.first_offset,
            max_decompressed_bytes=self.budget.left_bytes,
        )
        out = bytearray()
        while found := reader.read(_DOWNGRADED):
            for record in found:
                out += encode_entry(record.offset, record.key, record.value)
            if len(out) > room:
                return memoryview(out), False
        return memoryview(out), True


def _opened(records: Buffer, header: BatchHeader, budget: Budget) -> Buffer:
    plain = record_batch.plain_records(records, header, max_decompressed_bytes=budget.left_bytes)
    if header.codec:
        budget.use(len(plain))
    return plain
