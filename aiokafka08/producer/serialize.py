"""Keys and values to bytes: the user's serialisers, and the check of what they give. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.net.config import not_negative

Serializer = Callable[[Any], bytes | None]


def to_bytes(what: str, data: Any, index: int | None = None) -> bytes | None:
    """`data` as bytes, or None; what may change later is copied.

    Args:
        what: "key" or "value".
        data: to be checked.
        index: which one it is of many; for the text.

    Raises:
        TypeError: it is something else.
    """
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    which = f"the {what}" if index is None else f"{what} {index}"
    raise TypeError(
        f"{which} is {type(data).__name__}, not bytes: encode it, or give a {what}_serializer"
    )


def serialize_pair(
    key: Any, value: Any, key_serializer: Serializer | None, value_serializer: Serializer | None
) -> tuple[bytes | None, bytes | None]:
    """Key and value of one message.

    Raises:
        TypeError: one isn't bytes.
        IllegalArgumentError: there is neither.
    """
    key_bytes = to_bytes("key", key if key_serializer is None else key_serializer(key))
    value_bytes = to_bytes("value", value if value_serializer is None else value_serializer(value))
    if key_bytes is None and value_bytes is None:
        raise nothing_to_send()
    return key_bytes, value_bytes


def serialize_all(
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    timestamps_ms: Iterable[int] | None,
    key_serializer: Serializer | None,
    value_serializer: Serializer | None,
) -> tuple[Sequence[bytes | None], Sequence[bytes | None] | None, Sequence[int] | None]:
    """Values, keys and timestamps of many messages, as sequences of the same length.

    A message may have neither key nor value: whole logs are copied this way, whatever is in them.

    Raises:
        TypeError: a key or value isn't bytes, or a string is given where many are wanted.
        IllegalArgumentError: the lengths differ, or a timestamp is negative.

    Where it is about one message the text has its index; a note has it for what serialisers raise.
    """
    all_values = _each("value", values, value_serializer)
    count = len(all_values)
    all_keys = None if keys is None else _each("key", keys, key_serializer)
    if all_keys is not None and len(all_keys) != count:
        raise IllegalArgumentError(f"{count} values, but {len(all_keys)} keys are given")
    timestamps = None if timestamps_ms is None else list(timestamps_ms)
    if timestamps is not None:
        if len(timestamps) != count:
            raise IllegalArgumentError(
                f"{count} values, but {len(timestamps)} timestamps_ms are given"
            )
        for index, timestamp_ms in enumerate(timestamps):
            not_negative(f"timestamps_ms[{index}]", timestamp_ms)
    return all_values, all_keys, timestamps


def nothing_to_send() -> IllegalArgumentError:
    """The error for a message without key and value."""
    return IllegalArgumentError("a message needs a key or a value")


def _each(what: str, data: Iterable[Any], serializer: Serializer | None) -> Sequence[bytes | None]:
    if isinstance(data, str | bytes | bytearray | memoryview):
        raise TypeError(f"a list of {what}s is wanted, not {type(data).__name__}")
    everything = list(data) if serializer is None else _serialized(what, data, serializer)
    if set(map(type, everything)) <= {bytes, type(None)}:
        return everything
    return [to_bytes(what, one, index) for index, one in enumerate(everything)]


def _serialized(what: str, data: Iterable[Any], serializer: Serializer) -> list[bytes | None]:
    done: list[bytes | None] = []
    for one in data:
        try:
            done.append(serializer(one))
        except Exception as error:
            error.add_note(f"in {what}_serializer, of {what} {len(done)}")
            raise
    return done
