"""`produce_records`: pass the records of a chunk to librdkafka, by confluent-kafka's `produce`.

Invariant: the index that it returns is that of the first record that librdkafka didn't take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from aiokafka08.bridge.sink.transaction import DeliveryReport, timestamps_of
from aiokafka08.bridge.target.target_cluster import import_confluent
from aiokafka08.structs import ConsumerRecord


def produce_records(
    producer: Any,
    topic: str,
    partition: int,
    records: Sequence[ConsumerRecord[Any, Any]],
    keep_timestamps: bool,
    callbacks: Sequence[DeliveryReport | None],
) -> tuple[int, int] | None:
    """Pass records to librdkafka, up to the first one that it doesn't take.

    Args:
        producer: confluent-kafka's producer.
        topic: the topic of the target.
        partition: the partition of the target.
        records: the records, in the order in which to write them.
        keep_timestamps: False gives each record the time of the call.
        callbacks: the delivery callback of each record; None: it has none.

    Returns:
        The index of the first record that isn't taken, and librdkafka's code of the reason; None if
        all are.
    """
    confluent = import_confluent()
    timestamps = iter(timestamps_of(records, keep=keep_timestamps))
    # `map` calls `produce` without bytecode in between.
    calls = map(
        producer.produce,
        repeat(topic),
        [record.value for record in records],
        [record.key for record in records],
        repeat(partition),
        callbacks,
        repeat(None),  # `on_delivery`, another name of `callback`
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
    # `map` takes a timestamp before each call, so the number of those left shows which call failed.
    return len(records) - length_hint(timestamps) - 1, code
