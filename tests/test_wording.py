"""How texts show values."""

from __future__ import annotations

import pytest

from aiokafka08._wording import shorten


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", "'a'"),
        (None, "None"),
        ("x" * 198, f"'{'x' * 198}'"),
        ("x" * 199, f"'{'x' * 199}…"),
        ([1, 2], "[1, 2]"),
        ("\n" * 150, "'" + r"\n" * 99 + "\\…"),
        (["x" * 300], f"['{'x' * 198}…"),
    ],
)
def test_shorten_shows_at_most_200_characters(value: object, shown: str) -> None:
    assert shorten(value) == shown


def test_shorten_names_the_type_of_an_integer_without_a_text() -> None:
    assert shorten(1 << 20_000) == "<int>"
