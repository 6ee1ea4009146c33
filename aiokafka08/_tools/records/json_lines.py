"""The format `jsonl`, one JSON object a line; and kcat's JSON envelope, which is only written.
Pure.

Invariants: each line is valid JSON in UTF-8, whatever the bytes; a key or value that is written and
read again has the same bytes, and null isn't empty. The fields of a line are fixed, for scripts.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from aiokafka08._tools.records.delimiters import DelimitedStream
from aiokafka08._tools.records.raw import where
from aiokafka08._tools.records.types import (
    BytesRecord,
    InputMessages,
    RecordFormatError,
    TextDecoder,
)
from aiokafka08._wording import shorten
from aiokafka08.embedded_headers import Headers

# The fields of a line, in their order. `timestamp` is in milliseconds or null, `timestamp_type` 0
# (CreateTime), 1 (LogAppendTime) or null. `key` and `value` are a string, null, or `{"base64":
# "…"}` for bytes that aren't UTF-8; `headers`, only with embedded headers, are pairs of a name and
# such a value.
FIELDS: Final = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
)

# A control character takes six characters in JSON.
_JSON_BYTES_FACTOR: Final = 6
# The most bytes of a line besides its key and value.
_LINE_BYTES: Final = 4096

# Turns a key or value into JSON.
JsonField = Callable[[bytes | None], str]


def json_of_bytes(data: bytes | None) -> str:
    """Return null, a JSON string, or an object with the bytes in base64."""
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64": "{b64encode(data).decode()}"}}'


def field_of(deserializer: TextDecoder | None, *, is_json: bool = False) -> JsonField:
    """Return the function that turns a key or value into JSON.

    Args:
        deserializer: turns the bytes into text; None: the bytes stay as they are.
        is_json: the text of the deserializer is JSON already.
    """
    if deserializer is None:
        return json_of_bytes
    as_text = deserializer
    if is_json:
        return lambda data: "null" if data is None else as_text(data)

    def as_string(data: bytes | None) -> str:
        if data is None:
            return "null"
        return json_of_bytes(as_text(data).encode(errors="surrogateescape"))

    return as_string


class JsonLinesEncoder:
    """Write each record as one line.

    Args:
        key: turns keys into JSON (default `json_of_bytes`).
        value: turns values into JSON (default `json_of_bytes`).
        headers: write the field `headers` (default False).
    """

    def __init__(
        self,
        key: JsonField = json_of_bytes,
        value: JsonField = json_of_bytes,
        *,
        headers: bool = False,
    ) -> None:
        self._key = key
        self._value = value
        self._headers = headers

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """See `RecordEncoder`."""
        if not records:
            return b""
        first, of_key, of_value = records[0], self._key, self._value
        head = f'{{"topic": {encode_basestring(first.topic)}, "partition": {first.partition}, '
        lines = []
        try:
            for record in records:
                timestamp, kind = record.timestamp, record.timestamp_type
                if timestamp is not None and timestamp < 0:  # format 1 without a timestamp
                    timestamp = kind = None
                lines.append(
                    f'{head}"offset": {record.offset}, '
                    f'"timestamp": {"null" if timestamp is None else timestamp}, '
                    f'"timestamp_type": {"null" if kind is None else kind}, '
                    f'"key": {of_key(record.key)}, "value": {of_value(record.value)}'
                    f"{_headers_field(record) if self._headers else ''}}}\n"
                )
        except ValueError as error:
            raise RecordFormatError(f"{where(record)}: {error}") from error
        return "".join(lines).encode()


def _headers_field(record: BytesRecord) -> str:
    pairs = (
        f"[{encode_basestring(name)}, {json_of_bytes(value)}]" for name, value in record.headers
    )
    return f', "headers": [{", ".join(pairs)}]'


# --- kcat's envelope ------------------------------------------------------------------------------

_YAJL: Final = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
}
_TIMESTAMP_TYPES: Final = {0: "create", 1: "logappend"}


def yajl_string(text: str) -> str:
    """Return a JSON string with the escapes of yajl, which kcat uses."""
    return f'"{text.translate(_YAJL)}"'


def envelope_field(name: str, to_json: TextDecoder | None) -> JsonField:
    """Return the function that writes `"key":…` or `"payload":…` as kcat does.

    Args:
        name: "key" or "payload".
        to_json: turns the bytes into JSON; None: they are a string.
    """

    def write(data: bytes | None) -> str:
        if data is None:
            return f'"{name}":null'
        if to_json is not None:
            try:
                return f'"{name}":{to_json(data)}'
            # The reason is in a field of its own.
            except ValueError as error:
                return f'"{name}":null,"{name}_error":{yajl_string(str(error))}'
        try:
            return f'"{name}":{yajl_string(data.decode())}'
        # kcat writes invalid JSON here.
        except UnicodeDecodeError:
            return f'"{name}":{{"base64":"{b64encode(data).decode()}"}}'

    return write


class EnvelopeEncoder:
    """Write each record as the object that `kcat -J` writes.

    Args:
        broker_of: returns the leader of a partition, -1 if it isn't known.
        end: written after each object.
        key, value: write keys and values, see `envelope_field`.
    """

    def __init__(
        self, broker_of: Callable[[str, int], int], end: str, key: JsonField, value: JsonField
    ) -> None:
        self._broker_of = broker_of
        self._end = end
        self._key = key
        self._value = value

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """See `RecordEncoder`."""
        if not records:
            return b""
        topic, partition = records[0].topic, records[0].partition
        head = f'{{"topic":{yajl_string(topic)},"partition":{partition},"offset":'
        broker = f'"broker":{self._broker_of(topic, partition)},'
        return "".join(
            f"{head}{record.offset},{_timestamp_fields(record)}{broker}{_kcat_headers(record)}"
            f"{self._key(record.key)},{self._value(record.value)}}}{self._end}"
            for record in records
        ).encode(errors="surrogateescape")


def _timestamp_fields(record: BytesRecord) -> str:
    if record.timestamp is None:
        return ""
    kind = _TIMESTAMP_TYPES.get(record.timestamp_type or 0, "unknown")
    return f'"tstype":"{kind}","ts":{record.timestamp},'


def _kcat_headers(record: BytesRecord) -> str:
    """Return the field `headers` as kcat writes it: names and values in turn; "" without
    headers.
    """
    if not record.headers:
        return ""
    fields = (
        f"{yajl_string(name)},{yajl_string(value.decode(errors='surrogateescape'))}"
        for name, value in record.headers
    )
    return f'"headers":[{",".join(fields)}],'


# --- reading --------------------------------------------------------------------------------------


class _InputMessage(NamedTuple):
    key: bytes | None
    value: bytes | None
    partition: int
    timestamp_ms: int | None
    headers: Headers | None


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} is given twice")
    return fields


_PARSER: Final = json.JSONDecoder(object_pairs_hook=_unique_fields)


class JsonLinesDecoder:
    """Read messages from lines as `JsonLinesEncoder` writes them.

    A line needs `value`; `key` may be missing, for null. Blank lines are skipped.

    Args:
        keep_partition: use the field `partition`, which each line then needs.
        keep_timestamp: use the field `timestamp`.
        max_bytes: the limit for the size of a message.
    """

    def __init__(self, *, keep_partition: bool, keep_timestamp: bool, max_bytes: int) -> None:
        self._keep_partition = keep_partition
        self._keep_timestamp = keep_timestamp
        self._stream = DelimitedStream(b"\n", max_bytes * _JSON_BYTES_FACTOR + _LINE_BYTES)
        self._line = 0

    def decode(self, block: bytes) -> InputMessages:
        """See `RecordDecoder`."""
        return self._messages(self._stream.feed(block))

    def finish(self) -> InputMessages:
        """See `RecordDecoder`."""
        return self._messages(self._stream.finish())

    def _messages(self, lines: Sequence[bytes]) -> InputMessages:
        messages: list[_InputMessage] = []
        error: RecordFormatError | None = None
        try:
            for line in lines:
                self._line += 1
                if line and not line.isspace():
                    messages.append(self._message(line))
        # The messages of the lines before the wrong one are still produced.
        except RecordFormatError as wrong:
            error = wrong
        keys = [message.key for message in messages]
        timestamps = [message.timestamp_ms for message in messages]
        return InputMessages(
            [message.value for message in messages],
            keys if any(key is not None for key in keys) else None,
            [message.partition for message in messages] if self._keep_partition else None,
            timestamps if any(timestamp is not None for timestamp in timestamps) else None,
            [message.headers for message in messages]
            if any(message.headers for message in messages)
            else None,
            error,
        )

    def _message(self, line: bytes) -> _InputMessage:
        if self._line == 1:
            line = line.removeprefix(BOM_UTF8)
        fields = self._parse(line)
        value = self._bytes(line, "value", fields["value"])
        key = self._bytes(line, "key", fields.get("key"))
        partition: Any = 0
        timestamp: Any = None
        if self._keep_partition:
            partition = fields.get("partition")
            if type(partition) is not int or not 0 <= partition < 2**31:
                raise self._wrong(line, f"partition {shorten(partition)}", "an integer >= 0")
        if self._keep_timestamp:
            timestamp = fields.get("timestamp")
            if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp < 2**63):
                raise self._wrong(line, f"timestamp {shorten(timestamp)}", "milliseconds or null")
        return _InputMessage(key, value, partition, timestamp, self._headers(line, fields))

    def _headers(self, line: bytes, fields: dict[str, Any]) -> Headers | None:
        headers = fields.get("headers")
        if headers is None:
            return None
        if not isinstance(headers, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
            for pair in headers
        ):
            raise self._wrong(
                line, f"headers {shorten(headers)}", "a list of pairs of name and value"
            )
        return [(name, self._bytes(line, "headers", value)) for name, value in headers]

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            fields = _PARSER.decode(line.decode())
        except (ValueError, RecursionError) as error:
            raise self._wrong(line, str(error), "a JSON object") from None
        if not isinstance(fields, dict):
            raise self._wrong(line, type(fields).__name__, "a JSON object")
        if "value" not in fields:
            raise self._wrong(line, "no field 'value'", "the fields of consume --format jsonl")
        for name in fields:
            if name not in FIELDS:
                raise self._wrong(line, f"field {shorten(name)}", f"one of {', '.join(FIELDS)}")
        return fields

    def _bytes(self, line: bytes, name: str, value: object) -> bytes | None:
        if value is None:
            return None
        try:
            if isinstance(value, str):
                return value.encode()
            if isinstance(value, dict) and value.keys() == {"base64"}:
                return b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            pass
        raise self._wrong(line, f"{name} {shorten(value)}", 'a string, null or {"base64": "..."}')

    def _wrong(self, line: bytes, problem: str, expected: str) -> RecordFormatError:
        text = f"line {self._line} of the input: {problem}; expected {expected}"
        return RecordFormatError(f"{text} ({shorten(line)})")
