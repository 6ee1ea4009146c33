"""Translate Produce 0 to 2, with message sets, to version 3, with a record batch per partition.

A set becomes one batch, as in brokers up to 3.9: it keeps its codec, keys, values and timestamps,
and is stored as a whole or not at all. Only a batch that is too large for the target is split
(`batch_limits`). Its parts are sent one after the other, until the first error. Meanwhile the
client's later requests wait, and the target gets acks=1 in place of acks=0.

A damaged set never reaches the target. The gateway itself answers for its partition, and merges
that with the target's response for the others. With acks=0 it closes the connection, as brokers do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from aiokafka08 import errors
from aiokafka08._tools.gateway import batch_limits, translation
from aiokafka08._tools.gateway.batch_limits import BatchLimits, record_count
from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.headers import CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08._wording import shorten
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.api import by_partition, by_topic
from aiokafka08.protocol.message_format import LOG_APPEND_TIME
from aiokafka08.protocol.record_batch import BatchCodec, RecordBatchBuilder, Stop, open_wrapper
from aiokafka08.protocol.requests.produce import ProducedPartition, ProduceRequest, ProduceResponse
from aiokafka08.protocol.types import Buffer

_log: Final = logging.getLogger("aiokafka08.gateway")

TARGET_VERSION: Final = 3
_TOO_LARGE: Final = errors.MessageSizeTooLargeError.errno
_MAX_PARTS: Final = 1000
_Key = tuple[str, int]
"""A topic and a partition."""
_Stored = Mapping[_Key, ProducedPartition]
_SAME_RESPONSE: Final = 2
"""The response of version 3 has the layout of this version."""


def translate_produce(
    head: RequestHead, frame: memoryview, limits: BatchLimits, budget: Budget
) -> Translation:
    """Translate a request.

    Raises:
        KafkaProtocolError: the request isn't whole. `Translation.respond` also raises it, if the
            response isn't.
        TakesLongError: see `Budget`.
    """
    request = translation.read_body(ProduceRequest, head.version, frame, head.body_at)
    produce = _Produce(head, frame, request, limits)
    for topic in request.topics:
        for part in topic.partitions:
            produce.add((topic.topic, part.partition), part.message_set, budget)
    return produce.first_step(budget)


class _Produce:
    """A request on its way: its batches, and the results so far.

    Args:
        head: the header of the request.
        frame: its frame; nothing of it is kept.
        request: the request.
        limits: the sizes that the target takes.
    """

    def __init__(
        self, head: RequestHead, frame: memoryview, request: ProduceRequest, limits: BatchLimits
    ) -> None:
        self._head = head
        self._header_end = translation.request_end(head, frame)
        self._acks, self._timeout_ms = request.required_acks, request.timeout_ms
        self._in_order: list[_Key] = []
        self._limits = limits
        # True if a partition has several batches, or one that may have to be split: then the
        # client's later requests wait, so that they aren't stored in between
        self._is_exclusive = False
        self._knows_limits = False  # the target was asked for its limits
        # The batches that aren't stored, in order. Without `_is_exclusive`, the lists become empty
        # when the batches are sent.
        self._waiting: dict[_Key, list[bytes]] = {}
        self._sent: dict[_Key, tuple[int, int]] = {}  # bytes and records of the batch that was sent
        # The result of a partition's first batch, and the records stored from all its batches
        self._stored: dict[_Key, tuple[ProducedPartition, int]] = {}
        self._results: dict[_Key, ProducedPartition] = {}  # of the partitions that are done
        self._throttle_ms = 0

    def add(self, key: _Key, message_set: Buffer, budget: Budget) -> None:
        """Add the set of a partition.

        A request may name a partition twice. Its batches are then sent one after the other.
        """
        self._in_order.append(key)
        try:
            batch = batch_of(message_set, budget)
        except (CorruptRecordException, errors.InvalidTimestampError) as error:
            self._end(key, error.errno)
            return
        if batch:
            self._waiting.setdefault(key, []).append(batch)
        else:
            self._results.setdefault(key, ProducedPartition(key[1], errors.NoError.errno, -1))

    def first_step(self, budget: Budget) -> Translation:
        """Return the first step.

        Raises:
            TakesLongError: see `Budget`.
        """
        for key, batches in list(self._waiting.items()):
            accepted, refused = self._limits.of(key[0])
            if all(len(one) <= accepted or record_count(one) == 1 for one in batches):
                self._is_exclusive |= len(batches) > 1
                continue
            self._is_exclusive = True
            if any(len(one) >= refused for one in batches):
                budget.require_thread()
                parts = [self._parts(key[0], one) for one in batches]
                if all(parts):
                    batches[:] = [one for some in parts for one in some]
                else:
                    self._end(key, _TOO_LARGE, ProducedPartition(key[1], _TOO_LARGE, -1))
        failure = self._failure()
        if not self._waiting:
            return self._own_answer(failure)
        step = self._next_step(failure)
        if not step.is_answered:
            # No response will say how many are stored, so count all that are sent.
            budget.messages += sum(count for _, count in self._sent.values())
        return step

    def _failure(self) -> str | None:
        """Return why the connection ends at the first step; None if it goes on."""
        damaged = [key for key, one in self._results.items() if one.error_code]
        if self._acks or not damaged:
            return None
        names = [f"{shorten(topic)}, partition {number}" for topic, number in damaged[:3]]
        return f"acks=0, and damaged or too large messages for topic {', topic '.join(names)}"

    def _next_step(self, failure: str | None = None) -> Translation:
        """Return the step that sends the next batch of each partition."""
        # Only a response from the target shows whether the next batch may be sent.
        acks = 1 if self._is_exclusive and not self._acks else self._acks
        first = {key: batches[0] for key, batches in self._waiting.items()}
        self._sent = {key: (len(batch), record_count(batch)) for key, batch in first.items()}
        sent = by_topic((key[0], {"Index": key[1], "Records": one}) for key, one in first.items())
        topics = [{"Name": one.topic, "PartitionData": one.partitions} for one in sent]
        values = {"TransactionalId": None, "Acks": acks, "TimeoutMs": self._timeout_ms}
        upgraded = {**values, "TopicData": topics}
        if not self._is_exclusive:
            self._waiting = {key: [] for key in self._waiting}  # they needn't stay in memory
        return Translation(
            translation.write_request(self._head.key, TARGET_VERSION, self._header_end, upgraded),
            self._respond,
            expects_response=self._acks != 0,
            is_answered=acks != 0,
            is_exclusive=self._is_exclusive,
            failure=failure,
            kept_items=len(self._in_order),
        )

    def _respond(self, answer: memoryview, budget: Budget) -> list[Buffer] | Translation:
        response = translation.read_body(ProduceResponse, _SAME_RESPONSE, answer, CORRELATION_BYTES)
        stored = by_partition(response.topics)
        if self._is_exclusive and any(one.error_code == _TOO_LARGE for one in stored.values()):
            if not self._knows_limits:
                return self._look_up_limits(stored)
            budget.require_thread()
        self._throttle_ms = max(self._throttle_ms, response.throttle_time_ms)
        return self._noted(stored, budget)

    def _look_up_limits(self, stored: _Stored) -> Translation:
        """Return the step that asks for the limits of the topics that were refused."""

        def respond(answer: memoryview, budget: Budget) -> list[Buffer] | Translation:
            budget.require_thread()
            self._limits.note_configs(answer)
            return self._noted(stored, budget)

        self._knows_limits = True
        topics = {topic for (topic, _), one in stored.items() if one.error_code == _TOO_LARGE}
        asked = batch_limits.ask_limits(sorted(topics), self._header_end)
        return Translation(asked, respond, self._acks != 0)

    def _noted(self, stored: _Stored, budget: Budget) -> list[Buffer] | Translation:
        """Apply the target's results for a batch of each partition; return the next step."""
        for key, batches in list(self._waiting.items()):
            result = stored.get(key)
            if result is None:  # the target left it out, so the client's response does too
                self._waiting.pop(key)
            elif not batches:
                size, count = self._sent[key]
                budget.messages += 0 if result.error_code else count
                if result.error_code == _TOO_LARGE and count > 1:
                    self._limits.note_refused(key[0], size)
                self._end(key, result.error_code, result)
            elif not result.error_code:
                self._limits.note_accepted(key[0], len(batches[0]))
                first, count = self._stored.get(key, (result, 0))
                added = record_count(batches.pop(0))
                self._stored[key] = first, count + added
                budget.messages += added
                if not batches:
                    self._end(key, errors.NoError.errno, first)
            elif result.error_code != _TOO_LARGE or not self._split(key, batches):
                self._end(key, result.error_code, result)
        if self._waiting:
            return self._next_step()
        return self._response(budget) if self._acks else self._ended(budget)

    def _split(self, key: _Key, batches: list[bytes]) -> bool:
        """Split the first batch, which was too large; return False if that doesn't help."""
        topic, batch = key[0], batches[0]
        if record_count(batch) == 1:
            return False
        if len(batch) < self._limits.of(topic).refused:  # else the refused size is known
            self._limits.note_refused(topic, len(batch))
        parts = self._parts(topic, batch)
        batches[:1] = parts or [batch]
        return bool(parts)

    def _parts(self, topic: str, batch: bytes) -> list[bytes]:
        """Return a batch in parts that the target may take; an empty list if it can't be split."""
        limit = self._limits.of(topic)
        if len(batch) < limit.refused:
            return [batch]
        # The target doesn't take the batch, so split it into parts of about this size.
        parts = batch_limits.split_batch(batch, max(limit.accepted, limit.refused // 2))
        too_large = any(len(one) >= limit.refused for one in parts)
        return [] if too_large or len(parts) > _MAX_PARTS else parts

    def _end(self, key: _Key, code: int, result: ProducedPartition | None = None) -> None:
        """Note the result of a partition; the first error stays.

        Without a `result` of the target, the partition's other batches are still sent.
        """
        left = self._waiting.pop(key, None) if result is not None else None
        known = self._results.get(key)
        if known is not None and known.error_code:
            return
        if code and key in self._stored:
            (first, count), lost = self._stored[key], sum(map(record_count, left or ()))
            _log.warning(
                "client id %s: topic %r, partition %d: error %d in the middle of a set that the "
                "target takes in parts: %d messages are stored, from offset %d on; %d aren't",
                shorten(self._head.client_id), *key, code, count, first.offset, lost,
            )  # fmt: skip
        code = old_code(self._head.key, self._head.version, code)
        offset, timestamp = (-1, -1) if result is None else (result.offset, result.timestamp)
        if self._head.version < _SAME_RESPONSE:
            timestamp = -1
        self._results[key] = ProducedPartition(key[1], code, offset, timestamp)

    def _response(self, budget: Budget) -> list[Buffer]:
        budget.errors += sum(bool(one.error_code) for one in self._results.values())
        in_order = [(key[0], self._results[key]) for key in self._in_order if key in self._results]
        throttle_ms = self._throttle_ms if self._head.version else 0
        response = ProduceResponse(by_topic(in_order), throttle_ms)
        return translation.write_response(self._head, response)

    def _ended(self, budget: Budget) -> Translation:
        """Return the last step of a request with acks=0 that the target got with acks=1."""
        failed = {key: one.error_code for key, one in self._results.items() if one.error_code}
        budget.errors += len(failed)
        return self._own_answer(f"acks=0, and errors {failed}" if failed else None)

    def _own_answer(self, failure: str | None) -> Translation:
        """Return a step that answers the client without another request to the target."""
        expects = self._acks != 0
        return Translation(None, lambda _, budget: self._response(budget), expects, failure=failure)


def batch_of(message_set: Buffer, budget: Budget) -> bytes:
    """Return the record batch of a set; b"" if it has no whole message.

    Brokers up to 3.9 refuse a set with several wrappers, with wrappers beside plain messages, or
    with both formats. Here such a set becomes one batch too. A cut-off message at the end is left
    out, as in those brokers.

    Raises:
        CorruptRecordException: a message is damaged, or wrappers hold more than `budget` allows.
        InvalidTimestampError: a message says that its timestamp is the broker's.
        TakesLongError: see `Budget`.
    """
    data = memoryview(message_set).cast("B").toreadonly()  # so it is read without the GIL
    builder = RecordBatchBuilder()
    attributes = 0
    pos, stop = builder.extend_from_messages(data)
    while stop is Stop.WRAPPER:
        try:
            wrapper = open_wrapper(data, pos, max_decompressed_bytes=budget.left_bytes)
        except CorruptRecordException as error:
            budget.exceeds(error)
            raise
        budget.use(len(wrapper.messages))
        corrupt = f"corrupt wrapper, offset {wrapper.offset}"
        if wrapper.magic:
            attributes |= wrapper.attributes
        if not builder.codec:  # the first wrapper: its codec also compresses what came before
            builder = RecordBatchBuilder(BatchCodec(wrapper.codec))
            builder.extend_from_messages(data)
        before = len(builder)
        inner_pos, inner_stop = builder.extend_from_messages(wrapper.messages)
        if inner_stop is not Stop.END or inner_pos < len(wrapper.messages):
            raise CorruptRecordException(f"{corrupt}: expected whole messages, no wrapper")
        if len(builder) == before:
            raise CorruptRecordException(f"{corrupt}: it is empty")
        pos, stop = builder.extend_from_messages(data, wrapper.stop)
    if (attributes | builder.seen_attributes) & LOG_APPEND_TIME:
        raise errors.InvalidTimestampError
    return builder.build()
