"""Turn keys and values into bytes: apply the user's serializers and check the results. Pure.

Invariant: within a column (values, keys, timestamps) `serialize_all` yields after each step of
limited size, so that its caller can yield to the event loop. It doesn't yield between two columns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Final

from aiokafka08._core.net.config import MAX_INT64, check_not_negative
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.producer.fast_path import are_bytes

Serializer = Callable[[Any], bytes | None]

# Items whose type or range one step checks
_CHECKED_PER_STEP: Final = 1024
# Items that one step takes from an iterator or a serializer. The number is lower because each item
# runs the user's code, which takes longer than a check.
_DRAWN_PER_STEP: Final = 64


def to_bytes(field: str, data: Any, index: int | None = None) -> bytes | None:
    """Return `data` as bytes or None; mutable buffers are copied.

    Raises TypeError if `data` is neither a buffer nor None. The error names `field` ("key" or
    "value") and, for one of many messages, its `index`.
    """
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    label = f"the {field}" if index is None else f"{field} {index}"
    raise TypeError(
        f"{label} is {type(data).__name__}: expected bytes. Encode it, or use a {field}_serializer"
    )


def serialize_pair(
    key: Any, value: Any, key_serializer: Serializer | None, value_serializer: Serializer | None
) -> tuple[bytes | None, bytes | None]:
    """Serialize one message; raise TypeError, or IllegalArgumentError if both are None."""
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
    """Return values, keys and timestamps of many messages, as sequences of the same length.

    Unlike in `serialize_pair`, the key and the value of a message may both be None, so that a topic
    with such messages can be copied.

    Raises:
        TypeError: a key or value isn't bytes, or an argument is a string instead of a list.
        IllegalArgumentError: the lengths differ, or a timestamp isn't from 0 to 2**63 - 1.
        Exception: what a serializer raises, with the message's index as a note.
    """
    # Copy sized arguments in the first step, since other tasks may change them between two steps.
    values = _copy_list("value", values)
    keys = None if keys is None else _copy_list("key", keys)
    timestamps_ms = None if timestamps_ms is None else _copy_if_sized(timestamps_ms)
    all_values = yield from _serialize_column("value", values, value_serializer)
    count = len(all_values)
    all_keys = None if keys is None else (yield from _serialize_column("key", keys, key_serializer))
    if all_keys is not None and len(all_keys) != count:
        raise IllegalArgumentError(
            f"{len(all_keys)} keys for {count} values: expected as many keys as values"
        )
    timestamps = None if timestamps_ms is None else (yield from _to_list(timestamps_ms))
    if timestamps is not None:
        if len(timestamps) != count:
            raise IllegalArgumentError(
                f"{len(timestamps)} timestamps_ms for {count} values: expected as many of them as "
                "values"
            )
        for start in range(0, count, _CHECKED_PER_STEP):
            if start:
                yield
            part = timestamps[start : start + _CHECKED_PER_STEP]
            # One check for the whole part; only if it fails, one for each item.
            if set(map(type, part)) != {int} or min(part) < 0 or max(part) > MAX_INT64:
                for index, timestamp_ms in enumerate(part, start):
                    timestamps[index] = check_not_negative(f"timestamps_ms[{index}]", timestamp_ms)
    return all_values, all_keys, timestamps


def nothing_to_send() -> IllegalArgumentError:
    return IllegalArgumentError("key=None and value=None: expected a key or a value")


def _copy_list(field: str, data: Iterable[Any]) -> Iterable[Any]:
    if isinstance(data, str | bytes | bytearray | memoryview):
        raise TypeError(f"{field}s is {type(data).__name__}: expected a list of {field}s")
    return _copy_if_sized(data)


def _copy_if_sized(data: Iterable[Any]) -> Iterable[Any]:
    return list(data) if isinstance(data, Sized) else data


def _serialize_column(
    field: str, data: Iterable[Any], serializer: Serializer | None
) -> Generator[None, None, list[bytes | None]]:
    items = yield from _to_list(data if serializer is None else _apply(field, data, serializer))
    for start in range(0, len(items), _CHECKED_PER_STEP):
        if start:
            yield
        stop = start + _CHECKED_PER_STEP
        if not are_bytes(items, start, stop):
            items[start:stop] = [
                to_bytes(field, item, index) for index, item in enumerate(items[start:stop], start)
            ]
    return items


def _to_list(data: Iterable[Any]) -> Generator[None, None, list[Any]]:
    if isinstance(data, list):
        return data
    listed: list[Any] = []
    source = iter(data)
    while part := list(islice(source, _DRAWN_PER_STEP)):
        if listed:
            yield
        listed += part
    return listed


def _apply(field: str, data: Iterable[Any], serializer: Serializer) -> Iterator[bytes | None]:
    for index, item in enumerate(data):
        try:
            serialized = serializer(item)
        except Exception as error:
            error.add_note(f"raised by {field}_serializer for {field} {index}")
            raise
        yield serialized
