"""Wire types, and the compiler from declared structs to readers and writers.

A struct is a dataclass whose fields are annotated with the wire types below;
`compiled(struct, version)` compiles it once per version.

Invariants: a reader returns a value or raises `KafkaProtocolError`, whatever the bytes are.
Before a reader allocates memory, it checks that the remaining bytes can hold the stated length (for
an array: the stated count, times the minimum size of an item). Between two yields a `StepReader`
reads at most `STEP_BYTES` and one more item, however long its arrays are.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import struct
import threading
import types as builtin_types
import typing
from collections.abc import Callable, Generator
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from aiokafka08.errors import KafkaProtocolError

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview
Reader = Callable[[Buffer, int, int], tuple[Any, int]]
"""`(data, position, end) -> (value, new position)`."""
StepReader = Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]
"""A `Reader` that is a generator: it yields now and then, and returns the result."""
STEP_BYTES: Final = 8192
ItemsReader = Callable[[Buffer, int, int], list[Any]]
"""`(data, position, count) -> values`; the caller has checked that the data is long enough."""
RestReader = Callable[[Buffer, int, int, int], tuple[Any, int]]
"""`(data, position, end, length) -> (value, new position)`."""
PartReader = Callable[[Buffer, int, int, list[Any]], int]
"""`(data, position, end, values) -> new position`: appends the values of fields of a struct."""
Writer = Callable[[Any, list[Buffer]], None]
"""`(value, out)`: append the encoded value to `out`, large buffers without a copy."""


# Arrays of fewer integers, such as the replicas of a partition, are read by a precompiled `Struct`
_FEW: Final = 8


class Fixed(NamedTuple):
    """A fixed-width big-endian integer; `code` is its letter in `struct` formats."""

    code: str


class Sized(NamedTuple):
    """A length field, then that many bytes; a negative length means null.

    `code` is the letter of the length field in `struct` formats. With `null_is_empty`, null (length
    -1 only) is read as an empty value, because both mean the same to the reader.
    """

    code: str
    text: bool
    nullable: bool
    null_is_empty: bool = False


class Since(NamedTuple):
    """The field is in versions `first` to `last`; in others its value is `absent`."""

    first: int
    absent: Any
    last: int = 0x7FFF


class NullSince(NamedTuple):
    """The array may be null from version `first` on. Before, null can't be encoded or decoded."""

    first: int


Int16 = Annotated[int, Fixed("h")]
Int32 = Annotated[int, Fixed("i")]
Int64 = Annotated[int, Fixed("q")]
Boolean = Annotated[bool, Fixed("?")]
String = Annotated[str, Sized("h", text=True, nullable=False)]
NullableString = Annotated[str | None, Sized("h", text=True, nullable=True)]
Host = Annotated[str, Sized("h", text=True, nullable=True, null_is_empty=True)]
"""The name of a host; "" for a broker whose address isn't known (docs/brokers.md 4.14)."""
Bytes = Annotated[Buffer, Sized("i", text=False, nullable=False)]
"""Opaque bytes after an int32 length (message sets, group metadata). If the frame is a
memoryview, the value is a view of it, not a copy."""
FetchedBytes = Annotated[Buffer, Sized("i", text=False, nullable=True, null_is_empty=True)]
"""`Bytes` that brokers send as null beside some error codes (docs/brokers.md 7.17)."""


class CompiledType(NamedTuple):
    """The reader and the writer of a type in one version, and its minimum size in bytes.

    `read_items` reads many values of `min_size` bytes each at once, `write_items` writes them; None
    for types that are read or written one by one. `read_steps` is None for a type without arrays of
    items that vary in size. `read_rest` reads the rest of a value after its length or count, whose
    letter is `length_code`; None for a type that doesn't begin with one.
    """

    read: Reader
    write: Writer
    min_size: int
    read_items: ItemsReader | None = None
    write_items: Callable[[list[Any]], bytes] | None = None
    read_steps: StepReader | None = None
    read_rest: RestReader | None = None
    length_code: str = ""


