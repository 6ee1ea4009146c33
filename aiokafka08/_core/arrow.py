"""Convert between messages and Arrow record batches; only this module and `spark` import pyarrow.

Owns the Arrow schema of received messages (`schema`), the batches built from decoded columns
(`record_batch`), and the columns of a batch to be produced (`ArrowRows`). The column names are
those of Spark's Kafka source; columns are found by name, never by place.

Invariant: keys and values are not copied and become no Python objects, in either direction, unless
a column has to be cast or its rows have to be sorted by partition. No column and no scalar is made
from Python objects either, because pyarrow would then import pandas where it is installed.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, Self

from aiokafka08 import environment
from aiokafka08._core.concurrency.offload import Offload
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError
from aiokafka08.protocol.message_set import BinaryColumn, Column, Columns
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import Array as Array  # for annotations in other modules
    from pyarrow import DataType as DataType
    from pyarrow import RecordBatch as RecordBatch


_imported = threading.Event()  # set when the import of pyarrow has ended


def require_pyarrow() -> Any:
    """Return the module pyarrow; raise KafkaConfigurationError if it isn't installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise KafkaConfigurationError(
            "Arrow batches: pyarrow is not installed. Run pip install 'aiokafka08[arrow]'"
        ) from error
    _imported.set()
    return pyarrow


async def import_pyarrow(offload: Offload) -> None:
    """Do what `require_pyarrow` does, in a thread if pyarrow isn't imported yet."""
    # The first import would hold the event loop for long. A simulation never uses the thread, so
    # that a run doesn't depend on what the process has imported before.
    if _imported.is_set() or not environment.is_real:
        require_pyarrow()
    else:
        await offload.run(require_pyarrow)


# --- received messages ----------------------------------------------------------------------------


@cache
def schema() -> pa.Schema:
    """Return the schema of received messages.

    `timestamp` is in microseconds (UTC), though Kafka's timestamps are in milliseconds. `timestamp`
    and `timestampType` are null in message format 0, which has no timestamps. `timestamp` is also
    null where it is negative, or beyond the range of microseconds in int64.
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
    """Build one record batch from decoded columns, whose buffers it takes over without a copy.

    `runs` are pairs of a partition and a number of consecutive messages. Don't append to `columns`
    afterwards.
    """
    pa = require_pyarrow()
    fields = schema()
    count = len(columns)
    partitions = b"".join(tp.partition.to_bytes(4, sys.byteorder) * run for tp, run in runs)
    made = {
        "key": columns.column_key(),
        "value": columns.column_value(),
        "partition": Column(None, None, partitions, 0),
        "offset": columns.column_offset(),
        "timestamp": columns.column_timestamp(),
        "timestampType": columns.column_timestamp_type(),
    }
    return pa.RecordBatch.from_arrays(
        [
            _topic_array(pa, runs)
            if field.name == "topic"
            else _array(pa, field.type, count, made[field.name])
            for field in fields
        ],
        schema=fields,
    )


def _array(pa: Any, type_: pa.DataType, count: int, column: Column) -> pa.Array:
    buffers = [column.validity, column.offsets, column.data]
    if column.offsets is None:
        del buffers[1]
    return pa.Array.from_buffers(
        type_,
        count,
        [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers],
        column.null_count,
    )


def _topic_array(pa: Any, runs: Sequence[tuple[TopicPartition, int]]) -> pa.Array:
    parts = []
    for topic, its_runs in groupby(runs, key=lambda run: run[0].topic):
        count = sum(rows for _, rows in its_runs)
        # Rounded up to a power of two, so that batches of similar sizes find a cached array
        parts.append(_repeat_topic(topic, 1 << (count - 1).bit_length()).slice(0, count))
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, pa.string())


@lru_cache(maxsize=8)
def _repeat_topic(topic: str, rows: int) -> pa.Array:
    """Return an array that repeats a topic's name, from buffers; batches share parts of it."""
    pa = require_pyarrow()
    name = topic.encode()
    names = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(array("i", [0, len(name)])), pa.py_buffer(name)], 0
    )
    return pa.repeat(names[0], rows)


def scalar(value: int) -> Any:
    """Return an int64 scalar, from a buffer."""
    pa = require_pyarrow()
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", [value]))])[0]


# --- messages to be produced ----------------------------------------------------------------------


