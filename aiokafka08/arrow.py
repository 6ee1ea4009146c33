"""Messages as Arrow record batches: the only door to pyarrow (extra `aiokafka08[arrow]`).

The columns are those of Spark's Kafka source. pyarrow is imported at the first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch as RecordBatch  # for annotations elsewhere


def require_pyarrow() -> Any:
    """The module pyarrow.

    Raises:
        KafkaConfigurationError: it isn't installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise KafkaConfigurationError(
            "Arrow batches need pyarrow: pip install 'aiokafka08[arrow]'"
        ) from error
    return pyarrow


def schema() -> pa.Schema:
    """key, value, topic, partition, offset, timestamp, timestampType.

    Timestamps are UTC with the milliseconds that messages have; they and their types are null in
    message format 0, which has none.
    """
    pa = require_pyarrow()
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestampType", pa.int32()),
        ]
    )


def record_batch(
    taken: Mapping[TopicPartition, Iterable[ConsumerRecord[bytes, bytes]]],
) -> pa.RecordBatch:
    """One batch of all these messages, partition after partition."""
    pa = require_pyarrow()
    records = [record for records in taken.values() for record in records]
    times = [
        None if record.timestamp is None or record.timestamp < 0 else record.timestamp * 1000
        for record in records
    ]
    columns: list[list[Any]] = [
        [record.key for record in records],
        [record.value for record in records],
        [record.topic for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        times,
        [record.timestamp_type for record in records],
    ]
    fields = schema()
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