def cut_short(field: str, needed: int, left: int) -> KafkaProtocolError:
    """Make the error for a value that would extend beyond its frame."""
    return KafkaProtocolError(f"frame cut short: {field} needs {needed} bytes, {left} are left")


class TooManyItems(KafkaProtocolError):
    """The arrays of a request have more items than `read_limited` may read."""


class _ItemsLeft(threading.local):
    """How many items of arrays the `read_limited` in this thread may still read."""

    count = 0


_items_left = _ItemsLeft()


def read_limited(
    struct_class: type[T],
    version: int,
    data: Buffer,
    pos: int,
    max_items: int,
    *,
    lenient: bool = False,
) -> tuple[T, int]:
    """Read a struct, but no more than `max_items` items of all its arrays together.

    With `lenient` it is read as brokers of 0.8 do (`compiled`).

    Returns:
        The struct, and how many items its arrays have.

    Raises:
        TooManyItems: it has more. No array that goes beyond the limit is read.
        KafkaProtocolError: the data is cut short or malformed.
    """
    _items_left.count = max_items
    type_: Any = struct_class  # to mypy, classes aren't hashable
    value, _ = _compiled_with_limit(type_, version, lenient).read(data, pos, len(data))
    return value, max_items - _items_left.count


def _counted(read: Reader, item_size: int) -> Reader:
    """Return a reader of an array that subtracts the array's items from those left."""
    unpack_from = struct.Struct(">i").unpack_from

    def read_counted(data: Buffer, pos: int, end: int) -> tuple[Any, int]:
        if end - pos >= 4:
            count = unpack_from(data, pos)[0]
            if 0 < count * item_size <= end - pos - 4:  # else `read` raises, or no item follows
                _items_left.count -= count
                if _items_left.count < 0:
                    raise TooManyItems(f"an array of {count}: too many items in all")
        return read(data, pos, end)

    return read_counted


class _Mode(NamedTuple):
    """How a compiled reader differs from the client's."""

    lenient: bool = False
    limited: bool = False


def _compile(type_: Any, version: int, mode: _Mode, type_args: dict[TypeVar, Any]) -> CompiledType:
    if isinstance(type_, TypeVar):
        return _compile(type_args[type_], version, mode, type_args)
    origin = typing.get_origin(type_)
    if origin is Annotated:
        for wire in type_.__metadata__:
            if isinstance(wire, Fixed):
                return _compile_fixed(wire)
            if isinstance(wire, Sized):
                return _compile_sized(wire, mode.lenient)
            if isinstance(wire, NullSince) and version < wire.first:
                item = _item_type_of(type_.__origin__)
                compiled_item = _compile(item, version, mode, type_args)
                return _compile_array(compiled_item, mode, nullable=False)
        return _compile(type_.__origin__, version, mode, type_args)
    if origin is list:
        compiled_item = _compile(typing.get_args(type_)[0], version, mode, type_args)
        return _compile_array(compiled_item, mode, nullable=False)
    if origin in (typing.Union, builtin_types.UnionType):
        compiled_item = _compile(_item_type_of(type_), version, mode, type_args)
        return _compile_array(compiled_item, mode, nullable=True)
    if origin is not None:  # a generic struct, Topic[ProducePartition]
        parameters = origin.__parameters__
        return _compile_struct(
            origin, version, mode, dict(zip(parameters, typing.get_args(type_), strict=True))
        )
    if dataclasses.is_dataclass(type_):
        return _compile_struct(type_, version, mode, {})
    raise TypeError(f"{type_!r} is not a wire type")


def _compile_alone(type_: Any, version: int, lenient: bool = False) -> CompiledType:
    return _compile(type_, version, _Mode(lenient), {})


