"""Each anomaly: a history that shows it, and one that almost does."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08.testing.history import (
    Anomaly,
    Message,
    Operation,
    check,
    read_jsonl,
    report,
    write_jsonl,
)
from tests.support.paths import ROOT

P = "orders/0"


def call(name: str, at: float, process: str = "c", **more: Any) -> Operation:
    fields: dict[str, Any] = {"process": process, "call": name, "invoked": at, "ended": at + 0.5}
    return Operation(**fields | more)


def send(at: float, values: str, first: int | None, process: str = "p", **more: Any) -> Operation:
    """`values` are stored from the offset `first` on, one character each."""
    sent = tuple(
        Message(P, value, None if first is None else first + place)
        for place, value in enumerate(values)
    )
    return call("send", at, process, sent=sent, **more)


def poll(at: float, values: str, first: int, process: str = "c", **more: Any) -> Operation:
    polled = tuple(Message(P, value, first + place) for place, value in enumerate(values))
    return call("getmany", at, process, polled=polled, **more)


def polled_at(at: float, process: str, **places: int) -> Operation:
    polled = tuple(Message(P, value, offset) for value, offset in places.items())
    return call("getmany", at, process, polled=polled)


def offsets(name: str, at: float, offset: int, process: str = "c", **more: Any) -> Operation:
    return call(name, at, process, offsets={P: offset}, group="g", **more)


def owned(name: str, at: float, process: str, generation: int | None = 1) -> Operation:
    return call(name, at, process, partitions=(P,), group="g", generation=generation)


def retried(at: float, messages: int, may_be_stored: bool = True) -> Operation:
    facts = {"messages": messages, "may_be_stored": may_be_stored}
    return call("retried", at, "p", ended=at, partitions=(P,), facts=facts)


def stored(at: float, offset: int, process: str = "c", **more: Any) -> Operation:
    fields: dict[str, Any] = {"generation": 1, "facts": {"store": "kafka", "connection": 1}}
    return offsets("stored", at, offset, process, ended=at, **fields | more)


SENT = send(0, "abcde", 0)
WHOLE = call("log", 90, "observer", partitions=(P,), polled=poll(0, "abcde", 0).polled)
GROUP = {"group": "g"}
READY = call("ready", 3, "p", facts={"ready": True})

PAIRS: dict[str, tuple[list[Operation], list[Operation]]] = {
    "empty-history": ([call("start", 0)], [call("getmany", 0)]),
    "inconsistent-offsets": (
        [send(0, "a", 7), send(1, "b", 7, process="q")],
        [send(0, "a", 7), send(1, "b", 7, status="unknown")],
    ),
    "aborted-read": (
        [send(0, "a", None, status="fail"), poll(1, "a", 0)],
        [send(0, "a", None, status="unknown"), poll(1, "a", 0)],
    ),
    "unwritten-read": (
        [send(0, "a", 0), poll(1, "ax", 0)],
        [poll(1, "ax", 0)],
    ),
    "lost-write": (
        [SENT, replace(WHOLE, polled=WHOLE.polled[:4]), poll(1, "abcde", 0)],
        [replace(SENT, status="unknown"), replace(WHOLE, polled=WHOLE.polled[:4])],
    ),
    "unseen": (
        [SENT, poll(1, "abcd", 0)],
        [SENT, poll(1, "abcd", 0), poll(2, "e", 4, process="d")],
    ),
    "duplicate": (
        [send(0, "a", 0), retried(0.2, 1, may_be_stored=False), poll(1, "aa", 0)],
        [send(0, "a", 0), retried(0.2, 1), poll(1, "aa", 0)],
    ),
    "int-nonmonotonic-poll": (
        [SENT, poll(1, "abcde", 0), polled_at(2, "d", b=1, a=0)],
        [SENT, poll(1, "abcde", 0)],
    ),
    "int-poll-skip": (
        [SENT, poll(1, "abcde", 0), polled_at(2, "d", a=0, c=2)],
        [SENT, poll(1, "abcde", 0), polled_at(2, "d", b=1, c=2)],
    ),
    "int-nonmonotonic-send": (
        [replace(SENT, sent=(Message(P, "a", 1), Message(P, "b", 0))), poll(1, "ba", 0)],
        [send(0, "ab", 0), poll(1, "ab", 0)],
    ),
    "int-send-skip": (
        [
            replace(SENT, sent=(Message(P, "a", 0), Message(P, "c", 2))),
            send(0, "b", 1, process="q"),
            poll(1, "abc", 0),
        ],
        [replace(SENT, sent=(Message(P, "a", 0), Message(P, "c", 2))), poll(1, "a", 0),
         poll(2, "c", 2)],
    ),
    "nonmonotonic-send": (
        [send(0, "a", 1), send(1, "b", 0), poll(2, "ba", 0)],
        [send(0, "a", 1), send(0.1, "b", 0), poll(2, "ba", 0)],  # the calls overlap
    ),
    "nonmonotonic-poll": (
        [SENT, poll(1, "abcde", 0), poll(2, "e", 4)],
        [SENT, poll(1, "abcde", 0), offsets("seek", 1.6, 4), poll(2, "e", 4)],
    ),
    "poll-skip": (
        [SENT, poll(1, "ab", 0), poll(2, "de", 3), poll(3, "c", 2, process="d")],
        [SENT, poll(1, "ab", 0), offsets("seek", 1.6, 3), poll(2, "de", 3),
         poll(3, "c", 2, process="d")],
    ),
    "double-owner": (
        [owned("assigned", 0, "c"), owned("assigned", 1, "d"), SENT, poll(2, "abcde", 0)],
        [owned("assigned", 0, "c"), owned("assigned", 1, "d", 2), SENT, poll(2, "abcde", 0)],
    ),
    "poll-after-revocation": (
        [SENT, owned("assigned", 0, "c"), poll(1, "abc", 0), owned("revoked", 2, "c"),
         poll(3, "de", 3)],
        [SENT, owned("assigned", 0, "c"), poll(1, "abc", 0), owned("revoked", 2, "c"),
         owned("assigned", 2.6, "c", 2), poll(3, "de", 3)],
    ),
    "group-skip": (
        [SENT, poll(1, "ab", 0, **GROUP), poll(2, "de", 3, process="d", **GROUP),
         poll(3, "abcde", 0, process="other")],
        [SENT, poll(1, "ab", 0, **GROUP), poll(2, "cde", 2, process="d", **GROUP)],
    ),
    "commit-ahead": (
        [SENT, poll(1, "abc", 0, **GROUP), offsets("committed", 2, 4),
         poll(3, "de", 3, **GROUP)],
        [SENT, poll(1, "abc", 0, **GROUP), offsets("committed", 2, 3),
         poll(3, "de", 3, **GROUP)],
    ),
    "position-ahead": (
        [SENT, poll(1, "abc", 0, **GROUP), offsets("position", 2, 4), poll(3, "de", 3, **GROUP)],
        [SENT, poll(1, "abc", 0, **GROUP), offsets("position", 2, 3), poll(3, "de", 3, **GROUP)],
    ),
    "commit-behind": (
        [SENT, poll(1, "abcde", 0, **GROUP), offsets("commit", 2, 3), offsets("commit", 3, 5),
         offsets("committed", 4, 3)],
        [SENT, poll(1, "abcde", 0, **GROUP), offsets("commit", 2, 3),
         offsets("commit", 3, 5, status="unknown"), offsets("committed", 4, 3)],
    ),
    "commit-went-back": (
        [SENT, stored(2, 5), stored(3, 3, "d")],
        [SENT, stored(2, 5), stored(3, 5, "d")],
    ),
    "commit-ignored": (
        [SENT, poll(1, "abcde", 0, **GROUP), offsets("commit", 2, 3), offsets("commit", 3, 5),
         owned("assigned", 4, "d"), poll(5, "de", 3, process="d", **GROUP)],
        [SENT, poll(1, "abcde", 0, **GROUP), offsets("commit", 2, 3),
         offsets("commit", 3, 5, ended=4.5), owned("assigned", 4, "d"),
         poll(5, "de", 3, process="d", **GROUP)],
    ),
    "late-call": (
        [SENT, poll(1, "abcde", 0, ended=13.5, deadline_s=11.0)],
        [SENT, poll(1, "abcde", 0, ended=12.9, deadline_s=11.0)],
    ),
    "never-ended": (
        [SENT, send(1, "f", None, ended=None, status="open"), poll(2, "abcde", 0),
         call("stop", 3, "p")],
        [SENT, send(1, "f", None, ended=None, status="open"), poll(2, "abcde", 0)],
    ),
    "memory-exceeded": (
        [SENT, poll(1, "abcde", 0),
         call("metrics", 2, facts={"buffered_bytes": 11, "buffered_limit_bytes": 10})],
        [SENT, poll(1, "abcde", 0),
         call("metrics", 2, facts={"buffered_bytes": 10, "buffered_limit_bytes": 10})],
    ),
    "memory-leaked": (
        [SENT, poll(1, "abcde", 0), call("metrics", 2, "p", facts={"buffer_used_bytes": 3})],
        [SENT, poll(1, "abcde", 0), call("metrics", 0.2, "p", facts={"buffer_used_bytes": 3})],
    ),
    "left-behind": (
        [SENT, poll(1, "abcde", 0), call("left", 2, facts={"tasks": 1, "timers": 0})],
        [SENT, poll(1, "abcde", 0), call("left", 2, facts={"tasks": 0, "timers": 0})],
    ),
    "wrong-ready": (
        [SENT, poll(1, "abcde", 0), call("stop", 2, "p"), READY],
        [SENT, poll(1, "abcde", 0), READY, call("stop", 9, "p")],
    ),
    "wrong-metrics": (
        [SENT, poll(1, "abcde", 0), call("metrics", 2, "p", facts={"messages_sent": 4})],
        [SENT, poll(1, "abcde", 0), call("metrics", 2, "p", facts={"messages_sent": 5})],
    ),
}  # fmt: skip


def names(anomalies: Iterable[Anomaly]) -> set[str]:
    return {one.name for one in anomalies}


@pytest.mark.parametrize("name", PAIRS)
def test_anomaly_is_found_and_nothing_else(name: str) -> None:
    assert names(check(PAIRS[name][0], allow=())) == {name}


@pytest.mark.parametrize("name", PAIRS)
def test_near_miss_is_no_anomaly(name: str) -> None:
    assert names(check(PAIRS[name][1], allow=())) - {"unseen"} == set()


@pytest.mark.parametrize("name", PAIRS)
def test_verdict_doesnt_depend_on_the_list_order(name: str) -> None:
    assert names(check(reversed(PAIRS[name][0]), allow=())) == {name}


@pytest.mark.parametrize("name", PAIRS)
def test_history_survives_json_lines(name: str) -> None:
    file = io.StringIO()
    write_jsonl(PAIRS[name][0], file)
    assert list(read_jsonl(file.getvalue().splitlines())) == PAIRS[name][0]


def test_normal_anomalies_are_left_out_by_default() -> None:
    assert check(PAIRS["int-send-skip"][0]) == []


def test_unknown_send_may_be_stored_behind_later_ones() -> None:
    """Its bytes arrived late, on a connection that the client had closed; seed 8591 found it."""
    late = replace(send(0, "a", None), status="unknown")
    assert check([late, send(1, "b", 0), poll(2, "ba", 0)]) == []
    early = replace(send(1, "b", None), status="unknown")
    [anomaly] = check([send(0, "a", 1), early, poll(2, "ba", 0)])
    assert anomaly.name == "nonmonotonic-send"


def test_report_names_each_anomaly_with_its_witness() -> None:
    text = report(check(PAIRS["nonmonotonic-send"][0]))
    assert text.startswith("nonmonotonic-send × 1\n")
    assert '"sent": [["orders/0", 1, "a"]]' in text
    assert '"sent": [["orders/0", 0, "b"]]' in text


def test_witness_has_no_other_messages() -> None:
    [anomaly] = check(PAIRS["int-poll-skip"][0])
    [poll_of_two] = anomaly.witness
    assert [one.value for one in poll_of_two.polled] == ["a", "c"]
    assert not poll_of_two.sent


OTHER = "orders/1"


def with_more(one: Operation) -> Operation:
    """Return the operation with another partition, which has nothing wrong."""
    more: dict[str, Any] = {}
    if one.call in ("assigned", "revoked"):
        more["partitions"] = (*one.partitions, OTHER)
    if one.call in ("commit", "committed", "position", "stored"):
        more["offsets"] = {**one.offsets, OTHER: 0}
    if one.polled and one.call != "log":
        more["polled"] = (*one.polled, Message(OTHER, f"at {one.invoked}", int(one.invoked * 10)))
    return replace(one, **more)


WITNESSES = {
    "duplicate": ["getmany aa"],
    "double-owner": ["assigned orders/0", "assigned orders/0"],
    "group-skip": ["send c", "getmany b", "getmany d"],
    "commit-ahead": ["send d", "getmany c", "committed {'orders/0': 4}"],
    "position-ahead": ["send d", "getmany c", "position {'orders/0': 4}"],
    "commit-behind": ["commit {'orders/0': 5}", "committed {'orders/0': 3}"],
    "commit-went-back": ["stored {'orders/0': 5}", "stored {'orders/0': 3}"],
    "commit-ignored": ["commit {'orders/0': 5}", "assigned orders/0", "getmany d"],
    "poll-after-revocation": ["revoked orders/0", "getmany d"],
    "poll-skip": ["getmany b", "getmany d"],
}


def shown(one: Operation) -> str:
    parts = ["".join(str(m.value) for m in (*one.sent, *one.polled)), " ".join(one.partitions)]
    return " ".join(filter(None, [one.call, *parts, str(dict(one.offsets))])).removesuffix(" {}")


@pytest.mark.parametrize("name", WITNESSES)
def test_witness_has_only_what_shows_the_anomaly(name: str) -> None:
    history = [with_more(one) for one in PAIRS[name][0]]
    found = [one for one in check(history, allow=()) if one.facts.get("partition") == P]
    assert [shown(one) for one in found[0].witness] == WITNESSES[name]


INCOMPLETE = {"unseen", "unwritten-read", "poll-skip", "int-poll-skip", "int-send-skip"}
"""Their witnesses don't show what else is in the history: `facts` name it."""


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - INCOMPLETE))
def test_witness_alone_has_the_anomaly(name: str) -> None:
    for anomaly in check(PAIRS[name][0], allow=()):
        assert name in names(check(anomaly.witness, allow=()))


