"""Lay rows out for people, in the width of a terminal. Pure.

Invariant: a name is never broken over two lines. It is shown whole, except that an id may be
shortened in the middle, as long as different ids stay different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from aiokafka08._core.names import visible
from aiokafka08._tools.cli.terminal import Paint, plain
from aiokafka08._tools.text_columns import text_width

Row = Mapping[str, Any]

GAP: Final = "  "
# The fields that are shortened in the middle.
_IDS: Final = frozenset({"member", "client_id"})
_ID_WIDTHS: Final = (13, 17, 21, 25, 33, 41)
# The least width of a column of texts, if there is room.
_PROSE_WIDTH: Final = 24
_PARTITION: Final = re.compile(r"(.+)/(\d+)")


class Grouping(NamedTuple):
    """The sections and sums of a table.

    Args:
        sections: the fields of a section's heading; the rows of a section are next to each other.
        totals: fields that are summed up for each section, and for all.
        once: fields that identify what a row is about, such as a group's partition. Rows in which
            they are equal, such as those of two stores, count once in a sum, by the smallest known
            value; () if each row counts.
        counts: returns whether a row counts in the sums (default: each does).
    """

    sections: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    counts: Callable[[Row], bool] = lambda row: True


class Style(NamedTuple):
    """What the output can show.

    Args:
        width: the number of columns; None if it isn't limited: then all fields stay.
        paint: gives texts a style.
        rule: the character of the line below the names of the fields.
        encodable: replaces characters that the output can't show.
    """

    width: int | None = None
    paint: Paint = plain
    rule: str = "─"
    encodable: Callable[[str], str] = str


class _Cell(NamedTuple):
    field: str
    value: Any
    text: str
    style: str | None


_Line = Mapping[str, _Cell]


def table_text(
    rows: Iterable[Row],
    fields: Sequence[str],
    style: Style,
    *,
    title: str = "",
    grouping: Grouping = Grouping(),  # noqa: B008
) -> str:
    """Return rows as text that ends with a newline.

    Args:
        rows: the rows; a missing field counts as None.
        fields: the names of the fields, in order.
        style: what the output can show.
        title: the first line (default "").
        grouping: the sections and sums (default: none).
    """
    lines = [
        {field: _cell(field, row.get(field), row, style.encodable) for field in fields}
        for row in rows
    ]
    table = _Table(lines, style)
    text = table.layout(list(fields), grouping)
    if title:
        text = f"{style.paint('heading', title)}\n{text}"
    return text


def _shortened(text: str, width: int, dots: str) -> str:
    """Return a text of at most this many columns, with dots in the middle if it is longer."""
    if text_width(text) <= width:
        return text
    tail = (width - len(dots)) // 2
    head = width - len(dots) - tail
    while head + tail > 0:
        short = text[:head] + dots + text[len(text) - tail :]
        if text_width(short) <= width:
            return short
        head, tail = (head - 1, tail) if head > tail else (head, tail - 1)
    return dots


class _Table:
    def __init__(self, lines: Sequence[_Line], style: Style) -> None:
        self._lines = lines
        self._style = style
        self._dots = style.encodable("…")
        self._rule = style.encodable(style.rule)[0]
        # The fields that have only numbers.
        self._numbers = {
            field
            for field in (lines[0] if lines else ())
            if all(_is_number(line[field].value) or line[field].value is None for line in lines)
        }

    def layout(self, fields: list[str], grouping: Grouping) -> str:
        width = self._style.width
        if width is None or not self._lines:
            return self._plain(fields)
        sections = [field for field in grouping.sections if field in fields]
        count = sum(1 for _ in self._runs(self._lines, sections))
        subtotals: list[str] = []
        # With fewer than two rows per section on average, don't split the table into sections. The
        # sums of the sections that have several rows follow the table.
        if count > 1 and len(self._lines) < 2 * count:
            subtotals = [
                _total(lines, grouping, key[0].text)
                for key, lines in self._runs(self._lines, sections)
                if len(lines) > 1
            ]
            sections = []
        columns = [field for field in fields if field not in sections]
        captions, empty = self._set_aside(columns, set(grouping.totals))
        columns = [field for field in columns if field not in captions and field not in empty]
        texts = []
        empty -= {"error"}  # its absence needs no caption
        if len(self._lines) > 1 and (captions or empty):
            texts.append(self._caption(captions, empty))
        # If the columns don't fit, and the values of the first one repeat, they become headings of
        # sections. Otherwise the first column gets a line of its own above the rest of its row. If
        # the rest doesn't fit either, each row becomes a block with a line for each field.
        inner: list[str] = []
        while (widths := self._fit(columns, width)) is None:
            longer = [*inner, columns[0]]
            if columns[0] in self._numbers or len(columns) < 3 or not self._repeats(longer):
                break
            inner, columns = longer, columns[1:]
        stacked = None
        if widths is None:
            columns, inner = [*inner, *columns], []
            stacked = self._fit(columns[1:], width - len(GAP)) if len(columns) > 2 else None
        for key, lines in self._runs(self._lines, sections):
            parts = [self._heading(key)] if key else []
            for inner_key, inner_lines in self._runs(lines, inner):
                if inner_key:
                    parts.append(self._heading(inner_key))
                if widths is not None:
                    parts.append(self._columns(columns, inner_lines, widths))
                elif stacked is not None:
                    parts.append(self._columns(columns[1:], inner_lines, stacked, columns[0]))
                else:
                    parts.append(self._blocks(columns, inner_lines, width))
            is_all = count > 1 and not sections
            if len(lines) > 1 and not is_all and (total := _total(lines, grouping, "total")):
                parts.append(self._style.paint("heading", total) + "\n")
            texts.append("".join(parts))
        if count > 1 and (total := _total(self._lines, grouping, "all")):
            totals = [self._style.paint("heading", text) for text in (*subtotals, total)]
            texts.append("\n".join(totals) + "\n")
        return "\n".join(texts)

    def _plain(self, fields: list[str]) -> str:
        """Return all columns in their natural widths; "no rows" if the header alone doesn't fit."""
        limit = self._style.width
        widths = self._natural(fields)
        if limit is not None and sum(widths.values()) + len(GAP) * (len(fields) - 1) > limit:
            return "no rows\n"
        return self._columns(fields, self._lines, widths)

    def _runs(
        self, lines: Sequence[_Line], fields: Sequence[str]
    ) -> Iterator[tuple[list[_Cell], list[_Line]]]:
        """Yield, for each run of lines that are equal in these fields, the cells and the lines."""
        for _, run in groupby(lines, key=lambda line: [line[field].text for field in fields]):
            found = list(run)
            yield [found[0][field] for field in fields], found

    def _repeats(self, fields: Sequence[str]) -> bool:
        runs = sum(1 for _ in self._runs(self._lines, fields))
        return len(self._lines) >= 2 * runs

    def _set_aside(
        self, fields: Sequence[str], totals: set[str]
    ) -> tuple[dict[str, _Cell], set[str]]:
        """Return columns with the same text in all rows, and empty ones; leave at least one."""
        # Numbers are measurements, which a reader looks for, so they stay even if all are equal.
        same: dict[str, _Cell] = {}
        empty: set[str] = set()
        for field in fields:
            cells = [line[field] for line in self._lines]
            if all(cell.value in (None, "", [], ()) for cell in cells):
                empty.add(field)
            elif (
                len(cells) > 1
                and field not in totals
                and field not in self._numbers
                and all(cell.text == cells[0].text for cell in cells)
            ):
                same[field] = cells[0]
        if len(same) + len(empty) == len(fields):
            same.pop(fields[0], None)
            empty.discard(fields[0])
        return same, empty

    def _caption(self, same: Mapping[str, _Cell], empty: Iterable[str]) -> str:
        pairs = [(f"{field}:", self._painted(cell)) for field, cell in same.items()]
        sizes = [len(field) + 2 + text_width(cell.text) for field, cell in same.items()]
        if empty:
            names = ", ".join(sorted(empty))
            pairs.append(("empty:", names))
            sizes.append(len("empty: ") + len(names))
        return self._pairs(pairs, sizes)

    def _heading(self, cells: Sequence[_Cell]) -> str:
        pairs = [
            (
                f"{cell.field}:",
                self._painted(cell._replace(style=cell.style or "heading")),
            )
            for cell in cells
        ]
        return self._pairs(pairs, [len(cell.field) + 2 + text_width(cell.text) for cell in cells])

    def _pairs(self, pairs: Sequence[tuple[str, str]], sizes: Sequence[int]) -> str:
        """Return names and texts, in as few lines as they fit in."""
        assert self._style.width is not None
        text, used = "", 0
        for (name, value), size in zip(pairs, sizes, strict=True):
            pair = f"{self._style.paint('dim', name)} {value}"
            if not used:
                text, used = text + pair, size
            elif used + len(GAP) + size <= self._style.width:
                text, used = f"{text}{GAP}{pair}", used + len(GAP) + size
            else:
                text, used = f"{text}\n{pair}", size
        return f"{text}\n"

    def _natural(self, fields: Sequence[str]) -> dict[str, int]:
        return {
            field: max([len(field), *(text_width(line[field].text) for line in self._lines)])
            for field in fields
        }

    def _fit(self, fields: Sequence[str], width: int) -> dict[str, int] | None:
        """Return the widths of the columns; None if there is no room for them."""
        room = width - len(GAP) * (len(fields) - 1)
        widths = self._natural(fields)
        least = {field: self._least(field, natural) for field, natural in widths.items()}
        if sum(least.values()) > room:
            return None
        while sum(widths.values()) > room:
            widest = max(
                (field for field in fields if widths[field] > least[field]),
                key=lambda field: widths[field],
            )
            widths[widest] -= 1
        return widths

    def _least(self, field: str, natural: int) -> int:
        texts = {line[field].text for line in self._lines}
        header = max(map(len, _atoms(field, after="_")))
        if field in _IDS:
            for width in _ID_WIDTHS:
                short = {_shortened(text, width, self._dots) for text in texts}
                if width < natural and len(short) == len(texts):
                    return max(header, width)
            return natural
        pieces = [atom for text in texts for atom in _atoms(text)]
        longest = max(map(text_width, pieces), default=0)
        prose = min(natural, _PROSE_WIDTH) if any(" " in text for text in texts) else 0
        return max(header, longest, prose)

    def _columns(
        self,
        fields: Sequence[str],
        lines: Sequence[_Line],
        widths: Mapping[str, int],
        above: str | None = None,
    ) -> str:
        """Return a header and the rows; the field `above` has lines of its own."""
        indent = "" if above is None else GAP
        numbers = self._numbers
        names = [_wrapped(field, widths[field], after="_") for field in fields]
        height = max(map(len, names))
        names = [[""] * (height - len(name)) + name for name in names]
        text = "" if above is None else f"{self._style.paint('heading', above)}\n"
        text += "".join(
            indent
            + self._joined(
                [
                    (name[index], _pad(name[index], widths[field], field in numbers), "heading")
                    for field, name in zip(fields, names, strict=True)
                ]
            )
            for index in range(height)
        )
        rules = GAP.join(self._rule * widths[field] for field in fields)
        text += f"{self._style.paint('dim', self._rule * len(indent) + rules)}\n"
        for line in lines:
            if above is not None:
                text += f"{self._painted(line[above])}\n"
            cells = [self._wrapped_cell(line[field], widths[field]) for field in fields]
            for index in range(max(map(len, cells))):
                parts = []
                for field, cell in zip(fields, cells, strict=True):
                    part = cell[index] if index < len(cell) else ""
                    padded = _pad(part, widths[field], field in numbers)
                    parts.append((part, padded, line[field].style))
                text += indent + self._joined(parts)
        return text

    def _joined(self, parts: Sequence[tuple[str, str, str | None]]) -> str:
        line = ""
        last = max((i for i, (part, _, _) in enumerate(parts) if part), default=-1)
        for index, (part, padded, style) in enumerate(parts[: last + 1]):
            if index == last:
                padded = padded.rstrip()
            if part and style is not None:
                padded = padded.replace(part, self._style.paint(style, part))
            line += padded if index == last else padded + GAP
        return f"{line}\n"

    def _wrapped_cell(self, cell: _Cell, width: int) -> list[str]:
        if cell.field in _IDS:
            return [_shortened(cell.text, width, self._dots)]
        return _wrapped(cell.text, width)

    def _blocks(self, fields: Sequence[str], lines: Sequence[_Line], width: int) -> str:
        indent = max(map(len, fields)) + len(GAP)
        blocks = []
        for line in lines:
            block = ""
            for number, field in enumerate(fields):
                cell = line[field]
                style = cell.style or (None if number else "heading")
                name = self._style.paint("dim", field) + " " * (indent - len(field))
                start = indent
                if max(map(text_width, _atoms(cell.text)), default=0) > width - indent:
                    name, start = f"{self._style.paint('dim', field)}\n{GAP}", len(GAP)
                for index, text in enumerate(_wrapped(cell.text, max(width - start, 1))):
                    shown = text if style is None else self._style.paint(style, text)
                    block += f"{' ' * start if index else name}{shown}\n"
            blocks.append(block)
        return "\n".join(blocks)

    def _painted(self, cell: _Cell) -> str:
        return cell.text if cell.style is None else self._style.paint(cell.style, cell.text)


