"""The known differences of the gateway: what they allow, and what they must not hide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.differential.compare import NO_ANSWER, Answer, Difference
from tests.tools.differential.gateway import KNOWN
from tests.tools.differential.sets import MessageSet, Msg, Wrap
from tests.tools.differential.wire import Request


def known(
    request: Request, real: Any, ours: Any, end: str = "", before: tuple[Request, ...] = ()
) -> str | None:
    difference = Difference(request, 0, Answer(real), Answer(ours, end), before)
    return next((one.name for one in KNOWN if one.matches(difference)), None)


def listed(code: int, offsets: list[int]) -> dict[str, Any]:
    fields = [{"partition": 0, "error": code, "offsets": offsets}]
    return {"topics": [{"topic": "$t0", "partitions": fields}]}


@pytest.mark.parametrize(
    ("time", "code", "real", "ours", "is_known"),
    [
        (-1, 0, [7, 5, 0], [7], True),
        (-1, 0, [7, 0], [5], False),
        (-1, 0, [7, 0], [], False),
        (-2, 0, [3], [0], False),
        (-1, 0, [7, 0], [7, 0, 0], False),
        (1000, 0, [7, 5, 0], [6], True),  # starts of segments there, a message here
        (1000, 0, [7], [6, 5], False),
        (-1, -1, [], [7], True),  # a negative number of offsets
    ],
)
def test_offsets_of_the_ends_are_compared(
    time: int, code: int, real: list[int], ours: list[int], is_known: bool
) -> None:
    request = Request("ListOffsets", 0, (-1, [("$t0", [(0, time, 3)])]))
    found = known(request, listed(code, real), listed(0, ours))
    assert (found is not None) == is_known, found


def fetched(*parts: tuple[int, str]) -> dict[str, Any]:
    fields = [{"partition": one, "error": 0, "message_set": [{"value": v}]} for one, v in parts]
    return {"topics": [{"topic": "$t0", "partitions": fields}]}


def test_partition_that_is_named_twice_hides_no_other() -> None:
    asked = [(0, 0, 1000), (1, 0, 1000), (1, 5, 1000)]
    request = Request("Fetch", 0, (-1, 0, 0, [("$t0", asked)]))
    real = fetched((0, "a"), (1, "b"), (1, "c"))
    assert known(request, real, fetched((0, "a"), (1, "c"))) == "odd-arrays"
    assert known(request, real, fetched((0, "x"), (1, "c"))) is None
    assert known(request, real, fetched((1, "c"))) is None
    assert known(request, real, NO_ANSWER, "closed") is None
    once = Request("Fetch", 0, (-1, 0, 0, [("$t0", asked[:2])]))
    assert known(once, fetched((0, "a"), (1, "b")), fetched((0, "a"), (1, "c"))) is None


def test_topic_without_partitions_hides_no_other() -> None:
    request = Request("Fetch", 0, (-1, 0, 0, [("$t0", [(0, 0, 1000)]), ("$t1", [])]))
    real, empty = fetched((0, "a")), {"topic": "$t1", "partitions": []}
    assert known(request, {"topics": [*real["topics"], empty]}, real) == "odd-arrays"
    assert known(request, {"topics": [*real["topics"], empty]}, fetched((0, "x"))) is None


def test_topic_that_the_response_names_twice_is_known_if_its_partitions_are_equal() -> None:
    request = Request("Fetch", 0, (-1, 0, 0, [("$t0", [(0, 0, 1000), (7, 0, 1000)])]))
    real = fetched((0, "a"), (7, "b"))
    ours = {"topics": [*fetched((0, "a"))["topics"], *fetched((7, "b"))["topics"]]}
    assert known(request, real, ours) == "topics-twice"
    other = {"topics": [*fetched((0, "a"))["topics"], *fetched((7, "x"))["topics"]]}
    assert known(request, real, other) is None


def test_end_of_the_connection_is_known_only_behind_a_set_that_is_refused_silently() -> None:
    request = Request("ListOffsets", 0, (-1, []))
    real: dict[str, Any] = {"topics": []}
    for acks, cut, name in ((0, 5, "ends-otherwise"), (1, 5, None), (0, None, None)):
        sets = MessageSet((Wrap(messages=(Msg(),), cut=cut),) if cut else (Msg(),))
        before = Request("Produce", 1, (acks, 5000, [("$t0", [(0, sets)])]))
        assert known(request, real, NO_ANSWER, "closed", (before,)) == name