compiled: Callable[..., CompiledType] = functools.cache(_compile_alone)
"""Compile a struct class, or any annotated wire type, for a version. Cached.

`compiled(type, version, lenient=True)` reads as brokers of 0.8 do: each string may be null, and an
array with a negative count is empty. It writes None as null. The embedded cluster uses it.
"""


@functools.cache
def _compiled_with_limit(type_: Any, version: int, lenient: bool) -> CompiledType:
    return _compile(type_, version, _Mode(lenient, limited=True), {})


def _item_type_of(nullable: Any) -> Any:
    """Return the item type of `list[item] | None`."""
    (array,) = (arg for arg in typing.get_args(nullable) if arg is not type(None))
    return typing.get_args(array)[0]


def _compile_fixed(wire: Fixed) -> CompiledType:
    packer = struct.Struct(">" + wire.code)
    size, unpack_from, pack = packer.size, packer.unpack_from, packer.pack

    def read(data: Buffer, pos: int, end: int) -> tuple[Any, int]:
        if end - pos < size:
            raise cut_short("an integer", size, end - pos)
        return unpack_from(data, pos)[0], pos + size

    def write(value: Any, out: list[Buffer]) -> None:
        out.append(pack(value))

    unpackers = [struct.Struct(f">{count}{wire.code}").unpack_from for count in range(_FEW)]

    def read_items(data: Buffer, pos: int, count: int) -> list[Any]:
        if count < _FEW:
            return list(unpackers[count](data, pos))
        return list(struct.unpack_from(f">{count}{wire.code}", data, pos))

    return CompiledType(read, write, size, read_items)


def _compile_sized(wire: Sized, lenient: bool) -> CompiledType:
    packer = struct.Struct(">" + wire.code)
    size, unpack_from, pack = packer.size, packer.unpack_from, packer.pack
    text, nullable = wire.text, wire.nullable or (lenient and wire.text)
    null_is_empty, least = wire.null_is_empty, -1 if nullable else 0
    kind = "a string" if text else "a byte field"
    longest = (1 << (8 * size - 1)) - 1

    def read(data: Buffer, pos: int, end: int) -> tuple[Any, int]:
        if end - pos < size:
            raise cut_short(f"the length of {kind}", size, end - pos)
        return read_rest(data, pos + size, end, unpack_from(data, pos)[0])

    def read_rest(data: Buffer, pos: int, end: int, length: int) -> tuple[Any, int]:
        if length < 0:
            if nullable and not null_is_empty:
                return None, pos
            if length < least:
                raise KafkaProtocolError(f"{kind}: length {length}; expected >= {least}")
            length = 0
        if length > end - pos:
            raise cut_short(kind, length, end - pos)
        value: Any = data[pos : pos + length]
        if text:
            try:
                value = str(value, "utf-8")
            except UnicodeDecodeError as error:
                raise KafkaProtocolError(f"{kind}: not UTF-8 ({error.reason})") from None
        return value, pos + length

    def write(value: Any, out: list[Buffer]) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{kind}: None; expected a value, this field isn't nullable")
            out.append(pack(-1))
            return
        if text:
            value = value.encode()
        if len(value) > longest:
            raise ValueError(f"{kind}: {len(value)} bytes; expected at most {longest}")
        out.append(pack(len(value)))
        out.append(value)

    return CompiledType(read, write, size, read_rest=read_rest, length_code=wire.code)


