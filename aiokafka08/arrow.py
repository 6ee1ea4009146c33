"""Messages as Arrow record batches: the only door to pyarrow (extra `aiokafka08[arrow]`).

The columns are those of Spark's Kafka source. pyarrow is imported at the first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import TopicPartition

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
    message format 0, which has none. A timestamp that is negative, or beyond what microseconds in
    int64 reach (the year 294247), is null too.
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


def record_batch(runs: Sequence[tuple[TopicPartition, int]], columns: Columns) -> pa.RecordBatch:
    """One batch of the messages in `columns`, whose buffers it takes over without a copy.

    Args:
        runs: of which partition they are: so many of this one, then so many of that one.
        columns: filled by `MessageSetReader.read_columns`; not to be appended to any more.
    """
    pa = require_pyarrow()
    fields = schema()
    arrays = {
        "key": columns.column_key(),
        "value": columns.column_value(),
        "offset": columns.column_offset(),
        "timestamp": columns.column_timestamp(),
        "timestampType": columns.column_timestamp_type(),
    }
    made = {
        "topic": _repeated(pa, [(tp.topic, count) for tp, count in runs], pa.string()),
        "partition": _repeated(pa, [(tp.partition, count) for tp, count in runs], pa.int32()),
    }
    for name, column in arrays.items():
        buffers = [column.validity, column.offsets, column.data]
        if column.offsets is None:
            del buffers[1]
        made[name] = pa.Array.from_buffers(
            fields.field(name).type,
            len(columns),
            [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers],
            column.null_count,
        )
    return pa.RecordBatch.from_arrays([made[field.name] for field in fields], schema=fields)


def _repeated(pa: Any, runs: Sequence[tuple[Any, int]], type_: pa.DataType) -> pa.Array:
    repeated = [pa.repeat(pa.scalar(value, type_), count) for value, count in runs]
    if len(repeated) == 1:
        return repeated[0]
    return pa.concat_arrays(repeated) if repeated else pa.array([], type_)
