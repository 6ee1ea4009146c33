"""A batch that the caller puts together: `create_batch()`, `append()`, then `send_batch()`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiokafka08.errors import IllegalStateError, UnsupportedVersionError
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder, message_size


class AppendedMessage(NamedTuple):
    """What `BatchBuilder.append` tells about a message; the names are aiokafka's.

    `offset` is its place in the batch, `size` its bytes there before compression. `crc` is None:
    it is taken when the batch is sent. `timestamp` is None in message format 0.
    """

    offset: int
    crc: int | None
    size: int
    timestamp: int | None


class BatchBuilder:
    """Collects messages for one partition up to `max_batch_size`. Made by `create_batch()`."""

    def __init__(
        self,
        magic: int,
        codec: Codec,
        limit_bytes: int,
        serialize: Callable[[Any, Any], tuple[bytes | None, bytes | None]],
    ) -> None:
        self._builder = MessageSetBuilder(magic, codec)
        self._limit_bytes = limit_bytes
        self._serialize = serialize
        self._closed = False
        self._sent = False
        self.has_explicit_timestamps = False

    def __repr__(self) -> str:
        return f"<BatchBuilder messages={self.record_count()} bytes={self.size()}>"

    def append(
        self,
        *,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: Sequence[tuple[str, bytes]] | None = (),
    ) -> AppendedMessage | None:
        """Add a message, unless the batch is full or closed: then None is returned.

        Args:
            timestamp: milliseconds since the epoch; None for now.
            key: the key, or what `key_serializer` takes.
            value: the value, or what `value_serializer` takes.
            headers: must be empty.

        Raises:
            UnsupportedVersionError: headers; or a timestamp for brokers below 0.10.
            TypeError: key or value isn't bytes.
        """
        if headers:
            raise no_headers()
        if self._closed:
            return None
        builder = self._builder
        if builder.magic == 0:
            if timestamp is not None:
                raise no_timestamps()
        elif timestamp is None:
            timestamp = int(time.time() * 1000)
        else:
            self.has_explicit_timestamps = True
        key_bytes, value_bytes = self._serialize(key, value)
        size = message_size(builder.magic, key_bytes, value_bytes)
        if len(builder) and builder.size_bytes + size > self._limit_bytes:
            self._closed = True
            return None
        builder.append(key_bytes, value_bytes, -1 if timestamp is None else timestamp)
        return AppendedMessage(len(builder) - 1, None, size, timestamp)

    def close(self) -> None:
        """Take no more messages; they can't come back."""
        self._closed = True

    def closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._closed

    def size(self) -> int:
        """Bytes of the messages so far, before compression."""
        return self._builder.size_bytes

    def record_count(self) -> int:
        """How many messages there are."""
        return len(self._builder)

    def take(self) -> MessageSetBuilder:
        """For the producer: the messages, which are its own from now on.

        Raises:
            IllegalStateError: the batch was sent before.
        """
        if self._sent:
            raise IllegalStateError("this batch was sent already; make a new one")
        self._sent = self._closed = True
        return self._builder


def no_headers() -> UnsupportedVersionError:
    """The error for headers."""
    return UnsupportedVersionError(
        "headers need message format 2 (brokers from 0.11 on), which this client doesn't speak; "
        "put them into the value"
    )


def no_timestamps() -> UnsupportedVersionError:
    """The error for a timestamp where message format 0 is written."""
    return UnsupportedVersionError(
        "a timestamp needs message format 1 (brokers from 0.10 on); this broker is older, its "
        "messages have none. Leave timestamp_ms out, or put the time into the value"
    )
