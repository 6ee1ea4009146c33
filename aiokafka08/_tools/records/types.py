"""What the record formats have in common: the two directions as protocols, and messages to produce.

`json_lines`, `raw`, `template` and `files` implement them; `_tools.cli.moving.consuming` calls
encoders, `_tools.cli.moving.producing` decoders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from aiokafka08.embedded_headers import Headers
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import ConsumerRecord

T = TypeVar("T")

BytesRecord = ConsumerRecord[bytes, bytes]

TextDecoder = Callable[[bytes], str]
"""Turns the bytes of a key or value into text, or raises ValueError."""


class RecordFormatError(KafkaError):
    """A message of the input isn't in the format, or a record can't be shown in it."""


class RecordEncoder(Protocol):
    """Turns records that were read into the bytes of the output."""

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """Return the output for records of one partition.

        Raises:
            RecordFormatError: a record can't be shown in this format; names its offset.
        """


@runtime_checkable
class ColumnsEncoder(Protocol):
    """An encoder that doesn't need an object for each record."""

    def encode_columns(self, columns: Columns) -> bytes:
        """Return what `encode` returns for the same records."""


class RecordDecoder(Protocol):
    """Turns the blocks of the input into messages to produce."""

    def decode(self, block: bytes) -> InputMessages:
        """Return the messages that a block completes, up to the first wrong one.

        Raises:
            RecordFormatError: a message before this block is too long.
        """

    def finish(self) -> InputMessages:
        """Return what is left at the end of the input. Raises as `decode`."""


@dataclass(slots=True)
class InputMessages:
    """Messages to produce, column by column."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    """As many as values; None if no message has a key."""
    partitions: Sequence[int] | None = None
    """As many as values; None if the messages name no partitions."""
    timestamps_ms: Sequence[int | None] | None = None
    """As many as values; None if the messages have no timestamps."""
    headers: Sequence[Headers | None] | None = None
    """As many as values; None if no message has any."""
    error: RecordFormatError | None = None
    """What is wrong with the message after these, which is named in the text; None: nothing."""

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
