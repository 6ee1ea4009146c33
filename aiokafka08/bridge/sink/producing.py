"""`choose_produce`: pass the records of a chunk to librdkafka, by the faster of two ways.

The compiled twin, `_librdkafka_c`, calls librdkafka itself: about half the CPU time of the pure
one, which calls confluent-kafka's `produce` for each record. It needs the `rd_kafka_t` that a
`Producer` begins with, and that no function returns. So it is used only with the releases of
confluent-kafka in `CHECKED_RELEASES`.

Invariant: both twins pass on the same messages in the same order.
"""

from __future__ import annotations

import ctypes
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

CHECKED_RELEASES: Final = ((2, 12), (2, 16))
"""The first and the last minor release of confluent-kafka in which the place of a producer's
`rd_kafka_t` was checked."""

ProduceRecords = Callable[
    [Any, str, int, Sequence[ConsumerRecord[Any, Any]], bool], tuple[int, int] | None
]
"""Pass records without callbacks to librdkafka.

Its arguments are the producer, topic, partition and records, and whether to keep timestamps. It
returns the index of the first record that isn't taken, and librdkafka's code of the reason; else
None.
"""


def choose_produce(producer: Any, client_id: str) -> ProduceRecords:
    """Return the compiled twin where it can be used with this producer, else `pure_produce`.

    Args:
        producer: of confluent-kafka.
        client_id: for the log, which says once why the compiled twin can't be used.
    """
    compiled = _compiled_produce(client_id)
    # A subclass may have a `produce` of its own.
    is_plain = type(producer) is import_confluent().Producer
    return pure_produce if compiled is None or not is_plain else compiled


def produce_with_callbacks(
    producer: Any,
    topic: str,
    partition: int,
    records: Sequence[ConsumerRecord[Any, Any]],
    keep_timestamps: bool,
    callbacks: Sequence[Callback | None],
) -> tuple[int, int] | None:
    """Do what `ProduceRecords` does, for records with callbacks."""
    confluent = import_confluent()
    timestamps = iter(timestamps_of(records, keep=keep_timestamps))
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
    except confluent.KafkaException as error:
        code = error.args[0].code()
    except BufferError:
        code = confluent.KafkaError._QUEUE_FULL
    else:
        return None
    return len(records) - length_hint(timestamps) - 1, code


def pure_produce(
    producer: Any,
    topic: str,
    partition: int,
    records: Sequence[ConsumerRecord[Any, Any]],
    keep_timestamps: bool,
) -> tuple[int, int] | None:
    """Call confluent-kafka's `produce` for each record: `ProduceRecords`."""
    callbacks: list[Callback | None] = [None] * len(records)
    return produce_with_callbacks(producer, topic, partition, records, keep_timestamps, callbacks)


@cache
def _compiled_produce(client_id: str) -> ProduceRecords | None:
    """Return the compiled twin; None, and log the reason, if it can't be used."""
    compiled, release = load_compiled_sink(), import_confluent().__version__
    slow = "calling `produce` for each record, which is slower than the compiled twin: "
    if compiled is None:
        reason = explain_pure(SINK_TWINS)
    elif not is_checked(release):
        first, last = (".".join(map(str, one)) for one in CHECKED_RELEASES)
        reason = f"{slow}confluent-kafka {release}: expected {first} to {last}"
    elif not _bind(compiled):
        reason = f"{slow}librdkafka's functions weren't found in confluent-kafka {release}"
    else:
        return cast("ProduceRecords", compiled.produce_records)
    _log.info("%s: %s", client_id, reason)
    return None


def is_checked(release: str) -> bool:
    """Return whether a producer of this release of confluent-kafka begins with its `rd_kafka_t`."""
    first, last = CHECKED_RELEASES
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
    addresses = (ctypes.cast(one, ctypes.c_void_p).value for one in found)
    compiled.bind(import_confluent().Producer, *addresses)
    return True