def test_second_copy_is_shown_by_the_poll_that_returned_it() -> None:
    history = [send(0, "a", 0), poll(1, "a", 0), poll(2, "xa", 4), poll(3, "a", 5)]
    [anomaly] = [one for one in check(history) if one.name == "duplicate"]
    assert [(one.call, one.invoked) for one in anomaly.witness] == [("send", 0), ("getmany", 2)]


def test_commit_ahead_of_a_seek_is_shown_with_the_seek() -> None:
    history = [SENT, poll(1, "ab", 0, **GROUP), offsets("seek", 2, 3), offsets("committed", 3, 5)]
    [anomaly] = [one for one in check(history) if one.name == "commit-ahead"]
    assert [one.call for one in anomaly.witness] == ["send", "seek", "committed"]


@pytest.mark.parametrize(
    "data",
    [
        {"process": "p", "call": "send", "invoked": 0, "color": 1},
        {"process": "p", "call": "send"},
        {"process": "p", "call": "send", "invoked": 0, "sent": [["t/0", 1]]},
        {"process": "p", "call": "send", "invoked": 0, "sent": [5]},
        {"process": "p", "call": "send", "invoked": 0, "sent": ["t/0"]},
        {"process": "p", "call": "getmany", "invoked": 0, "polled": 5},
        {"process": "p", "call": "assign", "invoked": 0, "partitions": 5},
        {"process": "p", "call": "assign", "invoked": 0, "partitions": "t/0"},
        5,
        ["process", "call"],
    ],
)
def test_wrong_json_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="operation"):
        Operation.from_json(data)


