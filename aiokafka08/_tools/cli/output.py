"""Print rows and bytes to stdout.

A command that prints rows passes them to `write_rows()` as dicts, with the names of its fields.
The formats:

| `--format` | |
|---|---|
| `table` | columns for people, the default on a terminal |
| `tsv` | a header and one line per row, the default elsewhere |
| `json` | one JSON array |
| `jsonl` | one JSON object per line |

In TSV null is nothing, a list has commas, and a tab, newline or backslash in a value is written as
`\\t`, `\\n` or `\\\\`.

Invariant: a failed write raises an `OSError` whose `filename` is "stdout"; if the reader has closed
its end, that is a `BrokenPipeError`, which ends the command silently.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from aiokafka08._core.names import visible

FORMATS: Final = ("table", "tsv", "json", "jsonl")

Row = Mapping[str, Any]
"""Field → a value that JSON can express."""


def is_terminal() -> bool:
    """Return True if stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def write_bytes(data: bytes | memoryview, *, flush: bool = False) -> None:
    """Write bytes to stdout.

    Args:
        data: the bytes.
        flush: True hands them to the system at once (default False).

    Raises:
        OSError: the write failed; the filename is "stdout".
    """
    try:
        if sys.stdout is None:
            raise OSError(9, "Bad file descriptor")
        sys.stdout.buffer.write(data)
        if flush:
            sys.stdout.buffer.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from None


def write_text(text: str, *, flush: bool = False) -> None:
    """Write text to stdout as UTF-8, whatever the locale is; raises as `write_bytes`."""
    write_bytes(text.encode("utf-8", "surrogateescape"), flush=flush)


def write_json(value: object) -> None:
    """Write a value as indented JSON; raises as `write_bytes`."""
    import json

    write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", flush=True)


def write_rows(
    rows: Iterable[Row], fields: Iterable[str], format: str | None, *, title: str = ""
) -> None:
    """Write rows in one of `FORMATS`.

    Args:
        rows: the rows; a missing field counts as None.
        fields: the names of the fields, in order.
        format: the value of `--format`; None chooses the format by stdout.
        title: shown above a table (default "").

    Raises:
        OSError: as `write_bytes`.
    """
    names = list(fields)
    chosen = format or default_format()
    complete = ({name: row.get(name) for name in names} for row in rows)
    if chosen == "table":
        _write_table([list(row.values()) for row in complete], names, title)
    elif chosen == "json":
        write_json(list(complete))
    elif chosen == "jsonl":
        write_jsonl(complete)
    else:
        lines = [names, *([tsv_value(value) for value in row.values()] for row in complete)]
        write_text("".join("\t".join(line) + "\n" for line in lines), flush=True)


@contextmanager
def rows_so_far(fields: Iterable[str], format: str | None) -> Iterator[list[Row]]:
    """Yield a list for rows, and write those that it has at the end of the block.

    If the block fails, they show what was done before. Then nothing is written without rows.

    Args:
        fields: as for `write_rows`.
        format: as for `write_rows`.

    Raises:
        OSError: as `write_bytes`.
    """
    rows: list[Row] = []
    try:
        yield rows
    except BaseException:  # Ctrl-C, too
        if rows:
            write_rows(rows, fields, format)
        raise
    write_rows(rows, fields, format)


def write_jsonl(rows: Iterable[Row]) -> None:
    """Write each row as a line of JSON; raises as `write_bytes`."""
    import json

    for row in rows:
        write_text(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    write_bytes(b"", flush=True)


def default_format() -> str:
    """Return the format for stdout as it is: "table" on a terminal, otherwise "tsv"."""
    return "table" if is_terminal() else "tsv"


def tsv_value(value: object) -> str:
    """Return a value as TSV shows it."""
    text = "" if value is None else _plain(value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def table_value(value: object) -> str:
    """Return a value as a table shows it: "-" for null, escapes for what isn't printable."""
    return "-" if value is None else visible(_plain(value))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return str(value)


def _write_table(rows: Sequence[Sequence[object]], names: Sequence[str], title: str) -> None:
    import io

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, expand=False
    )
    console = Console(file=sys.stdout, highlight=False)
    texts = [[table_value(value) for value in row] for row in rows]
    # Between two columns are a space, a line and a space; the edges have one each.
    room = console.width - 3 * len(names) + 1
    widths = _column_widths(texts, names, room) if is_terminal() else None
    for index, name in enumerate(names):
        numbers = all(isinstance(row[index], int | float | None) for row in rows)
        table.add_column(
            name,
            justify="right" if numbers and rows else "left",
            overflow="fold",
            width=widths[index] if widths else None,
        )
    for row in texts:
        table.add_row(*map(Text, row))
    if is_terminal():
        console.print(table)
        write_bytes(b"", flush=True)
        return
    text = io.StringIO()
    Console(file=text, width=100_000, highlight=False).print(table)
    write_text("".join(line.rstrip() + "\n" for line in text.getvalue().splitlines()), flush=True)


def _column_widths(
    rows: Sequence[Sequence[str]], names: Sequence[str], room: int
) -> list[int] | None:
    """Return widths in which no name is broken; None if the names alone have no room.

    The widest columns get narrower first.
    """
    from rich.cells import cell_len

    least = [cell_len(name) for name in names]
    if sum(least) > room:
        return None
    widths = [
        min(room, max(cell_len(text) for text in column))
        for column in zip(names, *rows, strict=True)
    ]
    while sum(widths) > room:
        widest = max(
            (index for index, width in enumerate(widths) if width > least[index]),
            key=widths.__getitem__,
        )
        widths[widest] -= 1
    return widths