class ArrowRows:
    """Columns of a record batch to be produced: a whole batch, or some of its rows."""

    __slots__ = ("_batch", "has_partitions", "indices", "keys", "timestamps_ms", "values")

    def __init__(self, batch: pa.RecordBatch, indices: Sequence[int]) -> None:
        names = batch.schema.names
        self._batch = batch
        self.indices = indices  # the index of each row in the batch that the caller passed
        self.values = as_binary_column(batch.column("value"))  # the values of all rows
        # The keys of all rows, or None if no row of the caller's batch has a key
        self.keys = as_binary_column(batch.column("key")) if "key" in names else None
        # The timestamps of all rows, or None if no row of the caller's batch has a timestamp
        self.timestamps_ms = (
            _int64_values(batch.column("timestamp")) if "timestamp" in names else None
        )
        # True if at least one row of the caller's batch names its partition
        self.has_partitions = "partition" in names

    @classmethod
    def from_batch(cls, batch: Any, now_ms: int) -> Self:
        """Check a batch and return its rows.

        If some rows have a timestamp and some don't, those without get `now_ms`.

        Raises:
            KafkaConfigurationError: pyarrow is not installed.
            TypeError: `batch` is no RecordBatch, or a column has a wrong type.
            IllegalArgumentError: the column `value` is missing, a timestamp is negative, or a
                number is too large.
        """
        pa = require_pyarrow()
        import pyarrow.compute as pc

        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"batch: {type(batch).__name__}; expected a pyarrow.RecordBatch")
        if "value" not in batch.schema.names:
            raise IllegalArgumentError(
                f"batch: no column 'value', columns: {', '.join(batch.schema.names) or 'none'}; "
                "expected a column 'value' of binary or text"
            )
        columns = {"value": binary_column(pa, batch, "value")}
        for name, convert in (
            ("key", binary_column),
            ("partition", _partition_column),
            ("timestamp", _timestamp_column),
        ):
            if name in batch.schema.names:
                column = convert(pa, batch, name)
                if column.null_count < len(column):
                    columns[name] = column
        if "timestamp" in columns:
            negative = pc.indices_nonzero(pc.less(columns["timestamp"], scalar(0)))
            if len(negative):
                row = negative[0].as_py()
                value = columns["timestamp"][row].as_py()
                raise IllegalArgumentError(
                    f"column 'timestamp': row {row} has {value} ms; expected a number >= 0"
                )
            columns["timestamp"] = columns["timestamp"].fill_null(scalar(now_ms))
        return cls(pa.RecordBatch.from_pydict(columns), range(batch.num_rows))

    @property
    def average_row_bytes(self) -> int:
        return max(int(self._batch.nbytes) // max(len(self.values), 1), 1)

    def named_partitions(self) -> list[int]:
        """Return the partitions that the rows name, each once."""
        if not self.has_partitions:
            return []
        partitions: list[int] = self._batch.column("partition").unique().drop_null().to_pylist()
        return partitions

    def find_larger_row(self, limit_bytes: int) -> tuple[int, int] | None:
        """Return the first row larger than `limit_bytes` (key and value), and its size; or None."""
        import pyarrow.compute as pc

        lengths = [
            pc.binary_length(self._batch.column(name)).cast("int64").fill_null(scalar(0))
            for name in ("value", "key")
            if name in self._batch.schema.names
        ]
        total = lengths[0] if len(lengths) == 1 else pc.add(*lengths)
        large = pc.indices_nonzero(pc.greater(total, scalar(limit_bytes)))
        return (large[0].as_py(), total[large[0].as_py()].as_py()) if len(large) else None

    def slice(self, start: int, count: int) -> ArrowRows:
        """Return `count` rows from `start` on, or as many as exist. Nothing is copied."""
        return ArrowRows(self._batch.slice(start, count), self.indices[start : start + count])

    def split_by_partition(
        self, by_key: array[int] | None, choose: Callable[[list[int]], list[int]]
    ) -> list[tuple[int, ArrowRows]]:
        """Return the rows of each partition, in their order.

        These rows must be consecutive in the caller's batch (the returned ones may not be).

        Args:
            by_key: the partition of each row's key, -1 for a row without a key. None if keys don't
                decide.
            choose: called with the indices (within these rows) of the rows that have no partition
                yet; returns a partition for each.
        """
        pa = require_pyarrow()
        import pyarrow.compute as pc

        count = self._batch.num_rows
        if self.has_partitions:
            column = self._batch.column("partition")
        else:
            column = pa.nulls(count, pa.int32())
        if by_key is not None and column.null_count:
            of_keys = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(by_key)])
            has_key = pc.greater_equal(of_keys, scalar(0))
            column = pc.coalesce(column, pc.if_else(has_key, of_keys, pa.nulls(count, pa.int32())))
        if column.null_count:
            is_missing = column.is_null()
            rows = pc.indices_nonzero(is_missing).to_pylist()
            chosen = pa.py_buffer(array("i", choose(rows)))
            chosen = pa.Array.from_buffers(pa.int32(), len(rows), [None, chosen])
            column = pc.replace_with_mask(column, is_missing, chosen)
        sizes = sorted(
            (entry["values"], entry["counts"]) for entry in column.value_counts().to_pylist()
        )
        if len(sizes) == 1:
            return [(sizes[0][0], self)]
        order = pc.sort_indices(column)  # the sort is stable, so the order within a partition stays
        batch = self._batch.take(order)
        # Computed from the first index, so the rows must be consecutive.
        indices = _int64_values(pc.add(order.cast("int64"), scalar(self.indices[0])))
        parts, start = [], 0
        for partition, size in sizes:
            part = ArrowRows(batch.slice(start, size), indices[start : start + size])
            parts.append((partition, part))
            start += size
        return parts