def test_value_that_was_sent_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="orders/0: 'a' was sent twice"):
        check([send(0, "a", 0), send(1, "a", 1)])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"status": "OK"}, "status 'OK': expected one of ok, fail, unknown, open"),
        ({"call": "getmnay"}, "call 'getmnay': did you mean 'getmany'"),
        ({"call": "Getmany"}, "call 'Getmany': did you mean 'getmany'"),
        ({"ended": 0.5}, "ended 0.5 is before invoked 1"),
        ({"accepted": 0.5}, "accepted 0.5 is before invoked 1"),
        ({"invoked": float("nan")}, "invoked nan: expected a finite number"),
    ],
)
def test_wrong_operation_is_refused_by_name(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^operation c .*: {re.escape(text)}"):
        check([SENT, replace(call("getmany", 1, ended=2), **wrong)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"invoked": "1"},
        {"ended": "2"},
        {"partitions": P},
        {"partitions": ((P, 0),)},
        {"offsets": {P: "3"}},
        {"offsets": {("orders", 0): 3}},
        {"offsets": None},
        {"polled": [("orders/0", "a", 0)]},
        {"sent": (Message(P, b"a", 0),)},  # type: ignore[arg-type]
        {"sent": (Message(P, "a", "0"),)},  # type: ignore[arg-type]
        {"facts": None},
        {"group": 1},
        {"process": None},
    ],
)
def test_operation_with_a_wrong_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^operation .*: {next(iter(wrong))}"):
        check([replace(call("getmany", 1), **wrong)])


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(TypeError, match="expected an Operation, got dict"):
        check([{"process": "p"}])  # type: ignore[list-item]


