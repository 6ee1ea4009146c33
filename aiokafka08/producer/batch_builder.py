"""A batch that the user fills: `create_batch()`, `append()`, then `send_batch()`.

Names and signatures are aiokafka's.

Invariant: a closed batch accepts no more messages. `close()` and `take()` close it, and so does an
`append()` that finds no room. `take()` succeeds once, even if the batch was closed before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.net.config import check_not_negative
from aiokafka08.embedded_headers import Headers, embed
from aiokafka08.errors import IllegalStateError, UnsupportedVersionError
from aiokafka08.producer.headers import HeaderPolicy, no_headers
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder, message_size


class AppendedMessage(NamedTuple):
    """A message as `BatchBuilder.append` returns it; the names are aiokafka's.

    Attributes:
        offset: index of the message in the batch.
        crc: None; the CRC is computed when the batch is sent.
        size: bytes of the message before compression.
        timestamp: milliseconds since the epoch; None in message format 0.
    """

    offset: int
    crc: int | None
    size: int
    timestamp: int | None


class BatchBuilder:
    """Collects messages for one partition up to `max_batch_size`. Made by `create_batch()`.

    Attributes:
        has_explicit_timestamps: the user gave a message its timestamp.
        dropped_headers: the number of messages whose headers were dropped.
    """

    def __init__(
        self,
        magic: int,
        codec: Codec,
        limit_bytes: int,
        serialize: Callable[[Any, Any], tuple[bytes | None, bytes | None]],
        policy: HeaderPolicy,
    ) -> None:
        self._builder = MessageSetBuilder(magic, codec)
        self._limit_bytes = limit_bytes
        self._serialize = serialize
        self._policy = policy
        self._closed = False
        self._sent = False
        self.has_explicit_timestamps = False
        self.dropped_headers = 0

    def __repr__(self) -> str:
        return f"<BatchBuilder messages={self.record_count()} bytes={self.size()}>"

    def append(
        self,
        *,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: Headers | None = (),
    ) -> AppendedMessage | None:
        """Add a message; return None, and add nothing, if the batch is full or closed.

        Args:
            timestamp: milliseconds since the epoch; None for now.
            key: the key, or what `key_serializer` takes.
            value: the value, or what `value_serializer` takes.
            headers: as in `AIOKafkaProducer.send` (default ()).

        Raises:
            UnsupportedVersionError: headers, unless the producer's option `headers` allows them; or
                a timestamp for brokers below 0.10.
            IllegalArgumentError: neither key nor value; the headers can't be embedded; or the
                timestamp isn't an integer from 0 to 2**63 - 1.
            TypeError: key or value isn't bytes.
        """
        mode = self._policy.mode
        if headers and mode == "refuse":
            raise no_headers()
        if self._closed:
            return None
        builder = self._builder
        if builder.magic == 0:
            if timestamp is not None:
                raise no_timestamps()
        elif timestamp is None:
            timestamp = environment.wall_time_ms()
        else:
            timestamp = check_not_negative("timestamp", timestamp)
            self.has_explicit_timestamps = True
        key_bytes, value_bytes = self._serialize(key, value)
        if mode == "embedded":
            value_bytes = embed(value_bytes, headers)
        size = message_size(builder.magic, key_bytes, value_bytes)
        if len(builder) and builder.size_bytes + size > self._limit_bytes:
            self._closed = True
            return None
        builder.append(key_bytes, value_bytes, -1 if timestamp is None else timestamp)
        if headers and (mode == "drop" or value_bytes is None):
            # A null value loses its headers, because an envelope would turn a tombstone into a
            # value.
            self.dropped_headers += 1
        return AppendedMessage(len(builder) - 1, None, size, timestamp)

    def close(self) -> None:
        """Accept no more messages; a closed batch can't be opened again."""
        self._closed = True

    def closed(self) -> bool:
        """Whether the batch accepts no more messages."""
        return self._closed

    def size(self) -> int:
        """Return the bytes of the messages so far, before compression."""
        return self._builder.size_bytes

    def record_count(self) -> int:
        """Return the number of messages."""
        return len(self._builder)

    def take(self) -> MessageSetBuilder:
        """Close the batch and return its messages; raise IllegalStateError the second time."""
        if self._sent:
            raise IllegalStateError(
                "this batch was sent before: make a new one with create_batch()"
            )
        self._sent = self._closed = True
        return self._builder


def no_timestamps() -> UnsupportedVersionError:
    return UnsupportedVersionError(
        "a timestamp needs message format 1 (brokers from 0.10 on); this broker is older. Leave "
        "the timestamp out, or put it into the value"
    )
