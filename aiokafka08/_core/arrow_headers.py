"""Read and write the envelopes of headers (`embedded_headers`) of whole Arrow batches.

Owns the Arrow type of the column `headers`, which is that of Spark's Kafka source.

Invariant: columns are made from buffers, never by pyarrow from Python objects (see `arrow`). A
batch that has no envelope, or needs none, keeps its columns uncopied.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from aiokafka08._core.arrow import (
    as_binary_column,
    binary_column,
    count_filled_lists,
    require_pyarrow,
)
from aiokafka08.embedded_headers import MARK, Headers, embed, extract, locate
from aiokafka08.errors import EmbeddedHeadersError, IllegalArgumentError
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka08._core.arrow import Array, DataType, RecordBatch

# Rows that one step of `embed_rows` or `change_headers` handles
_PER_STEP: Final = 256

# A step of `extract_rows` ends when it has read this many headers
_HEADERS_PER_STEP: Final = 256


@cache
def headers_type() -> DataType:
    """Return the type of the column `headers`: a list of key and value; null without headers."""
    pa = require_pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", header))


def extract_rows(
    batch: RecordBatch,
    counts: Sequence[int],
    extract: Callable[[bytes], tuple[bytes, Headers]] = extract,
) -> Generator[None, None, tuple[RecordBatch, list[int], EmbeddedHeadersError | None]]:
    """Return a received batch with payloads as values, and the column `headers`, in steps.

    The rows are in runs, each of one partition: `counts` has the number of rows of each. A run is
    cut before its first row with a damaged envelope. Also returns how many rows are left of each
    run, and the first error or None.
    """
    pa = require_pyarrow()
    values = as_binary_column(batch.column("value"))
    error: EmbeddedHeadersError | None = None
    payloads: dict[int, bytes] = {}
    headers: dict[int, Headers] = {}
    marked = _marked_rows(batch.column("value"))
    rows: list[int] = []
    kept: list[int] = []
    start = headers_read = 0
    for count in counts:
        stop = end = start + count
        for row in marked[bisect_left(marked, start) : bisect_left(marked, end)]:
            value = values[row]
            assert value is not None
            try:
                payloads[row], headers[row] = extract(value)
            except EmbeddedHeadersError as damaged:
                error = error or _located(damaged, batch, row)
                stop = row
                break
            headers_read += 1 + len(headers[row])
            if headers_read >= _HEADERS_PER_STEP:
                headers_read = 0
                yield
        rows += range(start, stop)
        kept.append(stop - start)
        start = end
    if error is not None:
        indices = pa.Array.from_buffers(
            pa.int64(), len(rows), [None, pa.py_buffer(array("q", rows))]
        )
        batch = batch.take(indices)
    if payloads:
        position = batch.schema.get_field_index("value")
        replaced = [payloads.get(row, values[row]) for row in rows]
        column = _binary_array(pa, pa.binary(), replaced)
        batch = batch.set_column(position, batch.schema.field(position), column)
        yield
    column = yield from _headers_array(pa, [headers.get(row, ()) for row in rows])
    return batch.append_column(pa.field("headers", headers_type()), column), kept, error


def _located(error: EmbeddedHeadersError, batch: RecordBatch, row: int) -> EmbeddedHeadersError:
    topic, partition, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return locate(error, TopicPartition(topic, partition), offset)


def count_rows_with_headers(batch: RecordBatch) -> int:
    """Return how many rows have headers; TypeError if the column has a wrong type."""
    pa = require_pyarrow()
    if "headers" not in batch.schema.names:
        return 0
    column = batch.column("headers")
    _check_headers_type(column.type)
    if pa.types.is_null(column.type):
        return 0
    return count_filled_lists(column)


def embed_rows(batch: RecordBatch) -> Generator[None, None, tuple[RecordBatch, int]]:
    """Return a batch to be produced with the column `headers` embedded in `value`, in steps.

    Also returns the number of rows that have lost their headers, since their value is null.

    Raises:
        TypeError: the column `headers` has a wrong type.
        IllegalArgumentError: the headers of a row can't be embedded.
    """
    pa = require_pyarrow()
    column = binary_column(pa, batch, "value")
    values = as_binary_column(column)
    made: dict[int, bytes | None] = {}
    dropped = 0
    # Consumers would take a value that begins with the mark for an envelope, so embed it too.
    for row in _marked_rows(column):
        made[row] = embed(values[row], None)
    for start in range(0, batch.num_rows, _PER_STEP):
        if start:
            yield
        stop = min(start + _PER_STEP, batch.num_rows)
        for row, headers in enumerate(read_headers(batch, start, stop), start):
            if headers:
                try:
                    made[row] = embed(values[row], headers)
                except (IllegalArgumentError, TypeError) as error:
                    error.add_note(f"row {row}")
                    raise
                dropped += values[row] is None
    if made:
        replaced = [made.get(row, values[row]) for row in range(batch.num_rows)]
        position = batch.schema.get_field_index("value")
        column = _binary_array(pa, pa.large_binary(), replaced)
        batch = batch.set_column(position, "value", column)
    return batch, dropped


def change_headers(
    batch: RecordBatch, change: Callable[[bool, Headers | None], Headers | None]
) -> Generator[None, None, RecordBatch]:
    """Return a batch with the column `headers` changed, or added, in steps.

    `change(has_value, headers)` returns the new headers of a row. If a header has no key, the batch
    is returned unchanged, so that `embed_rows` raises the error. Raises TypeError if the column
    `headers` has a wrong type.
    """
    pa = require_pyarrow()
    filled = batch.column("value").is_valid().to_pylist()
    changed: list[Headers] = []
    for start in range(0, batch.num_rows, _PER_STEP):
        if start:
            yield
        stop = min(start + _PER_STEP, batch.num_rows)
        for has_value, headers in zip(
            filled[start:stop], read_headers(batch, start, stop), strict=True
        ):
            pairs: Sequence[Any] = headers or ()
            if not all(pair and pair[0] is not None for pair in pairs):
                return batch
            changed.append(change(has_value, headers) or ())
    column = yield from _headers_array(pa, changed)
    field = pa.field("headers", headers_type())
    if "headers" in batch.schema.names:
        return batch.set_column(batch.schema.get_field_index("headers"), field, column)
    return batch.append_column(field, column)


def _marked_rows(column: Any) -> list[int]:
    """Return the rows of a column of binary or text that begin with the mark of an envelope."""
    _, offsets_buffer, data_buffer = column.buffers()
    if not len(column) or data_buffer is None:
        return []
    offsets = memoryview(offsets_buffer).cast("B")
    offsets = offsets.cast("q" if str(column.type).startswith("large_") else "i")
    data, first = memoryview(data_buffer).cast("B"), column.offset
    starts = offsets[first : first + len(column) + 1].tolist()
    return [
        row
        for row, (start, end) in enumerate(pairwise(starts))
        if start < end and data[start] == MARK and column[row].is_valid
    ]


def read_headers(batch: RecordBatch, start: int, stop: int) -> Sequence[Headers | None]:
    """Return the headers of the rows from `start` to before `stop`.

    Raises TypeError if the column `headers` has a wrong type.
    """
    if "headers" not in batch.schema.names:
        return [None] * (stop - start)
    column = batch.column("headers")
    _check_headers_type(column.type)
    return [
        row and [header and (header["key"], header["value"]) for header in row]
        for row in column.slice(start, stop - start).to_pylist()
    ]


def _check_headers_type(type_: DataType) -> None:
    types = require_pyarrow().types
    if types.is_null(type_):
        return
    if types.is_list(type_) or types.is_large_list(type_):
        item = type_.value_type
        if types.is_null(item):
            return
        if types.is_struct(item) and {"key", "value"} <= {field.name for field in item}:
            key, value = str(item.field("key").type), str(item.field("value").type)
            if key.endswith("string") and value.endswith("binary"):
                return
    raise TypeError(
        f"column 'headers': type {type_}; expected list<struct<key: string, value: binary>>"
    )


def _headers_array(pa: Any, headers: Sequence[Headers]) -> Generator[None, None, Array]:
    """Return a column with the headers of each row, in steps."""
    type_ = headers_type()
    count = len(headers)
    if not any(headers):
        return pa.nulls(count, type_)
    pairs = [pair for row in headers for pair in row]
    keys = _binary_array(pa, pa.string(), [key.encode() for key, _ in pairs])
    yield
    values = _binary_array(pa, pa.binary(), [value for _, value in pairs])
    yield
    offsets = array("i", [0])
    for row in headers:
        offsets.append(offsets[-1] + len(row))
    return pa.Array.from_buffers(
        type_,
        count,
        [_validity(pa, [bool(row) for row in headers]), pa.py_buffer(offsets)],
        children=[pa.StructArray.from_arrays([keys, values], fields=list(type_.value_type))],
    )


def _binary_array(pa: Any, type_: DataType, items: Sequence[bytes | None]) -> Array:
    offsets = array("q" if str(type_).startswith("large_") else "i", [0])
    total = 0
    for item in items:
        total += len(item or b"")
        offsets.append(total)
    data = b"".join(item for item in items if item)
    validity = _validity(pa, [item is not None for item in items])
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(items), buffers)


def _validity(pa: Any, valid: Sequence[bool]) -> Any:
    """Return the bitmap of the valid items; None if all are."""
    if all(valid):
        return None
    bits = sum(1 << index for index, is_valid in enumerate(valid) if is_valid)
    return pa.py_buffer(bits.to_bytes((len(valid) + 7) // 8, "little"))
