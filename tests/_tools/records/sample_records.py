"""Records for the tests of formats."""

from __future__ import annotations

from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.structs import ConsumerRecord


def record(
    value: bytes | None,
    key: bytes | None = None,
    *,
    offset: int = 0,
    timestamp: int | None = None,
    timestamp_type: int | None = None,
) -> BytesRecord:
    """Return a record of topic `orders`, partition 3."""
    return ConsumerRecord(
        topic="orders",
        partition=3,
        offset=offset,
        timestamp=timestamp,
        timestamp_type=0 if timestamp is not None and timestamp_type is None else timestamp_type,
        key=key,
        value=value,
        checksum=None,
        serialized_key_size=-1 if key is None else len(key),
        serialized_value_size=-1 if value is None else len(value),
    )