def test_allow_given_as_a_str_is_refused() -> None:
    with pytest.raises(TypeError, match="allow='unseen': expected a collection of names"):
        check([SENT], allow="unseen")


def test_other_calls_may_have_any_name() -> None:
    assert check([SENT, poll(1, "abcde", 0), call("rack moved", 2)]) == []


@pytest.mark.parametrize("status", ["ok", "unknown"])
def test_commit_past_what_was_polled_is_found(status: str) -> None:
    """Also if the rest is polled later, and nobody asks for the committed offset."""
    history = [
        *(SENT, poll(1, "abc", 0, **GROUP), offsets("commit", 2, 5, status=status)),
        poll(3, "de", 3, **GROUP),
    ]
    assert names(check(history)) == {"commit-ahead"}
    history[2] = replace(history[2], facts={"explicit": True})
    assert check(history) == []
    history[2] = replace(history[2], facts={}, status="fail")
    assert check(history) == []


def test_wrong_commit_excuses_no_committed_offset() -> None:
    history = [
        *(SENT, poll(1, "abc", 0, **GROUP), offsets("commit", 2, 5)),
        *(offsets("committed", 3, 5), poll(4, "de", 3, **GROUP)),
    ]
    found = check(history)
    assert [one.name for one in found] == ["commit-ahead", "commit-ahead"]
    assert [one.witness[-1].call for one in found] == ["commit", "committed"]


# --- more than one rule in a check ----------------------------------------------------------------


def test_duplicates_beyond_the_report_are_an_anomaly() -> None:
    history = [send(0, "ab", 0), retried(0.2, 1), poll(1, "abab", 0)]
    assert names(check(history)) == {"duplicate"}
    history[1] = retried(0.2, 2)
    assert check(history) == []


def test_report_of_another_time_explains_no_duplicate() -> None:
    history = [send(0, "a", 0), retried(0.7, 1), poll(1, "aa", 0)]
    assert names(check(history)) == {"duplicate"}


def test_message_before_the_retention_isnt_lost() -> None:
    deleted = call("deleted", 0.7, "cluster", offsets={P: 2})
    whole = replace(WHOLE, polled=WHOLE.polled[2:])
    assert check([SENT, deleted, whole, poll(1, "cde", 2)]) == []


def test_truncated_messages_may_be_lost_and_replaced() -> None:
    truncated = call("truncated", 0.7, "cluster", offsets={P: 3})
    later = send(1, "xy", 3)
    whole = replace(WHOLE, polled=poll(0, "abcxy", 0).polled)
    assert check([SENT, truncated, later, whole, poll(2, "abcxy", 0)]) == []
    lost = replace(WHOLE, polled=poll(0, "abxy", 0).polled)
    assert "lost-write" in names(check([SENT, truncated, later, lost]))


def test_first_copies_keep_the_order_of_the_sends() -> None:
    """A retry stores `ab` again; the first copies are in order, and both polls go forward."""
    history = [send(0, "a", 0), send(1, "b", 1, invoked=0.4), retried(0.45, 2), poll(2, "abab", 0)]
    assert check(history) == []


