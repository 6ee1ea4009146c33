"""The offsets of a transaction are what the target acknowledged, not what was counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.offset_runs import OffsetRun
from aiokafka08.bridge.sink.events import Chunk
from aiokafka08.bridge.sink.transaction import (
    QUIET_S,
    OpenTransaction,
    callbacks_of,
    timestamps_of,
)
from aiokafka08.structs import ConsumerRecord, TopicPartition

TP = TopicPartition("t", 0)


def record(
    offset: int, timestamp: int | None = None, value: bytes | None = b"v"
) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("t", 0, offset, timestamp, None, None, value, None, -1, 1, ())


def chunk(offsets: Sequence[int], timestamp: int | None = None) -> Chunk:
    records = [record(one, timestamp) for one in offsets]
    return Chunk(0, TP, TP, records, offsets[-1] + 1, len(records))


def sent(transaction: OpenTransaction, offsets: Sequence[int], targets: dict[int, int]) -> None:
    made = transaction.add(chunk(offsets))
    assert made is not None
    made.acknowledged.update(targets)


def test_run_begins_where_it_was_acknowledged() -> None:
    transaction = OpenTransaction(0.0)
    sent(transaction, range(10, 15), {0: 107, 4: 111})
    sent(transaction, range(15, 17), {0: 112, 1: 113})
    assert transaction.runs() == {TP: [OffsetRun(10, 107, 7)]}
    assert transaction.positions == {TP: 17}


def test_hole_of_source_begins_a_run() -> None:
    transaction = OpenTransaction(0.0)
    sent(transaction, [1, 2, 5, 6, 9], {0: 20, 4: 24})
    assert transaction.runs() == {
        TP: [OffsetRun(1, 20, 2), OffsetRun(5, 22, 2), OffsetRun(9, 24, 1)]
    }


def test_wide_hole_of_the_source_takes_no_memory() -> None:
    transaction = OpenTransaction(0.0)
    sent(transaction, [1, 2, 1 << 40], {0: 20, 2: 22})
    assert transaction.runs() == {TP: [OffsetRun(1, 20, 2), OffsetRun(1 << 40, 22, 1)]}


def test_messages_that_share_an_offset_are_runs_of_one_message() -> None:
    """Also if a hole makes up for them in number."""
    transaction = OpenTransaction(0.0)
    sent(transaction, [1, 1, 3], {0: 20, 2: 22})
    assert transaction.runs() == {
        TP: [OffsetRun(1, 20, 1), OffsetRun(1, 21, 1), OffsetRun(3, 22, 1)]
    }


def test_foreign_record_asks_for_each_offset() -> None:
    """Somebody else has written between ours: two acknowledgements aren't enough."""
    transaction = OpenTransaction(0.0)
    sent(transaction, [1, 2, 3, 4], {0: 20, 3: 25})
    assert transaction.runs() is None


def test_runs_between_foreign_records_are_exact() -> None:
    transaction = OpenTransaction(0.0)
    sent(transaction, [1, 2, 3, 4], {0: 20, 1: 21, 2: 24, 3: 25})
    assert transaction.runs() == {TP: [OffsetRun(1, 20, 2), OffsetRun(3, 24, 2)]}


def test_missing_acknowledgement_is_an_error() -> None:
    transaction = OpenTransaction(0.0)
    sent(transaction, [1, 2], {0: 20})
    with pytest.raises(ValueError, match="weren't acknowledged"):
        transaction.runs()


def test_transaction_behind_a_full_one_ends_when_quiet() -> None:
    config = parse_config(
        'name = "b"\n[source]\nbootstrap = "s:1"\n[target]\nbootstrap = "t:1"\n'
        '[topics]\ninclude = ["t"]\n'
    )
    limits = replace(config.copy, transaction_records=4, transaction_s=1.0)
    full, last = OpenTransaction(10.0), OpenTransaction(20.0, follows_full=True)
    assert full.wait_s(limits, 10.25) == 0.75
    full.add(chunk([1, 2, 3]))
    assert not full.is_full(limits)
    full.add(chunk([4]))
    assert full.is_full(limits)
    assert last.wait_s(limits, 20.25) == QUIET_S
    assert last.wait_s(limits, 21.0) == 0.0


def test_position_without_records_has_no_run() -> None:
    transaction = OpenTransaction(0.0)
    assert transaction.add(Chunk(0, TP, TP, [], 7, 0)) is None
    assert transaction.runs() == {}
    assert transaction.positions == {TP: 7}


@pytest.mark.parametrize(("every", "expected"), [(False, {0, 3}), (True, {0, 1, 2, 3})])
def test_first_and_last_message_have_callbacks(every: bool, expected: set[int]) -> None:
    made = callbacks_of(4, lambda index: lambda error, message: None, every=every)
    assert {index for index, one in enumerate(made) if one is not None} == expected


def test_single_message_has_one_callback() -> None:
    (callback,) = callbacks_of(1, lambda index: lambda error, message: None, every=False)
    assert callback is not None


@pytest.mark.parametrize(
    ("keep", "stamp", "expected"),
    [(True, 5000, 5000), (True, -1, 0), (True, None, 0), (False, 5000, 0)],
)
def test_record_without_timestamp_is_given_none(
    keep: bool, stamp: int | None, expected: int
) -> None:
    assert timestamps_of([record(1, stamp), record(2, 7000)], keep=keep) == [
        expected,
        7000 if keep else 0,
    ]


def test_memory_of_a_chunk_counts_its_records() -> None:
    assert chunk(range(1000)).memory > 100 * chunk(range(1000)).size
