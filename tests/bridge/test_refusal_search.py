"""The search for the record that a target refuses, against a model of librdkafka's batches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from aiokafka08.bridge.sink.refusal_search import RefusalSearch, RefusedOffset
from aiokafka08.structs import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
CHUNK = 2000


def attempt(
    search: RefusalSearch, offsets: Sequence[int], bad: set[int], *, every: bool
) -> RefusedOffset | None:
    """Send chunks, in one batch or in pieces, until the target refuses a batch."""
    pending: list[int] = []

    def flush() -> bool:
        noted = False
        if bad.intersection(pending):
            for offset in pending:
                is_end = (offset - offsets[0]) % CHUNK in (0, CHUNK - 1)
                if every or is_end:
                    search.note(RefusedOffset(TP, offset, "INVALID_RECORD"))
            noted = True
        pending.clear()
        return noted

    for at in range(0, len(offsets), CHUNK):
        chunk = array("q", offsets[at : at + CHUNK])
        pieces = search.pieces(TP, chunk)
        for piece in pieces or [slice(0, len(chunk))]:
            if pieces and flush():
                return search.end_attempt(every=every)
            pending.extend(chunk[piece])
        if pieces and flush():
            return search.end_attempt(every=every)
    flush()
    return search.end_attempt(every=every)


@pytest.mark.parametrize("bad", [{0}, {1}, {1999}, {2000}, {4321}, {9999}, {17, 4321}, {5, 6}])
def test_refused_record_is_found_in_few_attempts(bad: set[int]) -> None:
    search = RefusalSearch()
    offsets = range(0, 30_000, 3)  # a compacted topic
    wrong = {3 * one for one in bad}
    assert attempt(search, offsets, wrong, every=False) is None
    found = [attempt(search, offsets, wrong, every=True) for _ in range(4)]
    first = next(one for one in found if one is not None)
    assert first == (TP, min(wrong), "INVALID_RECORD")


def test_record_that_librdkafka_itself_refuses_is_named_at_once() -> None:
    search = RefusalSearch()
    search.note(RefusedOffset(TP, 7, "INVALID_RECORD"))
    search.note(RefusedOffset(TP, 9, "MSG_SIZE_TOO_LARGE"), alone=True)
    assert search.end_attempt(every=False) == (TP, 9, "MSG_SIZE_TOO_LARGE")
    assert search.end_attempt(every=True) is None  # the next attempt begins with nothing


def test_other_partitions_are_not_sent_in_pieces() -> None:
    search = RefusalSearch()
    for offset in range(10, 20):
        search.note(RefusedOffset(TP, offset, "INVALID_RECORD"))
    search.note(RefusedOffset(OTHER, 1, "INVALID_RECORD"))
    assert search.end_attempt(every=True) is None
    assert search.pieces(OTHER, range(10, 20)) == []
    assert search.pieces(TP, range(10)) == []
    assert search.pieces(TP, range(8, 12)) == [slice(0, 2), slice(2, 3), slice(3, 4)]


def test_search_ends_when_the_suspects_are_committed() -> None:
    """The settings of the topic were mended meanwhile."""
    search = RefusalSearch()
    assert not search.is_on({TP: 5})
    for offset in (10, 11):
        search.note(RefusedOffset(TP, offset, "INVALID_RECORD"))
    search.end_attempt(every=True)
    assert search.is_on({TP: 11, OTHER: 30})
    assert not search.is_on({TP: 12})
    assert search.pieces(TP, range(8, 12)) == []


SKIPPED = "OUT_OF_ORDER_SEQUENCE_NUMBER: skipped sequence numbers"
INVALID = RefusedOffset(TopicPartition("orders", 0), 420, "INVALID_RECORD: no key")


def test_refusal_is_named_in_place_of_its_consequences() -> None:
    """These are the attempts for a record without a key in a compacted topic of 4.1."""
    search = RefusalSearch()
    cause = "the target refuses records of orders/0 (INVALID_RECORD: no key)"
    search.note(INVALID)
    assert search.explain(SKIPPED) == (cause, False)  # the first one isn't hidden
    search.end_attempt(every=False)
    search.note(INVALID)
    search.note(INVALID._replace(offset=421))
    assert search.explain("INVALID_RECORD: Broker failed") == (cause, True)
    search.end_attempt(every=True)
    assert search.explain(SKIPPED) == (f"{SKIPPED}; {cause}", True)
    search.end_attempt(every=True)
    search.note(INVALID, alone=True)
    search.explain(SKIPPED)
    assert search.end_attempt(every=True) == INVALID
    assert search.explain(SKIPPED) == (f"{SKIPPED}; {cause}", True)
    search.end_attempt(every=True)
    assert search.explain(SKIPPED) == (SKIPPED, False)  # that follows from nothing


def test_cause_that_is_no_refusal_is_not_hidden() -> None:
    search = RefusalSearch()
    assert search.explain(SKIPPED) == (SKIPPED, False)
    search.note(INVALID, alone=True)
    search.explain("INVALID_RECORD: Broker failed")
    search.end_attempt(every=True)
    assert search.explain("NOT_ENOUGH_REPLICAS: away") == ("NOT_ENOUGH_REPLICAS: away", False)
    search.note(INVALID)
    text, is_known = search.explain("NOT_ENOUGH_REPLICAS: away")
    assert text.startswith("NOT_ENOUGH_REPLICAS: away; the target refuses records of orders/0")
    assert not is_known
    search.end_attempt(every=False)
    assert not search.is_on({})  # a commit
    assert search.explain(SKIPPED) == (SKIPPED, False)