def test_seek_is_followed_exactly() -> None:
    history = [SENT, poll(1, "abcde", 0), offsets("seek", 2, 2), poll(3, "de", 3)]
    assert names(check(history)) == {"poll-skip"}
    history[3] = poll(3, "bc", 1)
    assert names(check(history)) == {"nonmonotonic-poll"}


def test_commit_of_another_member_may_set_back() -> None:
    history = [
        SENT,
        poll(1, "abcde", 0, **GROUP),
        offsets("commit", 2, 5),
        offsets("commit", 3, 3, process="d"),
        offsets("committed", 4, 3, process="d"),
    ]
    assert check(history) == []


def test_seek_during_a_commit_may_set_back() -> None:
    """The commit of the position after the seek may be sent before the response to the first."""
    history = [
        SENT,
        poll(1, "abcde", 0, **GROUP),
        offsets("commit", 2, 5),
        offsets("seek", 2.2, 2, ended=2.3),
        offsets("committed", 4, 2),
    ]
    assert check(history) == []


def test_commit_without_effect_is_found() -> None:
    """The store returns nothing for a partition whose commit had succeeded."""
    history = [
        SENT,
        poll(1, "abcde", 0, **GROUP),
        offsets("commit", 2, 5),
        call("committed", 3, partitions=(P,), **GROUP),
    ]
    assert names(check(history)) == {"commit-behind"}


IGNORED = PAIRS["commit-ignored"][0]


@pytest.mark.parametrize(
    "more",
    [
        offsets("commit", 3.6, 3, ended=3.7, facts={"explicit": True}),
        offsets("commit", 3.6, 3, status="unknown", ended=3.7),
        offsets("commit", 4.6, 3, status="open", ended=None),
        call("commit", 3.6, "c", ended=3.7, partitions=(P,), group="g"),
        offsets("seek", 4.6, 3, process="d", ended=4.7),
        call("truncated", 4.6, "cluster", offsets={P: 4}, ended=4.7),
        replace(owned("assigned", 0.7, "c"), facts={"auto_commit": True}),
    ],
    ids=["set-back", "unknown", "open", "position", "seek", "truncated", "auto-commit"],
)
def test_member_may_begin_before_the_last_commit(more: Operation) -> None:
    assert "commit-ignored" not in names(check([*IGNORED, more]))


IN_OTHER_STORE: dict[str, Any] = {"facts": {"store": "zookeeper", "connection": 0}}
LATE: dict[str, Any] = {"facts": {"store": "kafka", "connection": 0}}
"""An older commit, over an earlier connection."""


@pytest.mark.parametrize(
    ("observed", "is_wrong"),
    [
        ([stored(2.1, 3), stored(3.1, 5), stored(3.4, 3, **LATE)], False),
        ([stored(2.1, 3), stored(3.1, 5), stored(4.4, 3, **LATE)], False),
        ([stored(2.1, 3, **LATE), stored(3.1, 5)], True),
        ([stored(3.1, 5), stored(3.4, 3, **LATE), stored(3.7, 5)], True),
        ([stored(3.1, 5), stored(7, 3, **LATE)], True),
        ([stored(3.1, 5), stored(3.2, 3, **IN_OTHER_STORE)], True),
    ],
    ids=["late", "late, meanwhile", "earlier", "corrected", "later", "other store"],
)
@pytest.mark.parametrize("name", ["commit-ignored", "commit-behind"])
def test_member_finds_what_the_store_held(
    name: str, observed: list[Operation], is_wrong: bool
) -> None:
    """Nothing fences commits of one generation that an earlier connection carries out late."""
    assert (name in names(check([*PAIRS[name][0], *observed]))) == is_wrong


def test_failed_commit_sets_no_offset_back() -> None:
    failed = offsets("commit", 3.6, 3, status="fail", ended=3.7)
    assert "commit-ignored" in names(check([*IGNORED, failed]))


def test_lost_commit_is_found_after_an_assignment() -> None:
    history = [
        *(SENT, poll(1, "abcde", 0, **GROUP), offsets("commit", 2, 5)),
        *(owned("assigned", 3, "d"), offsets("committed", 4, 3, process="d")),
    ]
    assert names(check(history)) == {"commit-behind"}
    history[3] = replace(history[3], facts={"auto_commit": True})
    assert check(history) == []


@pytest.mark.parametrize("group", [{}, GROUP], ids=["alone", "group"])
def test_truncation_excuses_no_value_sent_after_it(group: dict[str, Any]) -> None:
    truncated = call("truncated", 0.1, "cluster", offsets={P: 0}, ended=0.2)
    later = [send(1, "abcde", 0), poll(2, "ab", 0, **group), poll(3, "de", 3, **group)]
    other = poll(4, "abcde", 0, process="other")
    found = names(check([truncated, *later, other]))
    assert found == {"poll-skip"} | ({"group-skip"} if group else set())


@pytest.mark.parametrize(("got", "found"), [("cd", set()), ("d", {"group-skip"})])
def test_group_reads_on_through_a_member_without_offsets(got: str, found: set[str]) -> None:
    """As a member that another client runs, of which only the values are known; "d" is twice."""
    foreign = [
        call("poll", 2 + place, "foreign", polled=(Message(P, value),), **GROUP)
        for place, value in enumerate(got)
    ]
    ours = poll(1, "ab", 0, **GROUP), poll(9, "e", 5, **GROUP)
    assigned = owned("assigned", 8, "c", None)
    other = poll(9, "abcdde", 0, process="other")
    sent = send(0, "abcd", 0), retried(0.2, 1), send(0.6, "e", 5)
    assert names(check([*sent, *ours, *foreign, assigned, other])) == found


