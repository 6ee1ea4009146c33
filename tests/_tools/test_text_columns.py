"""Texts that fit into columns: wide characters take two, combining ones none."""

from __future__ import annotations

import pytest

from aiokafka08._tools.text_columns import cut, text_width, wrap

WIDE = "請求書"
COMBINED = "e\u0301" * 6


def test_width_is_columns_not_characters() -> None:
    assert [text_width(text) for text in ("abc", WIDE, COMBINED)] == [3, 6, 6]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        (WIDE, 5, "請求"),
        (COMBINED, 6, COMBINED),
        (COMBINED, 4, "e\u0301" * 4),
        ("abc", 0, ""),
    ],
)
def test_text_is_cut_at_a_column(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected


def test_lines_are_wrapped_at_a_column() -> None:
    text = f"{WIDE} {WIDE} {COMBINED} {COMBINED}"
    assert wrap(text, 13) == [f"{WIDE} {WIDE}", f"{COMBINED} {COMBINED}"]
    assert wrap("a  b\nc", 80, "- ", "  ") == ["- a  b c"]
    assert wrap("a  bcd ef", 6, "- ", "  ") == ["- a", "  bcd", "  ef"]
    assert wrap(f"{WIDE}a b", 3) == [f"{WIDE}a", "b"]  # no word is broken
    assert wrap(" ", 3) == []
