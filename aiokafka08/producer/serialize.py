"""Keys and values to bytes: the user's serialisers, and the check of what they give. Pure.

Law: what is done for many messages yields every few, so that whoever runs it can do others' work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Final

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.net.config import not_negative

Serializer = Callable[[Any], bytes | None]

_CHECKED_AT_ONCE: Final = 1024
_DRAWN_AT_ONCE: Final = 64
"""Fewer: each is made by code of the caller's, which takes its time."""

_BYTES_OR_NONE: Final = {bytes, type(None)}


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
) -> Generator[
    None, None, tuple[Sequence[bytes | None], Sequence[bytes | None] | None, Sequence[int] | None]
]:
    """Values, keys and timestamps of many messages, as sequences of the same length.

    A message may have neither key nor value: whole logs are copied this way, whatever is in them.
    What has a length is copied at the first step, since others may change it between two steps.

    Raises:
        TypeError: a key or value isn't bytes, or a string is given where many are wanted.
        IllegalArgumentError: the lengths differ, or a timestamp is negative.

    Where it is about one message the text has its index; a note has it for what serialisers raise.
    """
    values = _many("value", values)
    keys = None if keys is None else _many("key", keys)
    timestamps_ms = None if timestamps_ms is None else _copied(timestamps_ms)
    all_values = yield from _each("value", values, value_serializer)
    count = len(all_values)
    all_keys = None if keys is None else (yield from _each("key", keys, key_serializer))
    if all_keys is not None and len(all_keys) != count:
        raise IllegalArgumentError(f"{count} values, but {len(all_keys)} keys are given")
    timestamps = None if timestamps_ms is None else (yield from _listed(timestamps_ms))
    if timestamps is not None:
        if len(timestamps) != count:
            raise IllegalArgumentError(
                f"{count} values, but {len(timestamps)} timestamps_ms are given"
            )
        for start, part in _parts(timestamps):
            if start:
                yield
            if set(map(type, part)) != {int} or min(part) < 0:
                for index, timestamp_ms in enumerate(part, start):
                    not_negative(f"timestamps_ms[{index}]", timestamp_ms)
    return all_values, all_keys, timestamps


def nothing_to_send() -> IllegalArgumentError:
    """The error for a message without key and value."""
    return IllegalArgumentError("a message needs a key or a value")


def _many(what: str, data: Iterable[Any]) -> Iterable[Any]:
    if isinstance(data, str | bytes | bytearray | memoryview):
        raise TypeError(f"a list of {what}s is wanted, not {type(data).__name__}")
    return _copied(data)


def _copied(data: Iterable[Any]) -> Iterable[Any]:
    return list(data) if isinstance(data, Sized) else data


def _each(
    what: str, data: Iterable[Any], serializer: Serializer | None
) -> Generator[None, None, list[bytes | None]]:
    everything = yield from _listed(
        data if serializer is None else _serialized(what, data, serializer)
    )
    for start, part in _parts(everything):
        if start:
            yield
        if not set(map(type, part)) <= _BYTES_OR_NONE:
            everything[start : start + len(part)] = [
                to_bytes(what, one, index) for index, one in enumerate(part, start)
            ]
    return everything


def _parts(everything: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    for start in range(0, len(everything), _CHECKED_AT_ONCE):
        yield start, everything[start : start + _CHECKED_AT_ONCE]


def _listed(data: Iterable[Any]) -> Generator[None, None, list[Any]]:
    if isinstance(data, list):
        return data
    listed: list[Any] = []
    source = iter(data)
    while part := list(islice(source, _DRAWN_AT_ONCE)):
        if listed:
            yield
        listed += part
    return listed


def _serialized(what: str, data: Iterable[Any], serializer: Serializer) -> Iterator[bytes | None]:
    for index, one in enumerate(data):
        try:
            made = serializer(one)
        except Exception as error:
            error.add_note(f"in {what}_serializer, of {what} {index}")
            raise
        yield made