def test_deletion_excuses_no_earlier_poll() -> None:
    history = [SENT, poll(1, "ab", 0), poll(2, "de", 3), poll(3, "abcde", 0, process="d")]
    deleted = call("deleted", 1.8, "cluster", offsets={P: 3}, ended=1.9)
    assert check([*history, deleted]) == []
    assert names(check([*history, replace(deleted, invoked=9, ended=9.5)])) == {"poll-skip"}


def test_open_call_is_late_at_the_end_of_the_history() -> None:
    history = [SENT, poll(1, "", 0, ended=None, status="open", deadline_s=2.0),
               poll(9, "abcde", 0, process="d")]  # fmt: skip
    assert names(check(history)) == {"late-call"}


STARTED = call("start", 1, "p")


@pytest.mark.parametrize(
    ("facts", "is_wrong"),
    [
        ({"ready": True, "connections": 1}, False),
        ({"ready": True, "connections": 0}, True),
        ({"ready": False, "connections": 2}, False),
        ({"ready": False, "connections": 0}, False),
        ({"ready": False}, False),
        ({"ready": True, "expected": True}, False),
        ({"ready": False, "expected": True}, True),
        ({"ready": True, "expected": False}, True),
        ({"connections": 0}, False),
    ],
)
@pytest.mark.parametrize("name", ["ready", "metrics"])
def test_ready_is_judged_while_a_client_runs(
    name: str, facts: dict[str, Any], is_wrong: bool
) -> None:
    history = [SENT, STARTED, call(name, 2, "p", facts=facts), call("stop", 9, "p")]
    assert ("wrong-ready" in names(check(history))) == is_wrong


@pytest.mark.parametrize(
    ("start", "at", "is_wrong"),
    [
        (STARTED, 0.1, True),
        (STARTED, 1.2, False),  # while it starts
        (replace(STARTED, status="fail"), 2, True),  # it is stopped
        (STARTED, 9.2, False),  # while it stops
        (STARTED, 9.7, True),
    ],
)
def test_ready_is_false_outside_of_a_run(start: Operation, at: float, is_wrong: bool) -> None:
    ready = call("ready", at, "p", ended=at + 0.1, facts={"ready": True, "expected": True})
    history = [SENT, start, ready, call("stop", 9, "p")]
    assert ("wrong-ready" in names(check(history))) == is_wrong


def test_page_explains_each_anomaly() -> None:
    page = ROOT.joinpath("docs/testing.md").read_text()
    items = re.findall(r"^- (`[a-z-]+`(?:, `[a-z-]+`)*): ", page, re.M)
    listed = {name for item in items for name in re.findall(r"[a-z-]+", item)}
    assert set(PAIRS) <= listed


def test_generations_that_count_from_1_again_have_other_owners() -> None:
    """Seen in a simulation of 0.9, whose group had lost all its members."""
    again = [
        owned("assigned", 0, "c"),
        owned("assigned", 1, "d", 2),
        owned("assigned", 2, "d", 1),
        SENT,
        poll(3, "abcde", 0),
    ]
    assert "double-owner" not in {one.name for one in check(again)}
    again[1:3] = [
        owned("assigned", 1, "d", 2),
        owned("assigned", 2, "c"),
        owned("assigned", 3, "d"),
    ]
    assert "double-owner" in {one.name for one in check(again)}
    again[1:2] = [owned("assigned", 1, "c"), owned("assigned", 2, "e", 1)]
    assert "double-owner" in {one.name for one in check(again[:3] + again[-2:])}


def test_group_that_lost_all_members_begins_at_one() -> None:
    """Brokers of 0.9 forget such a group; but a member that is left still has its partitions."""
    c, d, e = (owned("assigned", time, name) for time, name in enumerate("cde"))
    gave_up = [owned("revoked", 1.5, name, None) for name in "cd"]
    assert "double-owner" not in names(check([c, gave_up[0], e, SENT]))
    other = replace(d, partitions=("other/0",))
    assert "double-owner" in names(check([c, other, gave_up[0], e, SENT]))
    assert "double-owner" not in names(check([c, other, *gave_up, e, SENT]))


def test_generation_that_is_joined_after_a_whole_session_is_another_one() -> None:
    """Members that can't reach the coordinator keep partitions of a group that it has forgotten."""
    for later_s, is_wrong in ((29.0, True), (31.0, False)):
        history = [owned("assigned", 0, "c"), owned("assigned", later_s, "d"), SENT]
        assert ("double-owner" in names(check(history))) == is_wrong
    short = replace(owned("assigned", 11, "d"), facts={"session_s": 10.0})
    assert "double-owner" not in names(check([owned("assigned", 0, "c"), short, SENT]))
    again = [owned("assigned", at, name) for at, name in ((0, "c"), (31, "d"), (32, "e"))]
    assert "double-owner" in names(check([*again, SENT]))


