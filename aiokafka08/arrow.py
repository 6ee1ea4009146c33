"""Messages as Arrow record batches: the only door to pyarrow (extra `aiokafka08[arrow]`).

`record_batch` makes them of what was read, `Rows` takes them apart for what is to be sent. The
columns are those of Spark's Kafka source. pyarrow is imported at the first use.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError
from aiokafka08.protocol.message_set import Blobs, Columns
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


# --- to be sent -----------------------------------------------------------------------------------


class Rows:
    """Rows to be sent, column by column; nothing is copied that has its place in Arrow's buffers.

    Attributes:
        indices: their places in the batch that was given.
        values: of all rows.
        keys: None where no row has one.
        timestamps_ms: None where no row has one.
        names_partitions: whether some row says where it goes.
    """

    __slots__ = ("_batch", "indices", "keys", "names_partitions", "timestamps_ms", "values")

    def __init__(self, batch: pa.RecordBatch, indices: Sequence[int]) -> None:
        names = batch.schema.names
        self._batch = batch
        self.indices = indices
        self.values = _blobs(batch.column("value"))
        self.keys = _blobs(batch.column("key")) if "key" in names else None
        self.timestamps_ms = _numbers(batch.column("timestamp")) if "timestamp" in names else None
        self.names_partitions = "partition" in names

    @classmethod
    def of(cls, batch: Any, now_ms: int) -> Self:
        """Those of a whole batch, with `now_ms` where only some have a timestamp.

        Raises:
            KafkaConfigurationError: pyarrow isn't installed.
            TypeError: it isn't a RecordBatch, or a column is of a wrong type.
            IllegalArgumentError: there is no column `value`, or a row has a negative timestamp, or
                a number that is too large.
        """
        pa = require_pyarrow()
        import pyarrow.compute as pc

        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"a pyarrow.RecordBatch is wanted, not {type(batch).__name__}")
        if "value" not in batch.schema.names:
            raise IllegalArgumentError(
                f"there is no column 'value' among {', '.join(batch.schema.names) or 'none'}"
            )
        columns = {"value": _binary(pa, batch, "value")}
        for name, convert in (
            ("key", _binary),
            ("partition", _partitions),
            ("timestamp", _milliseconds),
        ):
            if name in batch.schema.names:
                column = convert(pa, batch, name)
                if column.null_count < len(column):
                    columns[name] = column
        if "timestamp" in columns:
            row = pc.index(pc.less(columns["timestamp"], 0), True).as_py()
            if row >= 0:
                value = columns["timestamp"][row].as_py()
                raise IllegalArgumentError(
                    f"row {row} has the timestamp {value} ms; allowed are integers from 0 on"
                )
            columns["timestamp"] = columns["timestamp"].fill_null(now_ms)
        return cls(pa.RecordBatch.from_pydict(columns), range(batch.num_rows))

    @property
    def row_bytes(self) -> int:
        """What a row takes on average, at least 1."""
        return max(int(self._batch.nbytes) // max(len(self.values), 1), 1)

    def named(self) -> list[int]:
        """The partitions that rows name."""
        if not self.names_partitions:
            return []
        found: list[int] = self._batch.column("partition").unique().drop_null().to_pylist()
        return found

    def longer(self, limit_bytes: int) -> tuple[int, int] | None:
        """The first row whose key and value are longer together, and how long they are."""
        import pyarrow.compute as pc

        lengths = [
            pc.binary_length(self._batch.column(name)).cast("int64").fill_null(0)
            for name in ("value", "key")
            if name in self._batch.schema.names
        ]
        total = lengths[0] if len(lengths) == 1 else pc.add(*lengths)
        row = pc.index(pc.greater(total, limit_bytes), True).as_py()
        return None if row < 0 else (row, total[row].as_py())

    def part(self, start: int, count: int) -> Rows:
        """So many rows from there on, or as many as there are."""
        return Rows(self._batch.slice(start, count), self.indices[start : start + count])

    def by_partition(
        self, by_key: array[int] | None, choose: Callable[[list[int]], list[int]]
    ) -> list[tuple[int, Rows]]:
        """The rows of a contiguous part, sorted by partition; their order stays.

        Args:
            by_key: a partition for each row that names none; -1: none.
            choose: is asked for what is missing then, with the places of these rows.
        """
        pa = require_pyarrow()
        import pyarrow.compute as pc

        count = self._batch.num_rows
        if self.names_partitions:
            column = self._batch.column("partition")
        else:
            column = pa.nulls(count, pa.int32())
        if by_key is not None and column.null_count:
            chosen = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(by_key)])
            column = pc.coalesce(column, pc.if_else(pc.less(chosen, 0), None, chosen))
        if column.null_count:
            missing = column.is_null()
            places = pc.indices_nonzero(missing).to_pylist()
            column = pc.replace_with_mask(column, missing, pa.array(choose(places), pa.int32()))
        sizes = sorted((one["values"], one["counts"]) for one in column.value_counts().to_pylist())
        if len(sizes) == 1:
            return [(sizes[0][0], self)]
        order = pc.sort_indices(column)  # stable
        batch = self._batch.take(order)
        indices = _numbers(pc.add(order.cast("int64"), self.indices[0]))
        parts, start = [], 0
        for partition, size in sizes:
            part = Rows(batch.slice(start, size), indices[start : start + size])
            parts.append((partition, part))
            start += size
        return parts


def _blobs(column: Any) -> Blobs:
    validity, offsets, data = column.buffers()
    wide = str(column.type).startswith("large_")
    return Blobs(
        column.offset, len(column), validity if column.null_count else None, offsets, data, wide
    )


def _numbers(column: Any) -> memoryview[int]:
    """Those of a column of int64 without nulls."""
    numbers = memoryview(column.buffers()[1]).cast("B").cast("q")
    return numbers[column.offset : column.offset + len(column)]


def _binary(pa: Any, batch: Any, name: str) -> Any:
    """A column of binary or text, with offsets."""
    column, types = batch.column(name), pa.types
    kind = column.type
    if str(kind) in ("binary", "string", "large_binary", "large_string"):
        return column
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind) or str(kind).split("[")[0] in _OTHER_BINARIES:
        return _cast(pa, column, name, pa.large_binary(), "binary and text")
    raise _wrong_type(name, column, "binary and text")


_OTHER_BINARIES = {
    "binary", "binary_view", "fixed_size_binary", "large_binary", "large_string", "string",
    "string_view",
}  # fmt: skip


def _partitions(pa: Any, batch: Any, name: str) -> Any:
    """A column of int32."""
    column = batch.column(name)
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return _cast(pa, column, name, pa.int32(), "integers of 32 bits")
    raise _wrong_type(name, column, "integers")


def _milliseconds(pa: Any, batch: Any, name: str) -> Any:
    """A column of int64."""
    column, kind = batch.column(name), batch.column(name).type
    allowed = "timestamps, and integers: milliseconds since the epoch"
    if pa.types.is_timestamp(kind):
        exact = kind.unit in ("s", "ms")
        column = _cast(pa, column, name, pa.timestamp("ms", kind.tz), allowed, exact=exact)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise _wrong_type(name, column, allowed)
    return _cast(pa, column, name, pa.int64(), allowed)


def _cast(pa: Any, column: Any, name: str, kind: Any, allowed: str, *, exact: bool = True) -> Any:
    try:
        return column.cast(kind, safe=exact)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise IllegalArgumentError(
            f"the column {name!r}: {error}; allowed are {allowed}"
        ) from error


def _wrong_type(name: str, column: Any, allowed: str) -> TypeError:
    return TypeError(f"the column {name!r} is of type {column.type}; allowed are {allowed}")
