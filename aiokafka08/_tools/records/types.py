"""The interfaces of record encoders and decoders, and the messages to produce (`InputMessages`).

Invariant: a wrong message of the input doesn't hide the messages before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from aiokafka08.embedded_headers import Headers
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import ConsumerRecord

T = TypeVar("T")

BytesRecord = ConsumerRecord[bytes, bytes]

# Returns a record as it is shown; None if it isn't wanted.
Pick = Callable[[BytesRecord], Awaitable[BytesRecord | None]]

# Turns the bytes of a key or value into text, or raises ValueError.
TextDecoder = Callable[[bytes], str]


class RecordFormatError(KafkaError):
    """A message of the input isn't in the format, or a record can't be shown in it."""


class RecordEncoder(Protocol):
    """Turns records that were read into the bytes of the output."""

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """Return the output for records of one partition.

        Raises:
            RecordFormatError: a record can't be shown in this format; the text names its offset.
        """


@runtime_checkable
class ColumnsEncoder(Protocol):
    """An encoder that doesn't need an object for each record."""

    def encode_columns(self, columns: Columns) -> bytes:
        """Return the output of `encode` for the same records."""


class RecordDecoder(Protocol):
    """Turns the blocks of the input into messages to produce."""

    def decode(self, block: bytes) -> InputMessages:
        """Return the messages that a block completes, up to the first wrong one.

        Raises:
            RecordFormatError: a message that began in an earlier block is too long.
        """

    def finish(self) -> InputMessages:
        """Return the messages at the end of the input. Raises as `decode`."""


@dataclass(slots=True)
class InputMessages:
    """Messages to produce, column by column; a column has as many items as `values`."""

    values: Sequence[bytes | None]
    # None if no message has a key.
    keys: Sequence[bytes | None] | None = None
    # None if the messages name no partitions.
    partitions: Sequence[int] | None = None
    # None if the messages have no timestamps.
    timestamps_ms: Sequence[int | None] | None = None
    # None if no message has any.
    headers: Sequence[Headers | None] | None = None
    # The error of the message after these; its text names that message. None: there is no error.
    error: RecordFormatError | None = None

    def __len__(self) -> int:
        return len(self.values)

    def select(self, indices: Sequence[int]) -> InputMessages:
        """Return the messages with these indices, without the error."""

        def pick(column: Sequence[T] | None) -> list[T] | None:
            return None if column is None else [column[index] for index in indices]

        return InputMessages(
            [self.values[index] for index in indices],
            pick(self.keys),
            pick(self.partitions),
            pick(self.timestamps_ms),
            pick(self.headers),
        )
