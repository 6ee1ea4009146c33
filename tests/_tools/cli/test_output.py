"""The formats of rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest

from aiokafka08._tools.cli.output import write_rows

ROWS: list[dict[str, Any]] = [
    {"name": "a\tb\\\n", "number": 5, "isr": [0, 1], "yes": True, "extra": "not a field"},
    {"name": "ä", "number": None, "isr": [], "yes": False},
]
FIELDS = ["name", "number", "isr", "yes"]

Written = Callable[[str | None], str]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """A function that returns what `write_rows` prints in a format."""

    def write(format: str | None) -> str:
        buffer = BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", TextIOWrapper(buffer, encoding="ascii"))
            write_rows(ROWS, FIELDS, format)
            return buffer.getvalue().decode()

    return write


def test_json_formats_have_the_fields_only(written: Written) -> None:
    expected = [{name: row.get(name) for name in FIELDS} for row in ROWS]
    assert json.loads(written("json")) == expected
    assert [json.loads(line) for line in written("jsonl").splitlines()] == expected


def test_tsv_escapes_and_is_the_default_without_a_terminal(written: Written) -> None:
    assert written("tsv") == ("name\tnumber\tisr\tyes\na\\tb\\\\\\n\t5\t0,1\tyes\nä\t\t\tno\n")
    assert written(None) == written("tsv")


def test_table_has_columns_and_no_control_characters(written: Written) -> None:
    lines = [line.split() for line in written("table").splitlines()]
    assert lines[:1] == [FIELDS]
    assert lines[2:4] == [["a\\tb\\\\n", "5", "0,1", "yes"], ["\\xe4", "-", "no"]]
