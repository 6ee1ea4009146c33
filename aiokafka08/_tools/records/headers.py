"""Headers on the command line: `-H NAME=VALUE`, and their forms in the output. Pure.

Message formats 0 and 1 have no headers; with `-X headers=embedded` they are in an envelope in the
value (`aiokafka08.embedded_headers`).

Invariant: a damaged envelope is an error that names the record; the records before it are returned.
Only `opened`, for code that reads values of any kind, returns a damaged envelope as the value.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka08._tools.records.raw import where
from aiokafka08._tools.records.types import BytesRecord, RecordFormatError
from aiokafka08.embedded_headers import Headers, extract
from aiokafka08.errors import EmbeddedHeadersError, IllegalArgumentError


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Return name and value of `-H NAME=VALUE`; `-H NAME` has a null value, as with kcat."""
    name, equals, value = text.partition("=")
    return name, value.encode(errors="surrogateescape") if equals else None


def refused_headers(where: str) -> IllegalArgumentError:
    """Return the error for headers with the mode "refuse"; `where` is the option or message."""
    return IllegalArgumentError(
        f"{where}: message formats 0 and 1 have no headers. Give -X headers=embedded to put them "
        "into the value, in the envelope of Spring Cloud Stream, or -X headers=drop to leave them "
        "out"
    )


def with_headers(
    records: Sequence[BytesRecord],
) -> tuple[Sequence[BytesRecord], RecordFormatError | None]:
    """Take the embedded headers out of the values of records, up to the first damaged envelope.

    Returns:
        The records before that one, and the error; None if there is none.
    """
    for index, record in enumerate(records):
        if record.value is None:
            continue
        try:
            record.value, record.headers = extract(record.value)
        except EmbeddedHeadersError as error:
            return records[:index], RecordFormatError(
                f"{where(record)}: the value begins with 0xff, but isn't a whole envelope of "
                f"headers: {error.text}. Leave out -X headers=embedded to read values as they are"
            )
    return records, None


def opened(value: bytes | None) -> tuple[bytes | None, Headers]:
    """Return a value without its embedded headers, and the headers; keep a damaged envelope."""
    try:
        return (value, ()) if value is None else extract(value)
    except EmbeddedHeadersError:
        return value, ()


def headers_text(headers: Headers) -> bytes:
    """Return the text of `%h`: `name=value,name=value`."""
    return b",".join(
        name.encode(errors="surrogateescape") + b"=" + (value or b"") for name, value in headers
    )