def _compile_array(item: CompiledType, mode: _Mode, *, nullable: bool) -> CompiledType:
    read_item, write_item, item_size = item.read, item.write, item.min_size
    read_items, write_items = item.read_items, item.write_items
    unpack_from, pack = struct.Struct(">i").unpack_from, struct.Struct(">i").pack
    item_steps = item.read_steps

    def checked(count: int, left: int) -> int:
        """Return the count if the `left` bytes can hold as many items; -1 for null."""
        if count < 0:
            if nullable:
                return -1
            if mode.lenient:
                return 0
            raise KafkaProtocolError(f"an array: count {count}; expected >= 0")
        if count * item_size > left:
            raise cut_short(f"an array of {count}", count * item_size, left)
        return count

    def read_count(data: Buffer, pos: int, end: int) -> int:
        if end - pos < 4:
            raise cut_short("an array count", 4, end - pos)
        count: int = unpack_from(data, pos)[0]
        return count

    def read(data: Buffer, pos: int, end: int) -> tuple[Any, int]:
        return read_rest(data, pos + 4, end, read_count(data, pos, end))

    def read_rest(data: Buffer, pos: int, end: int, count: int) -> tuple[Any, int]:
        if count < 0 or count * item_size > end - pos:
            count = checked(count, end - pos)
            if count < 0:
                return None, pos
        if read_items is not None:
            return read_items(data, pos, count), pos + count * item_size
        items: list[Any] = []
        append = items.append
        for _ in range(count):
            value, pos = read_item(data, pos, end)
            append(value)
        return items, pos

    def read_steps(
        data: Buffer, pos: int, end: int
    ) -> Generator[None, None, tuple[list[Any] | None, int]]:
        count = checked(read_count(data, pos, end), end - pos - 4)
        pos += 4
        if count < 0:
            return None, pos
        items: list[Any] = []
        step_end = pos + STEP_BYTES
        for _ in range(count):
            if item_steps is None:
                value, pos = read_item(data, pos, end)
            else:
                try:  # most items are small, and are read at once in less time
                    value, pos = read_item(data, pos, min(pos + STEP_BYTES, end))
                except KafkaProtocolError:
                    value, pos = yield from item_steps(data, pos, end)
            items.append(value)
            if pos >= step_end:
                step_end = pos + STEP_BYTES
                yield
        return items, pos

    def write(value: Any, out: list[Buffer]) -> None:
        if value is None:
            if not nullable:
                raise ValueError("an array: None; expected a list, this field isn't nullable")
            out.append(pack(-1))
            return
        out.append(pack(len(value)))
        if write_items is not None:
            out.append(write_items(value))
            return
        for element in value:
            write_item(element, out)

    if mode.limited:
        return CompiledType(_counted(read, item_size), write, 4)
    return CompiledType(
        read,
        write,
        4,
        read_steps=read_steps if read_items is None else None,
        read_rest=read_rest,
        length_code="i",
    )


def _compile_struct(
    cls: Any, version: int, mode: _Mode, type_args: dict[TypeVar, Any]
) -> CompiledType:
    hints = typing.get_type_hints(cls, include_extras=True)
    # A run is a sequence of neighbouring fixed-width fields: (name, letter).
    run: list[tuple[str, str]] = []
    parts: list[tuple[PartReader, StepReader | None]] = []  # one for each run and each other field
    # The same as in `parts`, but one call reads a run together with the length or count after it
    readers: list[PartReader] = []
    writers: list[Writer] = []
    absent: list[tuple[str, Any]] = []
    min_size = 0

    read_items: ItemsReader | None = None
    write_items: Callable[[list[Any]], bytes] | None = None
    ends_with_bytes: struct.Struct | None = None

    def end_run() -> None:
        nonlocal read_items, write_items
        if run:
            names = tuple(name for name, _ in run)
            packer = struct.Struct(">" + "".join(code for _, code in run))
            parts.append((_run_reader(names, packer), None))
            writers.append(_run_writer(names, packer))
            if packer.size == min_size and _are_arguments(cls, names, absent):
                read_items = _items_reader(cls, packer)
                if len(names) > 1 and not absent:
                    write_items = _items_writer(cls, names, version, packer)
            run.clear()

    fields = dataclasses.fields(cls)
    for field in fields:
        type_ = hints[field.name]
        metadata = getattr(type_, "__metadata__", ())
        since = next((mark for mark in metadata if isinstance(mark, Since)), None)
        if since is not None and not since.first <= version <= since.last:
            absent.append((field.name, since.absent))
            continue
        fixed = next((mark for mark in metadata if isinstance(mark, Fixed)), None)
        if fixed is not None:
            run.append((field.name, fixed.code))
            min_size += struct.calcsize(">" + fixed.code)
            continue
        only_last = field is fields[-1] and 0 < len(run) == len(fields) - 1
        if only_last and any(isinstance(mark, Sized) and mark.code == "i" for mark in metadata):
            ends_with_bytes = struct.Struct(">" + "".join(code for _, code in run) + "i")
        codes, before = "".join(code for _, code in run), len(parts)
        end_run()
        read_items = write_items = None
        inner = _compile(type_, version, mode, type_args)
        parts.append((_field_reader(inner.read), inner.read_steps))
        one_by_one = [reader for reader, _ in parts[before:]]
        if inner.read_rest is None:
            readers += one_by_one
        else:
            head = struct.Struct(f">{codes}{inner.length_code}")
            readers.append(_sized_field_reader(head, inner.read_rest, one_by_one))
        writers.append(_field_writer(field.name, inner.write))
        min_size += inner.min_size
    if run:
        end_run()
        readers.append(parts[-1][0])

    write = _struct_writer(cls, version, absent, writers)
    if ends_with_bytes is not None:
        one_by_one = [reader for reader, _ in parts]
        return CompiledType(_bytes_struct_reader(cls, ends_with_bytes, one_by_one), write, min_size)
    read = _struct_reader(cls, absent, readers)
    read_steps = _struct_step_reader(cls, absent, parts)
    return CompiledType(read, write, min_size, read_items, write_items, read_steps)


