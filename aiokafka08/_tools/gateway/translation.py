"""Common parts of the translations of old versions: `Translation`, `Budget`, codecs of frames.

`old_produce`, `old_fetch` and `old_offsets` have the translations. These are pure: from bytes to
bytes, in any thread. `translated_requests` carries out what they return.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.headers import CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.layouts import TakesLongError, apis
from aiokafka08._tools.gateway.messages import Values, message_of, response_frame
from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol.compression import DecompressedTooLarge
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka08.protocol.types import Buffer, compiled, read_limited

T = TypeVar("T")

MAX_ITEMS: Final = 100_000
"""How many topics and partitions a translated request may have, since an item takes many more bytes
in memory than in the frame."""

_QUICK_BYTES: Final = 256 << 10

_DESCRIBE_CONFIGS: Final = 32
_CONFIGS_VERSION: Final = 1


class Budget:
    """Limits how much one translation may decompress, and counts its messages and errors.

    A small frame may hold much, and no length in it can be trusted. So it is first translated with
    `is_quick`; when that ends with `TakesLongError` it is translated again, in a thread.

    Args:
        is_quick: whether to end with `TakesLongError` rather than hold the event loop for long.

    Attributes:
        left_bytes: how many bytes may still be decompressed.
        messages: how many messages the request stores or returns.
        errors: how many partitions or groups have failed.
    """

    def __init__(self, *, is_quick: bool = False) -> None:
        self.is_quick = is_quick
        self.left_bytes = _QUICK_BYTES if is_quick else DEFAULT_MAX_DECOMPRESSED_BYTES
        self._all_bytes = self.left_bytes
        self.messages = self.errors = 0

    @property
    def is_used(self) -> bool:
        """Whether something was decompressed."""
        return self.left_bytes < self._all_bytes

    def use(self, size_bytes: int) -> None:
        """Note that `size_bytes` were decompressed."""
        self.left_bytes -= size_bytes

    def exceeds(self, error: CorruptRecordException) -> bool:
        """Return whether data count as corrupt only because they are larger than what is left.

        Raises:
            TakesLongError: the data are larger, and the translation has to be quick.
        """
        is_too_large = isinstance(error.__context__, DecompressedTooLarge)
        if is_too_large and self.is_quick:
            raise TakesLongError
        return is_too_large

    def require_thread(self) -> None:
        """Raise `TakesLongError` if the translation has to be quick (`is_quick`)."""
        if self.is_quick:
            raise TakesLongError


@dataclass(frozen=True, slots=True)
class Translation:
    """A step of a translated request: a request to a broker, and how to continue afterwards.

    Attributes:
        request: the frame for a broker, without its size; None: no broker is asked.
        respond: makes the client's response, without its size, from the broker's, or returns the
            next step. Both responses are frames with a correlation id. It gets an empty frame if no
            broker is asked. If it raises `TakesLongError`, it has to be called again in a thread.
        expects_response: whether the client waits for a response.
        is_answered: whether the broker responds to the request.
        failure: why the connection ends once the request is sent; None: it stays open.
        is_exclusive: whether the client's later requests wait until this one is done. The value of
            the first step counts.
        broker: the broker to ask; None: the one that the client has chosen.
        after_s: how long to wait before this step, in seconds.
        kept_items: how many topics and partitions of the request `respond` keeps in memory. The
            value of the first step counts.
    """

    request: list[Buffer] | None
    respond: Callable[[memoryview, Budget], list[Buffer] | Translation]
    expects_response: bool = True
    is_answered: bool = True
    failure: str | None = None
    is_exclusive: bool = False
    broker: Address | None = None
    after_s: float = 0.0
    kept_items: int = 0


def read_body(kind: type[T], version: int, frame: Buffer, pos: int) -> T:
    """Read a request or response as `protocol.requests` declares it; bytes after it are ignored.

    Raises:
        KafkaProtocolError: the layout of the frame is wrong, or its arrays have more than
            `MAX_ITEMS` items.
    """
    try:
        return read_limited(kind, version, frame, pos, MAX_ITEMS)[0]
    except KafkaProtocolError as error:
        raise KafkaProtocolError(f"{kind.__name__} version {version}: {error.text}") from None


def read_old_request(head: RequestHead, frame: Buffer) -> Values:
    """Return the values of the client's request.

    Raises:
        KafkaProtocolError: the layout of the frame is wrong, or its arrays have more than
            `MAX_ITEMS` items.
    """
    request = message_of(apis()[head.key], "request", head.version)
    return request.read(frame, head.body_at, MAX_ITEMS)


def request_end(head: RequestHead, frame: Buffer) -> bytes:
    """Return the part of a request's header after the version: correlation id and client id."""
    return bytes(frame[4 : head.body_at])


def read_answer(key: int, version: int, answer: Buffer) -> Values:
    """Return the values of the target's response.

    Raises:
        KafkaProtocolError: see `read_old_request`.
    """
    return message_of(apis()[key], "response", version).read(answer, max_items=MAX_ITEMS)


def write_request(key: int, version: int, header_end: bytes, request: Values) -> list[Buffer]:
    """Return the frame of a request, with the client's correlation id and client id.

    Args:
        key: the API.
        version: the version for the target.
        header_end: the result of `request_end` for the client's request.
        request: its values.
    """
    body = message_of(apis()[key], "request", version).write(request)
    return [struct.pack(">hh", key, version), header_end, *body]


def write_response(head: RequestHead, response: Any) -> list[Buffer]:
    """Return the frame of the client's response.

    Args:
        head: the header of the client's request.
        response: a dict of values, or a struct of `protocol.requests`.
    """
    if isinstance(response, dict):
        return response_frame(apis()[head.key], head, response)
    out: list[Buffer] = [head.correlation_id.to_bytes(CORRELATION_BYTES, "big", signed=True)]
    compiled(type(response), head.version).write(response, out)
    return out


def config_resource(kind: int, name: str, settings: Sequence[str]) -> Values:
    """Return a resource for a DescribeConfigs request."""
    return {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": list(settings)}


def ask_config(header_end: bytes, kind: int, names: Sequence[str], setting: str) -> list[Buffer]:
    """Return the frame of a DescribeConfigs request for one setting of resources of one type."""
    resources = [config_resource(kind, name, [setting]) for name in names]
    return write_request(_DESCRIBE_CONFIGS, _CONFIGS_VERSION, header_end, {"Resources": resources})


def read_config(answer: Buffer, setting: str) -> dict[str, str]:
    """Return the values in the response to `ask_config`'s request, by resource; omit null values.

    Raises:
        KafkaProtocolError: see `read_old_request`.
    """
    return {
        one["ResourceName"]: config["Value"]
        for one in read_answer(_DESCRIBE_CONFIGS, _CONFIGS_VERSION, answer)["Results"]
        for config in one["Configs"]
        if config["Name"] == setting and config["Value"] is not None
    }


def count_items(topics: Sequence[Values]) -> int:
    """Return how many topics and partitions there are in an array of topics."""
    return len(topics) + sum(1 for _ in partitions(topics))


def partitions(topics: Sequence[Values]) -> Iterator[tuple[str, Any]]:
    """Yield each partition in an array of topics, with the topic's name."""
    for topic in topics:
        name, items = topic.values()  # a topic has no other fields in these versions
        for item in items:
            yield name, item
