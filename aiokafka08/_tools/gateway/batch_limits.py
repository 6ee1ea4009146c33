"""Learn how large a record batch the target takes, by topic, and split batches to that size.

Old brokers measure each message, brokers of today the whole batch (`max.message.bytes`). So a set
that an old broker takes may be too large as one batch. `old_produce` sends such a set as several.

The limit of a topic comes from its configuration, if the target lets the gateway read that, else
from the batches that the target accepts and refuses.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aiokafka08._core.concurrency.remembered import Remembered
from aiokafka08._tools.gateway.translation import ask_config, read_config
from aiokafka08.protocol import record_batch
from aiokafka08.protocol.batch_format import HEADER
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka08.protocol.record_batch import BatchCodec, BatchHeader, RecordBatchBuilder
from aiokafka08.protocol.types import Buffer

_TOPIC: Final = 2
_NAME: Final = "max.message.bytes"

_SURE_BYTES: Final = 16 << 10
"""A batch up to this size is expected to be small enough for any topic."""
_KNOWN_S: Final = 300.0
"""How long a limit counts as known; after this time it is requested again."""
_RECORD_BYTES: Final = 32
"""Upper bound of a record's size without key and value."""


class BatchLimit(NamedTuple):
    """The sizes that a topic is known to accept and to refuse.

    Attributes:
        accepted: up to this size the target is expected to take batches.
        refused: from this size on it takes none.
    """

    accepted: int = _SURE_BYTES
    refused: int = 1 << 31


_UNKNOWN: Final = BatchLimit()


class BatchLimits(Remembered[str, BatchLimit]):
    """The known limits of topics; shared by all connections of a gateway."""

    def __init__(self) -> None:
        super().__init__(_KNOWN_S)

    def of(self, topic: str) -> BatchLimit:
        """Return the known limits of a topic."""
        return self.get(topic) or _UNKNOWN

    def note_accepted(self, topic: str, size_bytes: int) -> None:
        """Note that a batch was taken."""
        known = self.of(topic)
        if size_bytes > known.accepted:
            self.note(topic, BatchLimit(size_bytes, max(known.refused, size_bytes + 1)))

    def note_refused(self, topic: str, size_bytes: int) -> None:
        """Note that a batch was too large."""
        self.note(topic, BatchLimit(min(self.of(topic).accepted, size_bytes - 1), size_bytes))

    def note_configs(self, answer: Buffer) -> None:
        """Note the response to `ask_limits`.

        Raises:
            KafkaProtocolError: it isn't such a response.
        """
        for topic, value in read_config(answer, _NAME).items():
            if value.isdecimal():
                # The setting may be any number, but a size in a frame has 32 bits.
                limit = min(int(value[:10]), (1 << 31) - 2)
                self.note(topic, BatchLimit(limit, limit + 1))


def ask_limits(topics: list[str], header_end: bytes) -> list[Buffer]:
    """Return the request for the limits of topics."""
    return ask_config(header_end, _TOPIC, topics, _NAME)


def record_count(batch: Buffer) -> int:
    """Return how many records a batch of `RecordBatchBuilder` has."""
    return int(HEADER.unpack_from(batch)[-1])


def split_batch(batch: bytes, limit_bytes: int) -> list[bytes]:
    """Split a batch that the gateway has made; return the parts, in order. It may take long.

    A part is larger than the limit only if it has a single record.
    """
    (header,) = record_batch.parts_of(batch)
    assert isinstance(header, BatchHeader)
    # No batch reaches `most`, because its messages came uncompressed in a request of limited size,
    # or were decompressed within the limit of `translation.Budget`.
    most = 2 * DEFAULT_MAX_DECOMPRESSED_BYTES
    plain = record_batch.plain_records(batch, header, max_decompressed_bytes=most)
    # Expect the parts to compress as well as the batch; if one doesn't, split again, smaller.
    room = max(limit_bytes, len(plain) * limit_bytes // len(batch)) if header.codec else limit_bytes
    while True:
        pieces = _pieces(header, plain, room)
        fit = all(len(one) <= limit_bytes or record_count(one) == 1 for one in pieces)
        if fit or room <= _RECORD_BYTES:
            return pieces
        room //= 2


def _pieces(header: BatchHeader, plain: Buffer, room: int) -> list[bytes]:
    """Return batches that have about `room` bytes before compression."""
    pieces = []
    codec = BatchCodec(header.codec)
    builder = RecordBatchBuilder(codec)
    for _, timestamp_ms, key, value, _ in record_batch.read_records(header, plain):
        size = _RECORD_BYTES + len(key or b"") + len(value or b"")
        if len(builder) and builder.size_bytes + size > room:
            pieces.append(builder.build())
            builder = RecordBatchBuilder(codec)
        builder.append(key, value, timestamp_ms)
    pieces.append(builder.build())
    return pieces
