"""Fetch 0 to 3, with sets of messages, by version 10, with record batches.

Batches become messages of format 0 (versions 0 and 1) or 1 (2 and 3), and keep offsets and codecs;
what was compressed by zstd is compressed by snappy. Sets are cut to the sizes of the request by
whole messages, but for the first one: a client always gets on.

Control batches, and records of aborted transactions if the gateway reads committed ones only, have
no messages. An old client can't pass an offset from which on there are none: it fetches there again
and again. So `FetchPositions` remembers the next offset with messages, and the target is asked from
there.

Invariant: a set is never null, and it is empty only if the target has no message for it now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from aiokafka08 import errors
from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.headers import CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.remembered import Remembered
from aiokafka08._tools.gateway.translation import (
    Budget,
    Translation,
    read_body,
    request_end,
    write_request,
    write_response,
)
from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol.api import Topic, by_topic
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry, summarize_set
from aiokafka08.protocol.record_batch import (
    MAX_BATCH_BYTES,
    BatchHeader,
    ControlType,
    MessageRun,
    control_type,
    convert_plain,
    parts_of,
    plain_records,
    read_records,
)
from aiokafka08.protocol.requests.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from aiokafka08.protocol.types import Buffer, FetchedBytes, Int16, Int32, Int64, NullSince, Since
from aiokafka08.structs import TopicPartition

TARGET_VERSION: Final = 10
MAX_FETCH_BYTES: Final = 64 << 20
"""What the target is asked for at most; before version 3 clients name no limit."""

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
    """Offsets of a client behind which there are no messages for a while.

    An entry stays true while the log is the same: offsets between the two never get messages. After
    an error it may be another one, and after a while without a fetch too: a topic that was deleted
    may be there again.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._next: Remembered[tuple[str, int], tuple[int, int]] = Remembered(_UNUSED_S)

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
        """Return the partitions of a request that may not get all they want, another one first.

        The target fills a response in the order of the request.
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
        positions: those of the client.
        is_read_committed: whether records of aborted and open transactions are left out.

    Raises:
        KafkaProtocolError: the request isn't whole; so does the function for the response.
    """
    request: FetchRequest = read_body(FetchRequest, head.version, frame, head.body_at)
    wanted: dict[tuple[str, int], FetchPartition] = {
        (topic.topic, part.partition): part for topic in request.topics for part in topic.partitions
    }
    asked_from = {
        key: positions.next_offset(*key, part.fetch_offset) for key, part in wanted.items()
    }
    max_bytes = min(request.max_bytes, MAX_FETCH_BYTES)
    is_much = (
        head.version < _MAX_BYTES_SINCE
        and sum(part.max_bytes for part in wanted.values()) > MAX_FETCH_BYTES
    )
    in_turn = [
        (
            key[0],
            {
                "Partition": key[1],
                "FetchOffset": asked_from[key],
                "PartitionMaxBytes": wanted[key].max_bytes,
            },
        )
        for key in (positions.in_turn(list(wanted)) if is_much else wanted)
    ]
    asked = {
        "MaxWaitMs": request.max_wait_ms,
        "MinBytes": request.min_bytes,
        "MaxBytes": max_bytes,
        "IsolationLevel": is_read_committed,
        "SessionId": 0,
        "Topics": [
            {"Topic": topic.topic, "Partitions": topic.partitions} for topic in by_topic(in_turn)
        ],
    }

    def respond(answer: memoryview, budget: Budget) -> list[Buffer]:
        response: _FetchResponse10 = read_body(
            _FetchResponse10, TARGET_VERSION, answer, CORRELATION_BYTES
        )
        if response.error_code:
            raise KafkaProtocolError(f"FetchResponse: error {response.error_code}; expected 0")
        converter = _Converter(head, max_bytes, positions, budget)
        topics = [
            Topic(
                topic.topic,
                [
                    converter.converted(
                        topic.topic,
                        fetched,
                        wanted[topic.topic, fetched.partition],
                        asked_from[topic.topic, fetched.partition],
                    )
                    for fetched in topic.partitions
                    if (topic.topic, fetched.partition) in wanted
                ],
            )
            for topic in response.topics
        ]
        throttle_ms = response.throttle_time_ms if head.version else 0
        return write_response(head, FetchResponse(throttle_ms, topics))

    frame_10 = write_request(head.key, TARGET_VERSION, request_end(head, frame), asked)
    return Translation(frame_10, respond)