@pytest.mark.parametrize(("sought", "is_wrong"), [(4, False), (3, True)])
def test_seek_behind_the_end_of_a_truncated_log_begins_anew(sought: int, is_wrong: bool) -> None:
    history = [
        SENT,
        poll(2, "abcde", 0),
        call("truncated", 3, "cluster", offsets={P: 3}, ended=3.1),
        offsets("seek", 3.5, sought),
        send(4, "xy", 3),
        poll(5, "abcxy", 0),
    ]
    assert ("nonmonotonic-poll" in names(check(history))) == is_wrong


@pytest.mark.parametrize(("read", "is_wrong"), [("abcd", False), ("abc", True)])
def test_member_behind_the_end_of_a_truncated_log_begins_anew(read: str, is_wrong: bool) -> None:
    """It had read further than it had committed."""
    history = [
        SENT,
        stored(2, 2),
        poll(2.5, read, 0, **GROUP),
        call("truncated", 3, "cluster", offsets={P: 3}, ended=3.1),
        stored(4, 1),
    ]
    assert ("commit-went-back" in names(check(history))) == is_wrong


def test_group_of_brokers_set_back_to_zookeeper_has_both_kinds_of_owners() -> None:
    """No member in ZooKeeper can see one of Kafka's group; the reverse holds, so it must wait."""
    kafka, zookeeper = (
        replace(owned("assigned", 0, name, generation), facts={"exclusive": True})
        for name, generation in (("c", 2), ("d", None))
    )

    def later(operation: Operation) -> Operation:
        return replace(operation, invoked=1.0, ended=1.0)

    assert "double-owner" not in names(check([kafka, later(zookeeper), SENT]))
    assert "double-owner" in names(check([zookeeper, later(kafka), SENT]))


@pytest.mark.parametrize("generation", [1, None])
def test_start_that_fails_gives_up_what_it_was_assigned(generation: int | None) -> None:
    """The simulation's seed 2472: the listener isn't called then."""
    c, d = (
        replace(owned("assigned", at, name, generation), facts={"exclusive": True})
        for at, name in ((1, "c"), (3, "d"))
    )
    failed = call("start", 0, "c", ended=2, status="fail", error="timed out")
    assert "double-owner" not in names(check([c, failed, d, SENT]))
    assert "double-owner" in names(check([c, replace(failed, ended=4.0), d, SENT]))


def test_reader_ahead_of_a_truncation_misses_what_refills_it() -> None:
    """The log `abc` is cut to `a` and grows to `axyz`; the reader goes on behind `y`."""
    cut = {"offsets": {P: 1}, "facts": {"end": 3}}
    later = [
        send(2, "xyz", 1),
        call("log", 9, "o", partitions=(P,), polled=poll(9, "axyz", 0).polled),
    ]
    read = [poll(0.6, "abc", 0), poll(4, "z", 3)]
    truncated = call("truncated", 1, "cluster", **cut)
    assert check([send(0, "abc", 0), *read, truncated, *later]) == []
    without_end = replace(truncated, facts={})
    assert names(check([send(0, "abc", 0), *read, without_end, *later])) == {"unseen"}


def test_retry_after_a_truncation_has_another_offset() -> None:
    """`b` was read at 1 and lost; its retry is stored at 2, behind the `x` of another producer."""
    history = [
        send(0, "a", 0),
        replace(send(0.1, "b", 2), ended=3.5),
        poll(0.7, "ab", 0),
        call("truncated", 1, "cluster", offsets={P: 1}, facts={"end": 2}),
        send(2, "x", 1, "q"),
        poll(4, "axb", 0),
        call("log", 9, "o", partitions=(P,), polled=poll(9, "axb", 0).polled),
    ]
    assert check(history) == []
    again = [replace(one, call="election") if one.call == "truncated" else one for one in history]
    assert "inconsistent-offsets" in names(check(again))


@pytest.mark.parametrize(("end", "is_lost"), [(2, True), (3, False)])
def test_truncation_excuses_only_what_it_took(end: int, is_lost: bool) -> None:
    """`b` was sent before the truncation, and stored after it, behind the end that it met."""
    history = [
        send(0, "a", 0),
        replace(send(0.1, "b", 2), ended=3.5),
        call("truncated", 1, "cluster", offsets={P: 1}, facts={"end": end}),
        send(2, "x", 1, "q"),
        poll(4, "ax", 0),
        call("log", 9, "o", partitions=(P,), polled=poll(9, "ax", 0).polled),
    ]
    assert ("lost-write" in names(check(history))) == is_lost


def test_commit_is_set_back_by_a_truncation_or_another_member() -> None:
    history = [
        send(0, "abc", 0),
        poll(0.6, "abc", 0, group="g"),
        offsets("commit", 1.5, 3),
        call("truncated", 2.1, "cluster", offsets={P: 1}, facts={"end": 3}),
        offsets("committed", 3, 1),
    ]
    assert "commit-behind" not in names(check(history))
    position = call("commit", 2.1, "d", partitions=(P,), group="g")  # of another member
    assert "commit-behind" not in names(check([*history[:3], position, history[4]]))
    kept = replace(history[3], offsets={P: 3})
    assert "commit-behind" in names(check([*history[:3], kept, history[4]]))


UNFENCED: dict[str, Any] = {"generation": None}
IN_ZOOKEEPER = UNFENCED | {"facts": {"store": "zookeeper", "connection": 0}}


