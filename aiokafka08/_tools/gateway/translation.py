"""What the translations of old versions share: a request for the target, and the way back.

`old_offsets` and others translate one API each. They are pure: from bytes to bytes, in any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer, compiled, read_limited

CORRELATION_BYTES: Final = 4
MAX_ITEMS: Final = 100_000
"""How many topics and partitions a translated request may have: in memory an item takes much more
than in the frame."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated request.

    Attributes:
        request: the frame for the target, without its size; None: the target isn't asked.
        respond: makes the client's response, without its size, from the target's; both are frames
            with a correlation id. It gets an empty frame if the target isn't asked.
        expects_response: whether the client waits for a response.
        failure: why the connection ends when the request is sent; None: it goes on.
    """

    request: list[Buffer] | None
    respond: Callable[[memoryview], list[Buffer]]
    expects_response: bool = True
    failure: str | None = None


def read_body(struct_class: Any, version: int, frame: Buffer, pos: int) -> Any:
    """Read a request or response as `protocol.requests` declares it; bytes after it are ignored.

    Raises:
        KafkaProtocolError: the frame hasn't its layout, or its arrays more than `MAX_ITEMS` items.
    """
    try:
        return read_limited(struct_class, version, frame, pos, MAX_ITEMS)[0]
    except KafkaProtocolError as error:
        raise KafkaProtocolError(
            f"{struct_class.__name__} version {version}: {error.text}"
        ) from None


def refuse_replica(replica_id: int) -> None:
    """Check the replica id of a request.

    Raises:
        KafkaProtocolError: it is a broker's.
    """
    if replica_id >= 0:
        raise KafkaProtocolError(f"replica id {replica_id}: only brokers have one; expected -1")


def write_request(head: RequestHead, frame: Buffer, version: int, request: Any) -> list[Buffer]:
    """Return the frame of a request in another version, from the same client."""
    out: list[Buffer] = [struct.pack(">hh", head.key, version), frame[4 : head.body_at]]
    compiled(type(request), version).write(request, out)
    return out


def write_response(head: RequestHead, response: Any) -> list[Buffer]:
    """Return the frame of the client's response."""
    out: list[Buffer] = [head.correlation_id.to_bytes(CORRELATION_BYTES, "big", signed=True)]
    compiled(type(response), head.version).write(response, out)
    return out
