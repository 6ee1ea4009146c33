"""`queue_function`: pass the records of a chunk to librdkafka, by the faster of two ways.

The compiled twin, `_librdkafka_c`, calls librdkafka itself: half the CPU time of the pure one,
which calls confluent-kafka's `produce` for each record. It needs the `rd_kafka_t` that a `Producer`
begins with, and that no function returns. So it is used only with the releases of confluent-kafka
in `CHECKED`.

Invariant: both twins queue the same messages in the same order.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat
from operator import length_hint
from types import ModuleType
from typing import Any, Final, cast

from aiokafka08.bridge.sink.transaction import Callback, timestamps_of
from aiokafka08.bridge.target import import_confluent
from aiokafka08.protocol.twins import SINK_TWINS, explain_pure, load_compiled_sink
from aiokafka08.structs import ConsumerRecord

_log = logging.getLogger("aiokafka08.bridge")

CHECKED: Final = ((2, 12), (2, 16))
"""The first and the last minor release of confluent-kafka in which the place of a producer's
`rd_kafka_t` was checked."""

Queue = Callable[[Any, str, int, Sequence[ConsumerRecord[Any, Any]], bool], tuple[int, int] | None]
"""Queue records without callbacks.

Its arguments are the producer, topic, partition and records, and whether to keep timestamps. It
returns the index of the first record that isn't taken, and librdkafka's code of the reason.
"""


def queue_with_callbacks(
    producer: Any,
    topic: str,
    partition: int,
    records: Sequence[ConsumerRecord[Any, Any]],
    keep: bool,
    callbacks: Sequence[Callback | None],
) -> tuple[int, int] | None:
    """Do what a `Queue` does, for records with callbacks."""
    timestamps = iter(timestamps_of(records, keep=keep))
    # `produce_batch` takes no timestamps. `map` calls `produce` without bytecode in between: as
    # cheap as a batch.
    calls = map(
        producer.produce,
        repeat(topic),
        [one.value for one in records],
        [one.key for one in records],
        repeat(partition),
        callbacks,
        repeat(None),  # another name of the callback
        timestamps,
    )
    try:
        deque(calls, maxlen=0)
    except import_confluent().KafkaException as error:
        return len(records) - length_hint(timestamps) - 1, error.args[0].code()
    return None


def pure_queue(
    producer: Any,
    topic: str,
    partition: int,
    records: Sequence[ConsumerRecord[Any, Any]],
    keep: bool,
) -> tuple[int, int] | None:
    """Queue records by confluent-kafka's `produce`; a `Queue`."""
    nothing: list[Callback | None] = [None] * len(records)
    return queue_with_callbacks(producer, topic, partition, records, keep, nothing)


@cache
def queue_function() -> Queue:
    """Return the compiled twin where it can be used, else `pure_queue`, and log the reason."""
    compiled, release = load_compiled_sink(), importlib.metadata.version("confluent-kafka")
    if compiled is None:
        reason = explain_pure(SINK_TWINS)
    elif not is_checked(release):
        reason = f"running sink by confluent-kafka's produce, which is slower: {release} is unknown"
    elif not _bind(compiled):
        reason = "running sink by confluent-kafka's produce, which is slower: no librdkafka found"
    else:
        return cast("Queue", compiled.queue)
    _log.info("bridge: %s", reason)
    return pure_queue


def is_checked(release: str) -> bool:
    """Return whether a producer of this release of confluent-kafka begins with its `rd_kafka_t`."""
    first, last = CHECKED
    numbers = release.split(".")[:2]
    return all(one.isdecimal() for one in numbers) and first <= tuple(map(int, numbers)) <= last


def _bind(compiled: ModuleType) -> bool:
    """Pass the addresses of librdkafka's functions; return whether they were found."""
    from confluent_kafka import cimpl

    try:
        # The library that confluent-kafka has loaded: not another one of the same name.
        library = ctypes.CDLL(cimpl.__file__)
        found = [getattr(library, name) for name in compiled.FUNCTIONS]
    except (OSError, AttributeError):
        return False
    compiled.bind(*(ctypes.cast(one, ctypes.c_void_p).value for one in found))
    return True
