"""`Timers`: the earliest time comes first, and stale entries don't accumulate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.producer.accumulator import Timers


def test_pop_due_yields_and_removes_the_earliest_first() -> None:
    timers: Timers[str] = Timers()
    for key, time in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        timers.set(key, time)
    assert timers.first() == 1.0
    assert list(timers.pop_due(2.0)) == ["a", "b"]
    assert list(timers) == ["c"]


def test_the_last_time_of_a_key_counts() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    timers.set("a", 5.0)
    assert list(timers.pop_due(4.0)) == []
    assert timers.first() == 5.0


@given(st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 1000)), max_size=500))
def test_timers_equal_a_dict_with_a_minimum(steps: list[tuple[int, int | None]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for key, time in steps:
        if time is None:
            timers.discard(key)
            model.pop(key, None)
        else:
            timers.set(key, time)
            model[key] = time
        assert timers.first() == min(model.values(), default=None)
        assert len(timers._fifo) + len(timers._heap) <= 2 * len(model) + 66
    due = list(timers.pop_due(500))
    assert [model[key] for key in due] == sorted(time for time in model.values() if time <= 500)