def _struct_reader(cls: Any, absent: list[tuple[str, Any]], readers: list[PartReader]) -> Reader:
    build = _builder(cls, absent)

    def read(data: Buffer, pos: int, end: int) -> tuple[Any, int]:
        values: list[Any] = []
        for read_part in readers:
            pos = read_part(data, pos, end, values)
        return cls(*values) if build is None else build(values), pos

    return read


def _sized_field_reader(
    head: struct.Struct, read_rest: RestReader, one_by_one: list[PartReader]
) -> PartReader:
    """Return a reader of fixed-width fields, then of a value that begins with its length or count.

    Args:
        head: the fixed-width fields, and the length or count.
        read_rest: reads the value that follows the length.
        one_by_one: read the same in parts, and name the one that is cut short.
    """
    size, unpack_from = head.size, head.unpack_from

    def read(data: Buffer, pos: int, end: int, values: list[Any]) -> int:
        if end - pos < size:
            for read_part in one_by_one:
                pos = read_part(data, pos, end, values)
            return pos
        *fixed, length = unpack_from(data, pos)
        values += fixed
        value, pos = read_rest(data, pos + size, end, length)
        values.append(value)
        return pos

    return read


def _builder(cls: Any, absent: list[tuple[str, Any]]) -> Callable[[list[Any]], Any] | None:
    """Return a function from the read values to an instance; None if `cls(*values)` does it."""
    others = dict(absent)
    fields = [field for field in dataclasses.fields(cls) if field.name not in others]
    names = tuple(field.name for field in fields)
    if _are_arguments(cls, names, absent) and not any(field.kw_only for field in fields):
        return None
    return lambda values: cls(**dict(zip(names, values, strict=True)), **others)


def _struct_writer(
    cls: Any, version: int, absent: list[tuple[str, Any]], writers: list[Writer]
) -> Writer:
    name = cls.__name__

    def write(value: Any, out: list[Buffer]) -> None:
        for field_name, default in absent:
            if getattr(value, field_name) != default:
                raise ValueError(f"{name} version {version}: it has no field {field_name}")
        try:
            for write_part in writers:
                write_part(value, out)
        except struct.error as error:
            raise ValueError(f"{name} version {version}: {error}") from None

    return write


