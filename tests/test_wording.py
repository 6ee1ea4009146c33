"""How texts show values, partitions and lists of names."""

from __future__ import annotations

import pytest

from aiokafka08._wording import (
    counted,
    newer_protocol,
    partition_name,
    partition_text,
    shorten,
    some_of,
)
from aiokafka08.structs import TopicPartition


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


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "group", "0 groups"),
        (1, "offset of group 'g'", "1 offset of group 'g'"),
        (2, "offset of group 'g'", "2 offsets of group 'g'"),
    ],
)
def test_counted_puts_the_noun_in_the_plural(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


@pytest.mark.parametrize(
    ("names", "separator", "text"),
    [
        ([], ", ", "none"),
        ([TopicPartition("t", 0), "u"], ", ", "t/0, u"),
        ([*"abcdefghij"], ", ", "a, b, c, d, e, f, g, h, i, j"),
        ([*range(12)], "; ", "0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 2 more"),
    ],
)
def test_some_of_counts_the_names_beyond_ten(
    names: list[object], separator: str, text: str
) -> None:
    assert some_of(names, separator=separator) == text


def test_partition_has_a_short_and_a_long_name() -> None:
    tp = TopicPartition("t", 3)
    assert (partition_name(tp), partition_text(tp)) == ("t/3", "topic 't', partition 3")


def test_newer_protocol_names_the_first_release() -> None:
    assert newer_protocol("Fetch 11", "2.4") == (
        "Fetch 11 (brokers from 2.4 on), which this client doesn't speak"
    )
