"""The differences that stay: what the embedded cluster doesn't model, and why.

Invariant: each entry has an example, a case whose difference it matches, unless the real broker's
answer depends on chance. `test_differential` runs the examples: an entry whose example no longer
differs fails, and has to go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.tools.differential.cases import Case, Send
from tests.tools.differential.compare import NO_ANSWER, Difference
from tests.tools.differential.sets import MessageSet
from tests.tools.differential.topics import KINDS
from tests.tools.differential.wire import Request

_REPLICATED = {symbol for symbol, kind in KINDS.items() if kind.replicated}


@dataclass(frozen=True)
class Known:
    """A known difference."""

    name: str
    reason: str
    lines: tuple[str, ...]
    """The lines on which the example differs."""
    matches: Callable[[Difference], bool]
    example: Case | None
    """None if chance decides whether it differs."""


def _is_request(difference: Difference, api: str, *versions: int) -> bool:
    request = difference.request
    return (
        isinstance(request, Request)
        and request.api == api
        and (not versions or request.version in versions)
    )


def _names_null_topic(difference: Difference) -> bool:
    request = difference.request
    if not isinstance(request, Request) or request.api == "Metadata":
        return False
    arrays = [value for value in request.body if isinstance(value, list | tuple)]
    return any(
        isinstance(topic, tuple) and topic and topic[0] is None
        for array in arrays
        for topic in getattr(array, "items", array)
    )


def _has_null_set(difference: Difference) -> bool:
    request = difference.request
    return (
        _is_request(difference, "Produce")
        and isinstance(request, Request)
        and difference.embedded.value == NO_ANSWER
        and ", None)" in repr(request.body)
    )


def _assigns_gaps(difference: Difference) -> bool:
    request = difference.request
    return (
        isinstance(request, Request)
        and request.api == "CreateTopics"
        and any([number for number, _ in topic[3]] == [1] for topic in request.body[0])
    )


def _elects_another_protocol(difference: Difference) -> bool:
    values = difference.real.value, difference.embedded.value
    return (
        _is_request(difference, "JoinGroup")
        and all(isinstance(one, dict) and not one["error"] for one in values)
        and values[0]["protocol"] != values[1]["protocol"]
    )


def _elects_another_leader(difference: Difference) -> bool:
    values = difference.real.value, difference.embedded.value
    return (
        _is_request(difference, "JoinGroup")
        and all(isinstance(one, dict) and not one["error"] for one in values)
        and values[0]["leader"] != values[1]["leader"]
        and all(values[0][name] == values[1][name] for name in ("generation", "protocol"))
    )


def _has_followers_behind(difference: Difference, *, refuses: bool = False) -> bool:
    """Return whether a broker has read a partition before its followers had the messages.

    The high watermark is lower then, or, if the broker refuses a fetch above it, -1.
    """
    values = difference.real.value, difference.embedded.value
    if not _is_request(difference, "Fetch") or not all(isinstance(one, dict) for one in values):
        return False
    real, embedded = (
        [
            (topic["topic"], one["partition"], one["error"], one["high_watermark"])
            for topic in value["topics"]
            for one in topic["partitions"]
        ]
        for value in values
    )
    if [one[:2] for one in real] != [one[:2] for one in embedded]:
        return False
    pairs = list(zip(real, embedded, strict=True))
    return all(
        theirs[2] == ours[2]
        or (refuses and theirs[2:] == (-1, -1) and not ours[2] and ours[0] in _REPLICATED)
        for theirs, ours in pairs
    ) and any(theirs[3] < ours[3] for theirs, ours in pairs)


def _join(group: str, member: str, protocols: tuple[str, ...], joins: str = "") -> Request:
    body = (group, 20_000, member, "consumer", [(name, b"") for name in protocols])
    return Request("JoinGroup", 0, body, joins=joins)


_NULL_BEFORE_EMPTY = Request("Produce", 1, (1, 50, [("$t0", [(0, None), (0, MessageSet())])]))
KNOWN: tuple[Known, ...] = (
    Known(
        "partitions-with-gaps",
        "The partitions of an embedded topic have the numbers 0, 1, 2, …; CreateTopics may assign"
        " others to a real one.",
        ("0.10",),
        _assigns_gaps,
        Case(
            1,
            (Send("a", (Request("CreateTopics", 1, ([("$n0", -1, -1, [(1, [0])], [])], 9, 0)),)),),
        ),
    ),
    Known(
        "null-set-before-another-one",
        "A null set can't be read here, and closes the connection. A real 0.10 only fails, with -1,"
        " if the request has another set for the same partition behind it.",
        ("0.10",),
        _has_null_set,
        Case(1, (Send("a", (_NULL_BEFORE_EMPTY,)),)),
    ),
    Known(
        "protocols-with-equal-votes",
        "Of two protocols that members of a group prefer equally often, the real coordinator takes"
        " one in the order of Scala's hash maps.",
        ("0.9", "0.10"),
        _elects_another_protocol,
        Case(
            1,
            (
                Send("m0", (_join("$g0", "", ("range",), "$m0"),), waits=True),
                Send("m1", (_join("$g0", "", ("range", "robin"), "$m1"),), waits=True),
                Send("m2", (_join("$g0", "$m0", ("robin", "range")),), waits=True),
            ),
        ),
    ),
    Known(
        "next-leader-of-a-group",
        "When the leader leaves, the real coordinator takes the next one in the order of a hash map"
        " of member ids, which have a random part.",
        ("0.9", "0.10"),
        _elects_another_leader,
        None,
    ),
    Known(
        "produce-to-unknown-partition-wakes-fetch",
        "A fetch that waits for a partition that doesn't exist is woken by a produce to it.",
        ("0.8.0", "0.8.1"),
        lambda difference: (
            _is_request(difference, "Fetch")
            and difference.embedded.value == NO_ANSWER
            and not difference.embedded.end
        ),
        Case(
            1,
            (
                Send(
                    "a", (Request("Fetch", 0, (-1, 8000, 1, [("$t1", [(1, 0, 10)])])),), waits=True
                ),
                Send("b", (Request("Produce", 0, (1, 500, [("$t1", [(1, b"x" * 20)])])),)),
            ),
        ),
    ),
    Known(
        "followers-behind",
        "Followers have a message at once here. On 0.8.0 and 0.8.1 a produce wakes a fetch before"
        " the real ones have it. A fetch from a follower (replica_id -2), or behind a produce with"
        " acks above 1, may come before all of them have it.",
        ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10"),
        _has_followers_behind,
        None,
    ),
    Known(
        "fetch-above-the-watermark",
        "As followers-behind; 0.8 responds with -1 to a fetch above the high watermark.",
        ("0.8.0", "0.8.1", "0.8.2"),
        lambda difference: _has_followers_behind(difference, refuses=True),
        None,
    ),
    Known(
        "join-group-of-0.8.2",
        "0.8.2 knows a JoinGroup of a draft: it responds with -1, in another layout.",
        ("0.8.2",),
        lambda difference: _is_request(difference, "JoinGroup"),
        Case(1, (Send("a", (Request("JoinGroup", 0, ("", 20_000, "", "", [])),)),)),
    ),
    Known(
        "null-topics",
        "What brokers below 0.10 make of a null topic in other requests than Metadata depends on"
        " which of their counters fails first.",
        ("0.8.2", "0.9"),
        _names_null_topic,
        Case(
            1,
            (Send("a", (Request("Fetch", 0, (-2, 0, 0, [(None, [(0, 0, 100)])])),)),),
        ),
    ),
)


def find_known(line: str, difference: Difference) -> Known | None:
    """Return the entry that explains a difference; None if it is a new one."""
    return next((one for one in KNOWN if line in one.lines and one.matches(difference)), None)
