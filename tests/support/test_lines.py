"""Which tests on real brokers run without `--all-lines`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conformance.contract.targets import TargetSpec
from tests.support.lines import chosen


class Item:
    """What `tests.support.lines` reads of a test: marked `real`, with one parameter or none."""

    def __init__(self, function: str, *given: object, marks: tuple[str, ...] = ("real",)) -> None:
        self.nodeid = f"{function}[{given}]"
        self.callspec = SimpleNamespace(params={str(i): one for i, one in enumerate(given)})
        self.get_closest_marker = {mark: mark for mark in marks}.get


def releases(*items: Any) -> list[object]:
    kept: list[Any] = chosen(items)
    return [next(iter(item.callspec.params.values())) for item in kept]


def test_lines_between_the_two_are_left_out() -> None:
    names = ("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1")
    assert releases(*(Item("f", name) for name in names)) == ["0.8.2.2", "3.9.1"]
    specs = [TargetSpec("real", name, 1) for name in names]
    assert releases(*(Item("f", spec) for spec in specs)) == [specs[2], specs[5]]


@pytest.mark.parametrize(
    "items",
    [
        [Item("f", "0.8.2.2"), Item("g", "0.8.0")],
        [Item("f", "0.8.2.2", "a"), Item("f", "0.8.0", "b")],
        [Item("f", "0.8.2.2", marks=("real", "full")), Item("f", "0.8.0")],
        [Item("f"), Item("f", "text")],
    ],
    ids=["other_test", "other_parameter", "usual_line_is_full", "no_line"],
)
def test_behaviour_without_a_usual_line_is_kept(items: list[Any]) -> None:
    assert chosen(items) == items


def test_newest_line_of_a_test_is_kept() -> None:
    assert releases(*(Item("f", name) for name in ("0.10.2.2", "0.9.0.1"))) == ["0.10.2.2"]
    names = ("0.8.2.2", "0.9.0.1", "0.10.2.2")
    assert releases(*(Item("f", name) for name in names)) == ["0.8.2.2", "0.10.2.2"]


def test_every_line_and_embedded_clusters_are_kept() -> None:
    marked = [Item("f", name, marks=("real", "every_line")) for name in ("0.8.0", "0.8.2.2")]
    embedded = [Item("f", TargetSpec("embedded", name, 1), marks=()) for name in ("0.8.0", "0.9")]
    items: list[Any] = [*marked, *embedded]
    assert chosen(items) == items