class _Converter:
    """Makes the partitions of a response.

    Args:
        head: the header of the request.
        max_bytes: the limit of all sets together.
        positions: the client's.
        budget: what all sets may take when decompressed.
    """

    def __init__(
        self, head: RequestHead, max_bytes: int, positions: FetchPositions, budget: Budget
    ) -> None:
        self._head = head
        self._magic = int(head.version >= _FORMAT_1_SINCE)
        self._left_bytes = max_bytes
        self._positions = positions
        self._budget = budget
        self._must_have_message = True

    def converted(
        self, topic: str, fetched: _FetchedPartition10, wanted: FetchPartition, asked_from: int
    ) -> FetchedPartition:
        """Return what the client gets of a partition.

        Args:
            topic: its topic.
            fetched: what the target has returned.
            wanted: what the client has asked for.
            asked_from: the offset from which the target was asked.
        """
        partition, offset = fetched.partition, wanted.fetch_offset
        code = old_code(self._head.key, self._head.version, fetched.error_code)
        if fetched.error_code:
            self._positions.forget(topic, partition)
        if fetched.error_code == errors.OffsetOutOfRangeError.errno and asked_from != offset:
            # The client's own offset may be right.
            return FetchedPartition(partition, errors.NoError.errno, offset, b"")
        if code:
            self._budget.errors += 1
            return FetchedPartition(partition, code, fetched.high_watermark, b"")
        result = _SetBuilder(
            TopicPartition(topic, partition),
            self._magic,
            offset,
            self._room(wanted),
            asked_from,
            self._budget,
        )
        try:
            result.add_all(fetched.records, fetched.aborted or ())
        except CorruptRecordException:
            if not result.data:
                self._budget.errors += 1
                return FetchedPartition(
                    partition, CorruptRecordException.errno, fetched.high_watermark, b""
                )
        if result.data:
            self._must_have_message = self._must_have_message and self._head.version < 3
            self._left_bytes -= len(result.data)
            return FetchedPartition(
                partition,
                errors.NoError.errno,
                fetched.high_watermark,
                memoryview(result.data),  # no copy, which holds the GIL
            )
        high_watermark = fetched.high_watermark
        if result.next_offset > offset and not result.is_full:
            self._positions.remember(topic, partition, offset, result.next_offset)
            if result.next_offset >= high_watermark:
                # The client has all messages: one that reads up to the end ends now.
                high_watermark = offset
        return FetchedPartition(partition, errors.NoError.errno, high_watermark, b"")

    def _room(self, wanted: FetchPartition) -> tuple[int, int]:
        """Return how many bytes a set may have, and how many messages whatever their size."""
        if self._head.version < _MAX_BYTES_SINCE:
            return min(wanted.max_bytes, max(self._left_bytes, 0)), 1
        return min(wanted.max_bytes, self._left_bytes), int(self._must_have_message)


