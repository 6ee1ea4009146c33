"""The header of a request: which API, version and client it is of, and where it ends.

Invariant: a header is read without trust in any length of it; what isn't a header raises
`KafkaProtocolError`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

API_VERSIONS: Final = 18
"""The header of its responses never has tagged fields, so that clients of all versions read it."""

_unpack_header: Final = struct.Struct(">hhih").unpack_from
_MIN_BYTES: Final = 10
CORRELATION_BYTES: Final = 4
"""The size of the header of a response, in front of tagged fields."""


class RequestHead(NamedTuple):
    """The header of a request.

    Attributes:
        key: the API's number.
        version: the version of the API.
        correlation_id: the client's number of the request.
        client_id: the client's name for itself; None if it has none.
        body_at: where the body begins, or the tagged fields in front of it.
    """

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_head(frame: Buffer) -> RequestHead:
    """Return the header of a request, without its tagged fields.

    Raises:
        KafkaProtocolError: the frame has no header of a request.
    """
    if len(frame) < _MIN_BYTES:
        raise KafkaProtocolError(f"a request of {len(frame)} bytes; expected at least {_MIN_BYTES}")
    key, version, correlation_id, length = _unpack_header(frame)
    end = _MIN_BYTES + max(length, 0)
    if length < -1 or end > len(frame):
        text = f"a client id of {length} bytes"
        raise KafkaProtocolError(f"{text}; expected -1 to {len(frame) - _MIN_BYTES}")
    client_id = str(frame[_MIN_BYTES:end], "utf-8", "replace") if length >= 0 else None
    return RequestHead(key, version, correlation_id, client_id, end)
