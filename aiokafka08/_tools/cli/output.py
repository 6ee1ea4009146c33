"""Print rows and bytes to stdout.

Invariants: TSV and JSON are UTF-8 in a pipe or a file, whatever the locale is. On a terminal they
have escapes for control characters, and escapes or similar ASCII for characters that its encoding
lacks. A failed write raises an `OSError` whose `filename` is "stdout"; if the reader has closed its
end, that is a `BrokenPipeError`, which ends the command silently.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aiokafka08._core.names import visible
from aiokafka08._tools.cli import terminal
from aiokafka08._tools.text_columns import cut

if TYPE_CHECKING:
    from aiokafka08._tools.cli.table import Grouping

# In this order: columns for people (the default on a terminal), a header and a line per row (the
# default elsewhere), one JSON array, a JSON object per line.
FORMATS: Final = ("table", "tsv", "json", "jsonl")

# Field → a value that JSON can express.
Row = Mapping[str, Any]


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
    """Write text: on a terminal in characters that it can show, else as UTF-8.

    Raises:
        OSError: as `write_bytes`.
    """
    if terminal.is_terminal(sys.stdout):
        write_shown(terminal.printable(text), flush=flush)
    else:
        write_bytes(text.encode("utf-8", "surrogateescape"), flush=flush)


def write_shown(text: str, *, flush: bool = False) -> None:
    """Write text for people, in the encoding of stdout; the text may have colours.

    Raises:
        OSError: as `write_bytes`.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    write_bytes(text.encode(encoding, terminal.REPLACE), flush=flush)


def write_json(value: object) -> None:
    """Write a value as indented JSON; raises as `write_bytes`."""
    write_text(_json_text(value, indent=2) + "\n", flush=True)


def _json_text(value: object, **options: Any) -> str:
    """Return a value as JSON; on a terminal with escapes for characters that it can't show."""
    import json

    text = json.dumps(value, ensure_ascii=False, **options)
    if not terminal.is_terminal(sys.stdout):
        return text

    def is_shown(character: str) -> bool:
        return character == "\n" or (
            character.isprintable() and terminal.encodable(character, sys.stdout) == character
        )

    # Everything but strings is ASCII.
    return "".join(
        character if is_shown(character) else json.dumps(character)[1:-1] for character in text
    )


def write_rows(
    rows: Iterable[Row],
    fields: Iterable[str],
    format: str | None,
    *,
    title: str = "",
    grouping: Grouping | None = None,
) -> None:
    """Write rows in one of `FORMATS`.

    Args:
        rows: the rows; a missing field counts as None.
        fields: the names of the fields, in order.
        format: the value of `--format`; None chooses the format by stdout.
        title: shown above a table (default "").
        grouping: which rows form a section of a table (default None: none).

    Raises:
        OSError: as `write_bytes`.
    """
    names = list(fields)
    chosen = format or default_format()
    complete = [{name: row.get(name) for name in names} for row in rows]
    if chosen == "table":
        write_shown(shown_table(complete, names, title=title, grouping=grouping), flush=True)
    elif chosen == "json":
        write_json(complete)
    elif chosen == "jsonl":
        write_jsonl(complete)
    else:
        lines = [names, *([tsv_value(value) for value in row.values()] for row in complete)]
        write_text("".join("\t".join(line) + "\n" for line in lines), flush=True)


def shown_table(
    rows: Iterable[Row],
    fields: Iterable[str],
    *,
    title: str = "",
    grouping: Grouping | None = None,
) -> str:
    """Return rows as a table that suits stdout: on a terminal in its width, with its colours.

    Args:
        rows: as for `write_rows`.
        fields: as for `write_rows`.
        title: as for `write_rows`.
        grouping: as for `write_rows`.
    """
    from aiokafka08._tools.cli.table import Grouping, Style, table_text

    style = Style(
        width=terminal.width() if terminal.is_terminal(sys.stdout) else None,
        paint=terminal.painter(sys.stdout),
        encodable=lambda text: terminal.encodable(text, sys.stdout),
    )
    return table_text(rows, list(fields), style, title=title, grouping=grouping or Grouping())


def redraw(heading: str, text: str, *, is_first: bool) -> None:
    """Overwrite the terminal's content with a heading, and as much of a text as has room.

    If the text is too long, lines before its last one are left out.

    Args:
        heading: the first line, cut to the width.
        text: from `shown_table`.
        is_first: True clears the terminal before.

    Raises:
        OSError: as `write_bytes`.
    """
    lines, room = text.splitlines(), max(terminal.height() - 2, 1)
    if len(lines) > room:
        last = lines[-1:] if room > 1 else []  # the total of a table
        first = room - 1 - len(last)
        lines = [*lines[:first], f"({len(lines) - first - len(last)} more lines)", *last]
    lines = [cut(visible(heading), terminal.width()), *lines]
    shown = "".join(f"{line}\x1b[K\n" for line in lines)
    clear = "\x1b[2J" if is_first else ""
    write_shown(f"{clear}\x1b[H{shown}\x1b[J", flush=True)


@contextmanager
def rows_so_far(
    fields: Iterable[str], format: str | None, *, grouping: Grouping | None = None
) -> Iterator[list[Row]]:
    """Yield a list for rows, and write those that it has at the end of the block.

    If the block fails, the rows added so far are written too, to show the work that was done; if
    there are none, nothing is written.

    Args:
        fields: as for `write_rows`.
        format: as for `write_rows`.
        grouping: as for `write_rows`.

    Raises:
        OSError: as `write_bytes`.
    """
    rows: list[Row] = []
    try:
        yield rows
    except BaseException:  # Ctrl-C, too
        if rows:
            write_rows(rows, fields, format, grouping=grouping)
        raise
    write_rows(rows, fields, format, grouping=grouping)


def write_jsonl(rows: Iterable[Row]) -> None:
    """Write each row as a line of JSON; raises as `write_bytes`."""
    for row in rows:
        write_text(_json_text(row, separators=(",", ":")) + "\n")
    write_bytes(b"", flush=True)


def default_format() -> str:
    """Return the format that suits stdout: "table" on a terminal, otherwise "tsv"."""
    return "table" if terminal.is_terminal(sys.stdout) else "tsv"


def tsv_value(value: object) -> str:
    """Return a value as a field of TSV."""
    # Null is an empty field, and the items of a list are separated by commas.
    text = "" if value is None else _plain(value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return str(value)
