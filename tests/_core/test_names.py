"""What errors say of names that don't exist, can't be seen, or are patterns of a shell."""

from __future__ import annotations

import re

import pytest

from aiokafka08._core.concurrency.loop_yield import finish_steps
from aiokafka08._core.names import did_you_mean, glob_hint, similar_names, visible

pytestmark = pytest.mark.fast


def test_similar_names_are_asked_for_whatever_their_case() -> None:
    known = ["orders", "Visits", "order-events"]
    assert did_you_mean("ordrs", known) == ". Did you mean 'orders'?"
    assert did_you_mean("visits", known) == ". Did you mean 'Visits'?"
    assert did_you_mean("zzz", known) == did_you_mean("orders", []) == ""
    assert did_you_mean("orders", ["orders"]) == ""


def test_most_similar_names_come_first_among_many() -> None:
    others = [f"other-{number}" for number in range(1000)]
    known = [*others[:300], "ordered", *others[300:600], "Orders", *others[600:], "orderz", "or"]
    assert finish_steps(similar_names("orders", known)) == ["Orders", "orderz", "ordered"]


def test_search_of_similar_names_yields_between_its_steps() -> None:
    known = [f"other-{number}" for number in range(1000)]
    assert sum(1 for _ in similar_names("orders", known)) == 10
    assert sum(1 for _ in similar_names("orders", known[:50])) == 0


def test_invisible_characters_are_shown_as_escapes() -> None:
    assert visible("\ufeffbootstrap.servers") == r"\ufeffbootstrap.servers"
    assert visible("a\u200bb\u00a0c é") == r"a\u200bb\xa0c é"


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [("*", ".*"), ("orders*", "orders.*"), ("*.log", ".*.log"), ("a_*_b*", "a_.*_b.*")],
)
def test_pattern_of_a_shell_gets_a_regular_expression(pattern: str, meant: str) -> None:
    assert f"did you mean {meant!r}?" in glob_hint(pattern)
    re.compile(meant)


@pytest.mark.parametrize("pattern", [".*", "orders-.*", "[a-z]*", "(a|b)*", r"\w*", "orders"])
def test_regular_expression_gets_no_hint(pattern: str) -> None:
    assert glob_hint(pattern) == ""