def _total(lines: Sequence[_Line], grouping: Grouping, label: str) -> str:
    """Return the sums of these lines; "" if `grouping` has no totals."""
    counted: dict[object, list[_Line]] = {}
    for number, line in enumerate(lines):
        if grouping.counts({field: cell.value for field, cell in line.items()}):
            key = tuple(line[field].value for field in grouping.once) or number
            counted.setdefault(key, []).append(line)
    texts = []
    for field in grouping.totals:
        known = []
        for of_key in counted.values():
            values = [line[field].value for line in of_key if line[field].value is not None]
            if values:
                known.append(min(values))
        text = f"{field} {sum(known)}" if known or not counted else f"{field} unknown"
        if known and len(known) < len(counted):
            text += f" (unknown for {len(counted) - len(known)})"
        texts.append(text)
    return f"{label}: {', '.join(texts)}" if texts else ""


def _cell(field: str, value: Any, row: Row, encodable: Callable[[str], str]) -> _Cell:
    text = cell_text(value)
    if value is None and field == "before" and row.get("outcome") not in ("refused", "unreadable"):
        text = "nothing"  # there was no committed offset before
    return _Cell(field, value, encodable(text), _style(field, value, row))


def cell_text(value: object) -> str:
    """Return a value as a table shows it: "-" for null, escapes for what isn't printable.

    Partitions of one topic are put together: "orders/0-2,5".
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return visible(_list_text(value))
    return visible(str(value))


def _list_text(values: Sequence[object]) -> str:
    found = [_PARTITION.fullmatch(value) for value in values if isinstance(value, str)]
    if not values or len(found) < len(values) or None in found:
        return ",".join(map(str, values))
    partitions: dict[str, set[int]] = {}
    for match in found:
        assert match is not None
        partitions.setdefault(match[1], set()).add(int(match[2]))
    return " ".join(f"{topic}/{_ranges(numbers)}" for topic, numbers in partitions.items())


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers in the form "0-2,5"."""
    texts = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        texts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(texts)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _style(field: str, value: Any, row: Row) -> str | None:
    """Return the style of a value that a reader should notice; None for others."""
    if field in ("ready", "equal"):
        return "good" if value else "bad"
    if field == "lag" and value is not None:
        return "bad" if value < 0 else "warning" if value else None
    if field == "isr" and value is not None and len(value) < len(row.get("replicas") or ()):
        return "warning"
    if (field == "leaderless" and value) or (field in ("error", "first_difference") and value):
        return "bad"
    if field == "leader" and value is None:
        return "bad"
    if field == "outcome":
        return None if value in ("move", "same", "deleted") else "warning"
    return None


def _pad(text: str, width: int, is_number: bool) -> str:
    space = " " * max(width - text_width(text), 0)
    return space + text if is_number else text + space


def _atoms(text: str, after: str = ",") -> list[str]:
    """Return the unbreakable pieces of a text, which may be broken at spaces and after commas."""
    return [atom for atom in re.split(rf"(?<={after})| ", text) if atom]


def _wrapped(text: str, width: int, after: str = ",") -> list[str]:
    """Return the text as lines; only an unbreakable piece is longer than the width."""
    if text_width(text) <= width:
        return [text]
    lines: list[str] = [""]
    for piece in re.findall(rf"[^ {after}]*(?:{after}+ *| +|$)", text):
        if lines[-1] and text_width(lines[-1]) + text_width(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines if line.strip()] or [""]
