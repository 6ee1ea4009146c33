"""The formats `raw`, `hex` and `base64`: values, and keys if wanted, between delimiters. Pure.

Invariant: encoder and decoder of the same options are inverse to each other for messages that
have no null and contain no delimiter (`hex` and `base64` contain none). Null is written as
`null_text`, which no decoder reads as null; without `null_text` it is written like an empty value.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

from aiokafka08._tools.records.delimiters import DelimitedStream
from aiokafka08._tools.records.types import (
    BytesRecord,
    InputMessages,
    RecordEncoder,
    RecordFormatError,
    TextDecoder,
)
from aiokafka08._wording import partition_text, shorten
from aiokafka08.protocol.message_set import Columns


def _identity(data: bytes) -> bytes:
    return data


def _hex(data: bytes) -> bytes:
    return data.hex().encode()


@dataclass(frozen=True, slots=True)
class ByteCoding:
    """How the bytes of keys and values are written."""

    name: str
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]


def _from_hex(data: bytes) -> bytes:
    return bytes.fromhex(data.decode("ascii"))


def _from_base64(data: bytes) -> bytes:
    return base64.b64decode(data, validate=True)


CODINGS: Final = {
    coding.name: coding
    for coding in (
        ByteCoding("raw", _identity, _identity),
        ByteCoding("hex", _hex, _from_hex),
        ByteCoding("base64", base64.b64encode, _from_base64),
    )
}
RAW: Final = CODINGS["raw"]


@dataclass(frozen=True, slots=True)
class RawLayout:
    """The shape of the input or output."""

    # Ends each message; in the input it separates them.
    delimiter: bytes = b"\n"
    # Between key and value; None: values only.
    key_delimiter: bytes | None = None
    coding: ByteCoding = RAW
    # Written for null; None: null is written as nothing.
    null_text: bytes | None = None
    # kcat: write `null_text` for empty keys and values too.
    empty_is_null: bool = False


def raw_encoder(
    layout: RawLayout, key: TextDecoder | None = None, value: TextDecoder | None = None
) -> RecordEncoder:
    """Return the encoder of a layout; the arguments are those of `RawEncoder`."""
    if layout.coding is RAW and key is None and value is None and not layout.empty_is_null:
        return PlainEncoder(layout)
    return RawEncoder(layout, key, value)


class RawEncoder:
    """Write values, and keys if there is a key delimiter.

    Args:
        layout: the shape of the output.
        key: turns keys into text, in place of the coding (default None).
        value: turns values into text, in place of the coding (default None).
    """

    def __init__(
        self, layout: RawLayout, key: TextDecoder | None = None, value: TextDecoder | None = None
    ) -> None:
        self._layout = layout
        self._key = field_writer(layout, "key", key)
        self._value = field_writer(layout, "value", value)

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """See `RecordEncoder`."""
        key_delimiter, end = self._layout.key_delimiter, self._layout.delimiter
        if key_delimiter is None:
            return b"".join([self._value(record) + end for record in records])
        parts: list[bytes] = []
        for record in records:
            parts += (self._key(record), key_delimiter, self._value(record), end)
        return b"".join(parts)


class PlainEncoder(RawEncoder):
    """A `RawEncoder` of unchanged bytes. It also encodes columns, without making objects."""

    def encode_columns(self, columns: Columns) -> bytes:
        """See `ColumnsEncoder`."""
        layout = self._layout
        return columns.delimited(layout.delimiter, layout.null_text or b"", layout.key_delimiter)


def field_writer(
    layout: RawLayout, name: str, deserializer: TextDecoder | None
) -> Callable[[BytesRecord], bytes]:
    """Return the function that writes the key or the value (`name`) of a record.

    It raises RecordFormatError if the deserializer refuses the bytes; the text names the record.
    """
    is_key = name == "key"
    null = layout.null_text or b""
    encode = layout.coding.encode

    def write(record: BytesRecord) -> bytes:
        data = record.key if is_key else record.value
        if data is None or (layout.empty_is_null and not data):
            return null
        if deserializer is None:
            return encode(data)
        try:
            return deserializer(data).encode(errors="surrogateescape")
        except ValueError as error:
            raise RecordFormatError(f"{where(record)}: {name}: {error}") from error

    return write


def where(record: BytesRecord) -> str:
    """Return the place of a record, for an error."""
    return f"{partition_text(record)}, offset {record.offset}"


@dataclass(frozen=True, slots=True)
class RawInput:
    """How the input is read, besides its `RawLayout`.

    Attributes:
        empty_to_null: An empty value, and an empty key before a key delimiter, become null.
        is_kcat: Leave out messages without any byte.
        max_bytes: A longer message is an error.
    """

    empty_to_null: bool = False
    is_kcat: bool = False
    max_bytes: int = 1048576


class RawDecoder:
    """Cut the input into messages, and each message into key and value."""

    def __init__(self, layout: RawLayout, options: RawInput) -> None:
        self._layout = layout
        self._options = options
        factor = {"raw": 1, "hex": 2, "base64": 2}[layout.coding.name]
        self._stream = DelimitedStream(layout.delimiter, options.max_bytes * factor)
        self._count = 0
        # If the bytes stay as they are, `decode` needs no object for each message.
        self._is_plain = (
            layout.coding is RAW
            and layout.key_delimiter is None
            and len(layout.delimiter) == 1
            and not options.empty_to_null
        )

    def decode(self, block: bytes) -> InputMessages:
        """See `RecordDecoder`."""
        if self._is_plain:
            skip_empty = self._options.is_kcat
            return InputMessages(self._stream.feed_column(block, skip_empty=skip_empty))
        return self._messages(self._stream.feed(block))

    def finish(self) -> InputMessages:
        """See `RecordDecoder`."""
        return self._messages(self._stream.finish())

    def _messages(self, texts: list[bytes]) -> InputMessages:
        layout, options = self._layout, self._options
        first, self._count = self._count + 1, self._count + len(texts)
        if options.is_kcat:
            texts = [text for text in texts if text]
        keys: list[bytes | None] | None = None
        values: list[bytes | None] = texts  # type: ignore[assignment]
        if layout.key_delimiter is not None:
            keys, values = [], []
            for text in texts:
                key, delimiter, value = text.partition(layout.key_delimiter)
                keys.append(key if delimiter else None)
                values.append(value if delimiter else text)
        messages = InputMessages(values, keys)
        if layout.coding is not RAW:
            messages = self._decoded(messages, first)
        if options.empty_to_null:
            messages.values = [value or None for value in messages.values]
            if messages.keys is not None:
                messages.keys = [key or None for key in messages.keys]
        return messages

    def _decoded(self, messages: InputMessages, first: int) -> InputMessages:
        """Decode the messages up to the first that isn't in the coding."""
        decoded: list[tuple[bytes | None, bytes | None]] = []
        error: RecordFormatError | None = None
        keys = messages.keys
        texts = zip(repeat(None) if keys is None else keys, messages.values)  # noqa: B905
        try:
            for number, (key, value) in enumerate(texts, first):
                decoded.append((self._decode(key, number), self._decode(value, number)))
        except RecordFormatError as wrong:
            error = wrong
        return InputMessages(
            [value for _, value in decoded],
            None if keys is None else [key for key, _ in decoded],
            error=error,
        )

    def _decode(self, text: bytes | None, number: int) -> bytes | None:
        coding = self._layout.coding
        try:
            return None if text is None else coding.decode(text)
        except ValueError:
            raise RecordFormatError(
                f"message {number} of the input: {shorten(text)}; expected {coding.name}"
            ) from None


def with_fixed_key(messages: InputMessages, key: bytes) -> InputMessages:
    """Return the messages with a key for those that have none."""
    if messages.keys is None:
        return replace(messages, keys=list(repeat(key, len(messages))))
    return replace(
        messages, keys=[key if own_key is None else own_key for own_key in messages.keys]
    )