def as_binary_column(column: Any) -> BinaryColumn:
    """Return a column of binary or text as the message encoder reads it."""
    validity, offsets, data = column.buffers()
    is_large = str(column.type).startswith("large_")
    return BinaryColumn(
        column.offset, len(column), validity if column.null_count else None, offsets, data, is_large
    )


def count_filled_lists(column: Any) -> int:
    import pyarrow.compute as pc

    count: int | None = pc.sum(pc.greater(pc.list_value_length(column), scalar(0))).as_py()
    return count or 0


def count_rows_by_partition(batch: Any) -> Counter[TopicPartition]:
    """Count the rows of a batch by its columns `topic` and `partition`, run by run."""
    import pyarrow.compute as pc

    columns = batch.column("topic"), batch.column("partition")
    ends = sorted(
        {end for column in columns for end in pc.run_end_encode(column).run_ends.to_pylist()}
    )
    counts: Counter[TopicPartition] = Counter()
    for start, end in pairwise([0, *ends]):
        topic, partition = (column[start].as_py() for column in columns)
        counts[TopicPartition(topic, partition)] += end - start
    return counts


def _int64_values(column: Any) -> memoryview[int]:
    values = memoryview(column.buffers()[1]).cast("B").cast("q")
    return values[column.offset : column.offset + len(column)]


def binary_column(pa: Any, batch: Any, name: str) -> Any:
    """Return a column as binary or text with an offsets buffer."""
    column, types = batch.column(name), pa.types
    kind = column.type
    if str(kind) in ("binary", "string", "large_binary", "large_string"):
        return column
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind) or str(kind).split("[")[0] in _CASTABLE_TO_BINARY:
        return _cast(pa, column, name, pa.large_binary(), "binary or text")
    raise _wrong_type(name, column, "binary or text")


_CASTABLE_TO_BINARY: Final = {
    "binary", "binary_view", "fixed_size_binary", "large_binary", "large_string", "string",
    "string_view",
}  # fmt: skip


def _partition_column(pa: Any, batch: Any, name: str) -> Any:
    column = batch.column(name)
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return _cast(pa, column, name, pa.int32(), "integers of 32 bits")
    raise _wrong_type(name, column, "integers")


def _timestamp_column(pa: Any, batch: Any, name: str) -> Any:
    """Return a column as int64, in milliseconds since the epoch."""
    column, kind = batch.column(name), batch.column(name).type
    expected = "timestamps, or integers in milliseconds since the epoch"
    if pa.types.is_timestamp(kind):
        exact = kind.unit in ("s", "ms")
        column = _cast(pa, column, name, pa.timestamp("ms", kind.tz), expected, exact=exact)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise _wrong_type(name, column, expected)
    return _cast(pa, column, name, pa.int64(), expected)


def _cast(pa: Any, column: Any, name: str, kind: Any, expected: str, *, exact: bool = True) -> Any:
    """Return a column as another type; with `exact` a lossy cast is an error."""
    try:
        return column.cast(kind, safe=exact)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise IllegalArgumentError(f"column {name!r}: {error}; expected {expected}") from error


def _wrong_type(name: str, column: Any, expected: str) -> TypeError:
    return TypeError(f"column {name!r}: type {column.type}; expected {expected}")
