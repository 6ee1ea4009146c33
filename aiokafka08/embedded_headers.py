"""Headers inside the value of a message: Spring Cloud Stream's envelope (`embeddedHeaders`).

Message formats 0 and 1 have no headers. Spring services that run on brokers below 0.11 put them
before the payload, in an envelope that `EmbeddedHeaderUtils` of spring-cloud-stream writes:

    0xff, number of headers (1 byte), for each header: length of the name (1 byte), name (UTF-8),
    length of the value (4 bytes, signed, big-endian), value (JSON, UTF-8); then the payload

Invariants: `extract` returns or raises EmbeddedHeadersError, whatever the bytes; each length is
checked before it is used. What `embed` has written is always read back unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal

from aiokafka08._wording import partition_text, shorten
from aiokafka08.errors import EmbeddedHeadersError, IllegalArgumentError
from aiokafka08.structs import TopicPartition

HeadersMode = Literal["refuse", "drop", "embedded"]
Headers = Sequence[tuple[str, bytes | None]]

HEADERS_VARIABLE: Final = "AIOKAFKA08_HEADERS"
"""The environment variable with the default of the option `headers`."""

MARK: Final = 0xFF
"""The first byte of an envelope."""

_MODES: Final = ("refuse", "drop", "embedded")
_ESCAPE: Final = bytes((MARK, 0))  # an envelope without headers
MAX_HEADERS: Final = 255
"""How many headers an envelope can have."""
_MAX_NAME_BYTES: Final = 255


def headers_mode(given: object, environ: Mapping[str, str] | None = None) -> HeadersMode:
    """Return the mode: `given`, else that of `AIOKAFKA08_HEADERS`, else "refuse".

    Raises IllegalArgumentError if it is no mode; the text names the option or the variable.
    """
    name = "headers"
    if given is None:
        name = HEADERS_VARIABLE
        given = (os.environ if environ is None else environ).get(name) or "refuse"
    if given not in _MODES:
        raise IllegalArgumentError(f"{name}={given!r}: expected one of {', '.join(_MODES)}")
    return given


def embed(value: bytes | None, headers: Headers | None) -> bytes | None:
    """Return the value with its headers in an envelope; a null value loses them.

    Raises:
        TypeError: `headers` isn't a list of pairs (str, bytes or None).
        IllegalArgumentError: the envelope can't have these headers; the text says why.
    """
    # An envelope would undo a deletion in a compacted topic. So a null value has no headers.
    if value is None:
        return None
    if not headers:
        # A value that begins with the mark would be read as an envelope, so it gets an empty one.
        return _ESCAPE + value if value[:1] == b"\xff" else value
    count = 0
    parts: list[bytes] = []
    for header in headers:
        name, text = _encode(header)
        # Spring leaves out a header whose value is null.
        if text is not None:
            count += 1
            parts += (len(name).to_bytes(1), name, len(text).to_bytes(4), text)
    if count > MAX_HEADERS:
        raise IllegalArgumentError(
            f"headers: {count} headers; expected at most {MAX_HEADERS} in an envelope"
        )
    return b"".join((bytes((MARK, count)), *parts, value))


@cache
def _json_encoder() -> Callable[[str], str]:
    import json  # here, since few programs use headers

    return json.JSONEncoder(ensure_ascii=False).encode


def _encode(header: Any) -> tuple[bytes, bytes | None]:
    if not (isinstance(header, list | tuple) and len(header) == 2 and isinstance(header[0], str)):
        raise TypeError(f"headers: {header!r}; expected pairs of a name (str) and a value (bytes)")
    name, value = header
    if value is not None and not isinstance(value, bytes):
        raise TypeError(
            f"headers: the value of {name!r} is {type(value).__name__}; expected bytes or None"
        )
    try:
        encoded = name.encode()
        text = None if value is None else _json_encoder()(value.decode()).encode()
    except UnicodeError:
        raise IllegalArgumentError(
            f"headers: name or value of {name!r} isn't text in UTF-8, and the envelope has JSON. "
            "Encode the value, for example with base64"
        ) from None
    if len(encoded) > _MAX_NAME_BYTES:
        raise IllegalArgumentError(
            f"headers: the name {shorten(name)} takes {len(encoded)} bytes; expected at most "
            f"{_MAX_NAME_BYTES}"
        )
    return encoded, text


def extract(value: bytes) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Return the payload and the headers of a value; without an envelope the value itself.

    Raises EmbeddedHeadersError if the value begins with 0xff, but is no whole envelope.
    """
    if value[:1] != b"\xff":
        return value, ()
    if len(value) < len(_ESCAPE):
        raise EmbeddedHeadersError("the envelope of headers has no number of headers")
    count, position = value[1], 2
    headers = []
    for number in range(1, count + 1):
        where = f"header {number} of {count} in the envelope"
        name_size = int.from_bytes(_take(value, position, 1, where))
        name = _take(value, position + 1, name_size, where)
        position += 1 + name_size
        size = int.from_bytes(_take(value, position, 4, where), signed=True)
        text = _take(value, position + 4, size, where)
        position += 4 + size
        try:
            header = name.decode(), _decode(text)
        except (ValueError, RecursionError) as error:
            raise EmbeddedHeadersError(
                f"{where}: name or value is malformed ({type(error).__name__}); expected a name in "
                "UTF-8 and a value in JSON"
            ) from None
        if header[1] is not None:
            headers.append((header[0], header[1]))
    return value[position:], tuple(headers)


def locate(error: EmbeddedHeadersError, tp: TopicPartition, offset: int) -> EmbeddedHeadersError:
    """Return the error of `extract` with the partition and the offset of the message."""
    return EmbeddedHeadersError(
        f"{partition_text(tp)}, offset {offset}: the value begins with "
        f"0xff, but isn't a whole envelope: {error.text}. seek() to {offset + 1} to skip the "
        "message, or read values as they are with headers='refuse'",
        partition=tp,
        offset=offset,
        next_offset=offset + 1,
    )


def _take(value: bytes, position: int, size: int, where: str) -> bytes:
    left = len(value) - position
    if not 0 <= size <= left:
        raise EmbeddedHeadersError(f"{where}: a field of {size} bytes, {max(left, 0)} are left")
    return value[position : position + size]


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity aren't JSON


@cache
def _json_decoder() -> Callable[[str], Any]:
    import json

    # `bool` replaces the conversion of numbers, which takes quadratic time for long ones. `_decode`
    # returns the text of a number, so the result doesn't matter.
    return json.JSONDecoder(
        parse_float=bool, parse_int=bool, parse_constant=_refuse_constant
    ).decode


def _decode(text: bytes) -> bytes | None:
    parsed = _json_decoder()(text.decode())
    if isinstance(parsed, str):
        return parsed.encode()
    # Another JSON value that Spring has written (a number, say) is read as its JSON text.
    return None if parsed is None else text