@pytest.mark.parametrize(
    ("last", "now", "more", "is_wrong"),
    [
        (stored(2, 5), stored(4, 3), [], True),
        (stored(2, 5), stored(4, 3, facts={"store": "kafka", "connection": 2}), [], False),
        (stored(2, 5), stored(4, 3), [offsets("seek", 3, 2)], False),
        (stored(2, 5), stored(4, 3, "d"), [offsets("seek", 3, 2)], True),
        (stored(2, 5), stored(4, 3), [offsets("seek", 3, 4)], True),
        (stored(2, 5), stored(4, 3), [offsets("seek", 1, 2), owned("assigned", 1.5, "c")], True),
        (
            stored(2, 5),
            stored(4, 3),
            [offsets("commit", 3.9, 3, facts={"explicit": True})],
            False,
        ),
        (
            stored(2, 5),
            stored(4, 3),
            [call("truncated", 3, "cluster", offsets={P: 4}, facts={"end": 5})],
            False,
        ),
        (
            stored(2, 5),
            stored(4, 3),
            [call("truncated", 3, "cluster", offsets={P: 5}, facts={"end": 9})],
            True,
        ),
        (
            stored(2, 5, **UNFENCED),
            stored(4, 3, "d", **UNFENCED),
            [owned("assigned", 1, "c", None), owned("assigned", 3, "d", None)],
            True,
        ),
        (  # `c` no longer owns the partition when its commit arrives
            stored(3.9, 5, **UNFENCED),
            stored(4, 3, "d", **UNFENCED),
            [owned("assigned", 1, "c", None), owned("assigned", 3, "d", None)],
            False,
        ),
        (
            stored(3.9, 5, "d", **UNFENCED),
            stored(4, 3, **UNFENCED),
            [owned("assigned", 1, "c", None), owned("assigned", 3, "d", None)],
            False,
        ),
        (stored(2, 5, **IN_ZOOKEEPER), stored(4, 3, "d", **IN_ZOOKEEPER), [], True),
        (
            stored(2, 5, **IN_ZOOKEEPER),
            stored(4, 3, "d", **IN_ZOOKEEPER),
            [call("expired", 3.4, "d", ended=3.4, group="g")],
            True,
        ),
        (
            stored(2, 5, **IN_ZOOKEEPER),
            stored(4, 3, "d", **IN_ZOOKEEPER),
            [call("expired", 3.6, "d", ended=3.6, group="g")],
            False,
        ),
        (stored(2, 5), stored(4, 3, "d", **IN_ZOOKEEPER), [], False),
        (  # the brokers of `d` were set back to 0.8
            stored(3.9, 5, **IN_ZOOKEEPER),
            stored(4, 3, "d", **IN_ZOOKEEPER),
            [owned("assigned", 1, "d"), owned("assigned", 3, "c", None)],
            False,
        ),
        (
            stored(3.9, 5, **IN_ZOOKEEPER),
            stored(4, 3, "d", **IN_ZOOKEEPER),
            [owned("assigned", 1, "d", None), owned("assigned", 3, "c")],
            True,
        ),
        (
            stored(3.9, 5, **IN_ZOOKEEPER),
            stored(4, 3, "d", **IN_ZOOKEEPER),
            [owned("assigned", 1, "d"), owned("assigned", 3, "c", 2)],
            True,
        ),
    ],
    ids=[
        *("same member", "late request", "seek", "seek of another", "seek ahead"),
        *("seek before the assignment", "chosen", "truncated", "truncated behind it"),
        *("next owner", "last owner comes late", "former owner comes late"),
        *("ZooKeeper", "after the session", "session just ended", "two stores"),
        *("Kafka's group beside ZooKeeper", "the reverse", "both of Kafka's group"),
    ],
)
def test_committed_offset_goes_back(
    last: Operation, now: Operation, more: list[Operation], is_wrong: bool
) -> None:
    assert ("commit-went-back" in names(check([SENT, last, now, *more]))) == is_wrong


@pytest.mark.parametrize(
    ("between", "is_wrong"),
    [(None, True), ("revoked", False), ("expired", False), ("stop", False), ("commit", True)],
)
def test_owner_without_generation_must_have_given_up(between: str | None, is_wrong: bool) -> None:
    def assigned(at: float, process: str) -> Operation:
        return replace(owned("assigned", at, process, None), facts={"exclusive": True})

    given_up = [] if between is None else [owned(between, 2, "a", None)]
    history = [SENT, assigned(1, "a"), *given_up, assigned(3, "b")]
    assert ("double-owner" in names(check(history))) == is_wrong
    unknown = [replace(one, facts={}) for one in history]
    assert "double-owner" not in names(check(unknown))


def test_retry_after_a_cancelled_call_explains_a_second_copy() -> None:
    """What `send_many` had buffered when it was cancelled was sent, and sent again."""
    cancelled = send(0, "a", None, status="unknown")
    history = [cancelled, retried(2, 1), poll(3, "aa", 0)]
    assert "duplicate" not in names(check(history))
    accepted = replace(cancelled, accepted=0.1)
    assert "duplicate" in names(check([accepted, *history[1:]]))


def test_memory_of_a_request_in_flight_isnt_leaked() -> None:
    """A message that has expired keeps its memory until its request ends."""
    facts = {"buffer_used_bytes": 3, "requests_in_flight": 1}
    history = [SENT, poll(1, "abcde", 0), call("metrics", 2, "p", facts=facts)]
    assert check(history) == []