def _struct_step_reader(
    cls: Any, absent: list[tuple[str, Any]], parts: list[tuple[PartReader, StepReader | None]]
) -> StepReader | None:
    """Return a reader in steps of a struct with these parts; None if no part has steps."""
    if all(field_steps is None for _, field_steps in parts):
        return None

    build = _builder(cls, absent)

    def read(data: Buffer, pos: int, end: int) -> Generator[None, None, tuple[Any, int]]:
        values: list[Any] = []
        for read_part, field_steps in parts:
            if field_steps is None:
                pos = read_part(data, pos, end, values)
            else:
                value, pos = yield from field_steps(data, pos, end)
                values.append(value)
        return cls(*values) if build is None else build(values), pos

    return read


def _are_arguments(cls: Any, names: tuple[str, ...], absent: list[tuple[str, Any]]) -> bool:
    """Return whether `names` are the first fields, and the defaults of the rest are `absent`."""
    fields = dataclasses.fields(cls)
    defaults = [(field.name, field.default) for field in fields[len(names) :]]
    return tuple(field.name for field in fields[: len(names)]) == names and defaults == absent


def _items_reader(cls: Any, packer: struct.Struct) -> ItemsReader:
    size, unpack_from, iter_unpack = packer.size, packer.unpack_from, packer.iter_unpack

    def read(data: Buffer, pos: int, count: int) -> list[Any]:
        if count == 1:
            return [cls(*unpack_from(data, pos))]
        return list(itertools.starmap(cls, iter_unpack(data[pos : pos + count * size])))

    return read


def _bytes_struct_reader(cls: Any, packer: struct.Struct, readers: list[PartReader]) -> Reader:
    """Return a reader of a struct of fixed-width fields and then bytes, with one unpack call."""
    size, unpack_from = packer.size, packer.unpack_from
    read_run, read_bytes = readers

    def read(data: Buffer, pos: int, end: int) -> tuple[Any, int]:
        if end - pos >= size:
            *fields, length = unpack_from(data, pos)
            start = pos + size
            stop = start + length
            if start <= stop <= end:
                return cls(*fields, data[start:stop]), stop
        values: list[Any] = []  # read field by field, to name the wrong one
        pos = read_run(data, pos, end, values)
        pos = read_bytes(data, pos, end, values)
        return cls(*values), pos

    return read


def _items_writer(
    cls: Any, names: tuple[str, ...], version: int, packer: struct.Struct
) -> Callable[[list[Any]], bytes]:
    fields_of, pack = operator.attrgetter(*names), packer.pack
    name = cls.__name__

    def write(items: list[Any]) -> bytes:
        try:
            return b"".join(itertools.starmap(pack, map(fields_of, items)))
        except struct.error as error:
            raise ValueError(f"{name} version {version}: {error}") from None

    return write


def _run_reader(names: tuple[str, ...], packer: struct.Struct) -> PartReader:
    size, unpack_from = packer.size, packer.unpack_from

    def read(data: Buffer, pos: int, end: int, values: list[Any]) -> int:
        if end - pos < size:
            raise cut_short(", ".join(names), size, end - pos)
        values += unpack_from(data, pos)
        return pos + size

    return read


def _run_writer(names: tuple[str, ...], packer: struct.Struct) -> Writer:
    pack = packer.pack

    if len(names) == 1:
        (only,) = names

        def write_one(source: Any, out: list[Buffer]) -> None:
            out.append(pack(getattr(source, only)))

        return write_one

    fields_of = operator.attrgetter(*names)

    def write(source: Any, out: list[Buffer]) -> None:
        out.append(pack(*fields_of(source)))

    return write


def _field_reader(read_value: Reader) -> PartReader:
    def read(data: Buffer, pos: int, end: int, values: list[Any]) -> int:
        value, pos = read_value(data, pos, end)
        values.append(value)
        return pos

    return read


def _field_writer(name: str, write_value: Writer) -> Writer:
    def write(source: Any, out: list[Buffer]) -> None:
        write_value(getattr(source, name), out)

    return write
