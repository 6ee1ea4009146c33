"""Random histories of a small Kafka: right ones have no anomaly, planted faults have theirs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka08.testing.history import Message, Operation, check, report
from tests.faults.history.model import random_history, without_value

Fault = Callable[[random.Random, list[Operation]], list[Operation] | None]
"""Returns the history with a fault, or None if it has no place for one."""


@settings(max_examples=60, deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_right_history_has_no_anomaly(rng: random.Random) -> None:
    found = check(random_history(rng))
    assert not found, report(found)


def pick(
    rng: random.Random, history: list[Operation], fits: Callable[[Operation], object]
) -> int | None:
    places = [place for place, one in enumerate(history) if fits(one)]
    return rng.choice(places) if places else None


def changed(history: list[Operation], place: int, **fields: object) -> list[Operation]:
    return [*history[:place], replace(history[place], **fields), *history[place + 1 :]]  # type: ignore[arg-type]


def is_stored(one: Operation) -> bool:
    return bool(one.sent) and one.status == "ok"


def lose_message(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, is_stored)
    if place is None:
        return None
    message = rng.choice(history[place].sent)
    return without_value(history, message.partition, str(message.value))


def swap_polled(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    def has_two(one: Operation) -> bool:
        return one.call == "getmany" and len(one.polled) > 1 and _same(one.polled[:2])

    place = pick(rng, history, has_two)
    if place is None:
        return None
    first, second, *rest = history[place].polled
    return changed(history, place, polled=(second, first, *rest))


def _same(messages: tuple[Message, ...]) -> bool:
    return len({one.partition for one in messages}) == 1


def hide_report(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.call == "retried")
    return None if place is None else history[:place] + history[place + 1 :]


def invent_message(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.call == "log")
    if place is None or not any(one.sent for one in history):
        return None
    [partition] = history[place].partitions
    polled = (*history[place].polled, Message(partition, "invented", 10_000))
    return changed(history, place, polled=polled)


def change_value(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, is_stored)
    if place is None:
        return None
    first = history[place].sent[0]
    other = replace(first, value="other", offset=first.offset)
    return [
        *history,
        replace(history[place], process="r", sent=(other,), invoked=0.1, ended=0.2, accepted=0.15),
    ]


def own_twice(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.call == "assigned" and one.partitions)
    assert place is not None
    return [*history[: place + 1], replace(history[place], process="e"), *history[place + 1 :]]


def commit_too_far(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    """The store has the end of a log from which the group got one message only."""
    stored = pick(rng, history, lambda one: one.call == "log" and len(one.polled) > 2)
    if stored is None:
        return None
    [partition] = history[stored].partitions
    first = next(
        (place for place, one in enumerate(history) if _polls_only_first(one, partition)), None
    )
    if first is None:
        return None
    observed = Operation(
        process="observer",
        call="committed",
        invoked=history[first].order + 0.1,
        ended=history[first].order + 0.2,
        group="g",
        offsets={partition: len(history[stored].polled)},
    )
    return [*history, observed]


def _polls_only_first(one: Operation, partition: str) -> bool:
    found = [message.offset for message in one.polled if message.partition == partition]
    return one.call == "getmany" and bool(found) and found[-1] is not None and found[-1] < 2


def commit_overtakes(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.call == "committed" and one.offsets)
    if place is None:
        return None
    one = history[place]
    name = rng.choice(list(one.offsets))
    at = one.invoked
    commit = Operation(process="c", call="commit", invoked=at - 0.9, ended=at - 0.8, group="g",
                       offsets={name: one.offsets[name] + 1})  # fmt: skip
    return [*history[:place], commit, *history[place:]]


def poll_late(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.deadline_s)
    return None if place is None else changed(history, place, deadline_s=-5.0)


def leak(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.call == "left")
    assert place is not None
    return changed(history, place, facts={"tasks": 1})


def count_wrong(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, lambda one: one.call == "metrics")
    if place is None:
        return None
    return changed(history, place, facts={"messages_sent": 1_000_000})


def forget_send(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    place = pick(rng, history, is_stored)
    if place is None:
        return None
    bare = tuple(replace(one, offset=None) for one in history[place].sent)
    return changed(history, place, ended=None, status="open", sent=bare)


def reorder_sends(rng: random.Random, history: list[Operation]) -> list[Operation] | None:
    """A send was called after the end of one that stands behind it in the log."""
    place = pick(rng, history, is_stored)
    if place is None:
        return None
    one = history[place]
    later = [
        other
        for other in history
        if is_stored(other)
        and other.process == one.process
        and other.sent[0].partition == one.sent[0].partition
        and (other.sent[0].offset or 0) > (one.sent[0].offset or 0)
    ]
    if not later:
        return None
    after = later[0].order + 0.5
    return changed(history, place, invoked=after, accepted=after + 0.1, ended=after + 0.2)


PLANTED: list[tuple[str, Fault]] = [
    ("lost-write", lose_message),
    ("int-nonmonotonic-poll", swap_polled),
    ("duplicate", hide_report),
    ("unwritten-read", invent_message),
    ("inconsistent-offsets", change_value),
    ("double-owner", own_twice),
    ("commit-ahead", commit_too_far),
    ("commit-behind", commit_overtakes),
    ("late-call", poll_late),
    ("left-behind", leak),
    ("wrong-metrics", count_wrong),
    ("never-ended", forget_send),
    ("nonmonotonic-send", reorder_sends),
]


@pytest.mark.parametrize(("name", "fault"), PLANTED, ids=[name for name, _ in PLANTED])
def test_planted_fault_has_its_name(name: str, fault: Fault) -> None:
    """In at least 15 of 60 histories there is a place for the fault, and it is always found."""
    planted = 0
    for seed in range(60):
        rng = random.Random(seed)
        history = fault(rng, random_history(rng))
        if history is not None:
            planted += 1
            found = {one.name for one in check(history)}
            assert name in found, f"seed {seed}: only {found}"
    assert planted >= 15


def test_check_of_a_long_history_is_fast_enough() -> None:
    """Twice the history takes about twice the steps: counted, not timed."""
    rng = random.Random(1)
    short, long = (random_history(rng, steps) for steps in (4_000, 8_000))
    assert calls_of_check(long) < 3 * calls_of_check(short)


def test_check_of_many_changes_is_fast_enough() -> None:
    """Truncations, deletions, assignments and commits of one partition: as many as messages."""
    found = {one.name for one in check(changing_history(20))}
    assert {"unseen", "commit-ignored"} <= found
    short, long = (changing_history(count) for count in (200, 800))
    assert calls_of_check(long) < 6 * calls_of_check(short)


def changing_history(count: int) -> list[Operation]:
    """Nothing excuses the messages that nobody reads, nor the members that begin at offset 0."""
    history: list[Operation] = []
    place, other = "t/0", "t/1"

    def add(process: str, call: str, **fields: Any) -> None:
        at = float(len(history))
        history.append(Operation(process=process, call=call, invoked=at, ended=at + 0.5, **fields))

    for number in range(count):
        add("cluster", "truncated", offsets={place: number}, facts={"end": number})
        add("cluster", "deleted", offsets={place: 0})
    add("q", "send", sent=(Message(other, "m", 0),))
    for number in range(count):
        add("p", "send", sent=(Message(place, f"m{number}", number),))
        member = f"c{number % 2}"
        add(member, "assigned", partitions=(other,), group="g", generation=number)
        add(member, "getmany", polled=(Message(other, "m", 0),), group="g")
        explicit = {"explicit": True}
        add(member, "commit", offsets={other: number}, group="g", facts=explicit)
    return history


def calls_of_check(history: list[Operation]) -> int:
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(profile)
    try:
        check(history)
    finally:
        sys.setprofile(None)
    return count
