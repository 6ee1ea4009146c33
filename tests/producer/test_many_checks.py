"""Types and sizes of many keys or values, by both twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.producer.fast_path import are_bytes, longest, pure_are_bytes, pure_longest


class Marked(bytes):
    """A subclass, whose length may be another one."""

    def __len__(self) -> int:
        return 100


DATA = st.none() | st.binary(max_size=20)
OTHERS = DATA | st.sampled_from([Marked(b"m"), bytearray(b"b"), memoryview(b"v"), "s", 1])
PLACES = st.integers(0, 12)


@given(items=st.lists(OTHERS, max_size=10), start=PLACES, stop=PLACES)
def test_both_twins_accept_the_same_types(items: list[Any], start: int, stop: int) -> None:
    expected = all(item is None or type(item) is bytes for item in items[start:stop])
    assert [each(items, start, stop) for each in (are_bytes, pure_are_bytes)] == [expected] * 2


@given(items=st.lists(DATA | st.just(Marked(b"m")), max_size=10), start=PLACES, stop=PLACES)
def test_both_twins_find_the_longest(items: list[Any], start: int, stop: int) -> None:
    expected = max((len(item) for item in items[start:stop] if item is not None), default=0)
    assert [each(items, start, stop) for each in (longest, pure_longest)] == [expected] * 2


@pytest.mark.parametrize("each", [longest, pure_longest])
def test_a_list_that_gets_shorter_meanwhile_is_read_to_its_end(
    each: Callable[[list[Any], int, int], int],
) -> None:
    class Shortens(bytes):
        def __len__(self) -> int:
            del items[1:]
            return 7

    items: list[Any] = [Shortens(b"s"), *(b"x" * number for number in range(1000))]
    assert each(items, 0, 1000) >= 7