class _SetBuilder:
    """Makes a set of messages of the parts that were fetched.

    Attributes:
        data: the set.
        next_offset: the offset behind what was converted or skipped.
        is_full: whether the size of the set has ended it.
    """

    def __init__(
        self,
        partition: TopicPartition,
        magic: int,
        first_offset: int,
        room: tuple[int, int],
        next_offset: int,
        budget: Budget,
    ) -> None:
        self.data = bytearray()
        self.next_offset = next_offset
        self.is_full = False
        self._partition = partition
        self._magic = magic
        self._first_offset = first_offset
        self._max_bytes, self._at_least = room
        self._budget = budget

    def add_all(self, records: Buffer, aborted: Sequence[_AbortedTransaction]) -> None:
        """Convert parts until the set is full.

        Raises:
            CorruptRecordException: a part is damaged; those before it are converted.
        """
        filter_ = _AbortedFilter(records, aborted, self._budget)
        for part in parts_of(records):
            if part.next_offset <= self._first_offset:
                continue
            if isinstance(part, MessageRun):
                self._add_messages(records, part)
            elif filter_.shows(part):
                self._add_batch(records, part)
            else:
                self.next_offset = part.next_offset
            if self.is_full:
                return

    def _add_batch(self, records: Buffer, header: BatchHeader) -> None:
        room = max(self._max_bytes - len(self.data), 0)
        at_least = 0 if self.data else self._at_least
        was_used = self._budget.is_used
        try:
            plain = _opened(records, header, self._budget)
        except CorruptRecordException as error:
            if not (self._budget.exceeds(error) and was_used):
                raise
            self.is_full = True  # the client gets it with a later request, whose first it is
            return
        converted = convert_plain(
            header,
            plain,
            self._magic,
            first_offset=self._first_offset,
            # A wrapper is whole, or the client couldn't tell where the next one begins.
            limit_bytes=MAX_BATCH_BYTES if header.codec else room,
            at_least=at_least,
        )
        if len(converted.data) > room and not at_least:
            self.is_full = True
            return
        self.data += converted.data
        self._budget.messages += converted.messages
        if converted.messages or converted.next_offset == header.next_offset:
            self.next_offset = converted.next_offset
        self.is_full = converted.next_offset < header.next_offset

    def _add_messages(self, records: Buffer, run: MessageRun) -> None:
        """Add messages that the log has in an old format."""
        room = max(self._max_bytes - len(self.data), 0)
        messages = memoryview(records).cast("B")[run.start : run.stop]
        if run.magic > self._magic:
            messages, is_whole = self._downgraded(messages, room)
            self.is_full = not is_whole
        summary = summarize_set(messages[:room])
        whole_bytes = summary.whole_bytes
        if summary.next_offset is not None:  # wrappers aren't opened, so gaps count too
            self._budget.messages += summary.next_offset - max(self.next_offset, self._first_offset)
        if not whole_bytes and not self.data and self._at_least:
            whole_bytes = 12 + int.from_bytes(messages[8:12], "big")
        self.data += messages[:whole_bytes]
        self.is_full = self.is_full or whole_bytes < len(messages)
        if not self.is_full:
            self.next_offset = run.next_offset

    def _downgraded(self, messages: memoryview, room: int) -> tuple[memoryview, bool]:
        """Return messages of format 1 in format 0, without wrappers, and whether these are all.

        There are more than `room` bytes if there are more messages.
        """
        self._budget.require_thread()
        reader = MessageSetReader(
            self._partition,
            messages,
            self._first_offset,
            max_decompressed_bytes=self._budget.left_bytes,
        )
        out = bytearray()
        while found := reader.read(_DOWNGRADED):
            for record in found:
                out += encode_entry(record.offset, record.key, record.value)
            if len(out) > room:
                return memoryview(out), False
        return memoryview(out), True


def _opened(records: Buffer, header: BatchHeader, budget: Budget) -> Buffer:
    plain = plain_records(records, header, max_decompressed_bytes=budget.left_bytes)
    if header.codec:
        budget.use(len(plain))
    return plain


class _AbortedFilter:
    """Which batches have messages for the client, in the order of the log."""

    def __init__(
        self, records: Buffer, aborted: Sequence[_AbortedTransaction], budget: Budget
    ) -> None:
        self._records = records
        self._budget = budget
        self._aborted = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._producers: set[int] = set()  # whose transaction that is read now was aborted

    def shows(self, header: BatchHeader) -> bool:
        """Return whether a batch has messages for the client; call it for each batch in turn."""
        while self._aborted and self._aborted[-1].first_offset <= header.last_offset:
            self._producers.add(self._aborted.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._producers and self._ends_aborted(header):
                self._producers.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._producers)

    def _ends_aborted(self, header: BatchHeader) -> bool:
        try:
            plain = _opened(self._records, header, self._budget)
        except CorruptRecordException as error:
            self._budget.exceeds(error)
            raise
        return any(control_type(one) is ControlType.ABORT for one in read_records(header, plain))
