"""What becomes of offsets on the way to the target, and on the way back."""

from __future__ import annotations

import pytest

from aiokafka08.admin.group_lag import LogBounds
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.offset_runs import OffsetMap, OffsetRun
from aiokafka08.bridge.groups.carry_over import without_head_holes
from aiokafka08.bridge.groups.group_plan import (
    UNREAD,
    CopiedPartition,
    GroupOutcome,
    SourceOffset,
    merge_stores,
    plan_group,
    refuse_changed,
)
from aiokafka08.bridge.groups.rollback import RollbackOutcome, plan_rollback
from aiokafka08.structs import TopicPartition

TP = TopicPartition("orders", 0)
COPY = TopicPartition("old.orders", 0)
COPIED = CopiedPartition(
    COPY, OffsetMap([OffsetRun(10, 0, 5), OffsetRun(15, 6, 5)]), 20, LogBounds(10, 40), 12
)


@pytest.mark.parametrize(
    ("offset", "before", "members", "rewind", "outcome", "target"),
    [
        (17, None, [], False, "move", 8),
        (17, 7, [], False, "move", 8),
        (17, 8, [], False, "same", 8),
        (15, 5, [], False, "same", 6),  # in front of the marker, and behind it
        (20, 12, [], False, "same", 11),
        (17, 9, [], False, "behind", 8),
        (17, 9, [], True, "move", 8),
        (17, None, ["worker (/10.0.0.7)"], True, "refused", 8),
        (20, None, [], False, "move", 11),
        (21, None, [], False, "waiting", None),
        (5, None, [], False, "move", 0),
    ],
)
def test_group_goes_forward_and_only_over_what_is_copied(
    offset: int,
    before: int | None,
    members: list[str],
    rewind: bool,
    outcome: GroupOutcome,
    target: int | None,
) -> None:
    [move] = plan_group(
        "g",
        {TP: SourceOffset(offset, "note", "kafka")},
        {TP: COPIED},
        {} if before is None else {COPY: before},
        members,
        rewind=rewind,
    )
    assert (move.outcome, move.target_offset) == (outcome, target)
    assert (move.copy, move.metadata, move.before) == (COPY, "note", before)
    assert bool(move.reason) == (outcome not in ("move", "same"))


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [(None, None, "move"), (7, 7, "move"), (None, 3, "refused"), (7, 9, "refused"), (8, 9, "same")],
)
def test_offset_committed_meanwhile_is_not_moved(
    before: int | None, now: int | None, outcome: GroupOutcome
) -> None:
    at = {} if before is None else {COPY: before}
    moves = plan_group("g", {TP: SourceOffset(17, "", "kafka")}, {TP: COPIED}, at, [])
    [move] = refuse_changed(moves, {} if now is None else {COPY: now})
    assert move.outcome == outcome
    assert (f"committed {now} meanwhile" in move.reason) == (outcome == "refused")


async def test_partition_without_leader_is_not_read() -> None:
    """The read would wait, and fail: then no group at all was carried over."""
    nowhere = parse_config(
        'name = "x"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
        '[topics]\ninclude = ["orders"]'
    )
    part = CopiedPartition(COPY, COPIED.known, 20, LogBounds(None, None), 12)
    offsets = {TP: SourceOffset(5, "", "kafka")}
    assert await without_head_holes(nowhere, {TP: part}, [offsets]) == {TP: part}
    [move] = plan_group("g", offsets, {TP: part}, {}, [])
    assert move.outcome == "missing"


def test_messages_that_were_never_copied_are_named() -> None:
    part = CopiedPartition(COPY, COPIED.known, 20, LogBounds(0, 40), 12)
    [move] = plan_group("g", {TP: SourceOffset(5, "", "kafka")}, {TP: part}, {}, [])
    assert (move.outcome, move.reason) == ("missing", "messages 5 to 10 were never copied")


def test_partition_without_copies_begins_at_the_targets_start() -> None:
    """What the target has there, producers have written after the cut-over: nobody has read it."""
    offsets = {TP: SourceOffset(7, "", "kafka")}
    empty = CopiedPartition(COPY, OffsetMap(), None, LogBounds(7, 7), 3)
    assert [move.target_offset for move in plan_group("g", offsets, {TP: empty}, {}, [])] == [3]
    started = CopiedPartition(COPY, OffsetMap(), 7, LogBounds(0, 9), 3)
    assert [move.target_offset for move in plan_group("g", offsets, {TP: started}, {}, [])] == [3]
    unread = CopiedPartition(COPY, OffsetMap(), None, LogBounds(0, 9), 3)
    [move] = plan_group("g", offsets, {TP: unread}, {}, [])
    assert (move.outcome, unread.lag) == ("waiting", 9)
    missing = CopiedPartition(COPY, OffsetMap(), None, LogBounds(7, 7), None)
    [move] = plan_group("g", offsets, {TP: missing}, {}, [])
    assert (move.outcome, move.reason) == ("waiting", "old.orders/0 isn't at the target yet")


def test_partition_without_copies_is_planned_again_and_goes_back() -> None:
    empty = {TP: CopiedPartition(COPY, OffsetMap(), None, LogBounds(0, 0), 0)}
    offsets = {TP: SourceOffset(0, "", "kafka")}
    for at, outcome in ((0, "same"), (3, "behind")):
        [move] = plan_group("g", offsets, empty, {COPY: at}, [])
        assert move.outcome == outcome
    for at, back in ((0, "same"), (3, "beyond")):
        [rollback] = plan_rollback("g", offsets, empty, {COPY: at}, [])
        assert (rollback.outcome, rollback.source_offset) == (back, 0)


def test_other_topics_are_left_out() -> None:
    offsets = {TopicPartition("other", 0): SourceOffset(7, "", "kafka")}
    assert plan_group("g", offsets, {TP: COPIED}, {}, []) == []


def test_larger_offset_of_two_stores_counts() -> None:
    other = TopicPartition("orders", 1)
    merged = merge_stores(
        [("kafka", {TP: (5, "a"), other: (3, "")}), ("zookeeper", {TP: (5, ""), other: (4, "")})]
    )
    assert merged == {TP: SourceOffset(5, "a", "kafka"), other: SourceOffset(4, "", "zookeeper")}


@pytest.mark.parametrize(
    ("at", "before", "members", "rewind", "outcome", "offset", "beyond"),
    [
        (8, 12, [], False, "move", 17, False),
        (8, None, [], False, "move", 17, False),
        (8, 17, [], False, "same", 17, False),
        (8, 18, [], False, "behind", 17, False),
        (8, 18, [], True, "move", 17, False),
        (8, 12, ["worker"], True, "refused", 17, False),
        (11, 12, [], False, "move", 20, False),
        (12, 12, [], False, "move", 20, False),
        (13, 12, [], False, "beyond", 20, True),
        (13, 20, [], False, "beyond", 20, True),
        (13, 12, ["worker"], False, "refused", 20, True),
    ],
)
def test_rollback_skips_nothing(
    at: int,
    before: int | None,
    members: list[str],
    rewind: bool,
    outcome: RollbackOutcome,
    offset: int,
    beyond: bool,
) -> None:
    offsets = {} if before is None else {TP: SourceOffset(before, "", "zookeeper")}
    [move] = plan_rollback("g", offsets, {TP: COPIED}, {COPY: at}, members, rewind=rewind)
    assert (move.outcome, move.source_offset) == (outcome, offset)
    assert ("read beyond the copy, which ends at 11" in move.reason) == beyond


def test_rollback_beyond_the_copy_needs_to_be_wanted() -> None:
    """The messages that the group has read there aren't at the source."""
    [move] = plan_rollback("g", {}, {TP: COPIED}, {COPY: 13}, [], beyond_copy=True)
    assert (move.outcome, move.source_offset) == ("move", 20)
    assert "read beyond the copy" in move.reason


def test_rollback_without_runs_is_unknown() -> None:
    part = CopiedPartition(COPY, OffsetMap(), 7, LogBounds(0, 9), 3)
    [move] = plan_rollback("g", {}, {TP: part}, {COPY: 3}, [])
    assert move.before is None
    assert (move.outcome, move.source_offset) == ("unknown", None)
    assert plan_rollback("g", {}, {TP: part}, {}, []) == []


@pytest.mark.parametrize("kafka", [None, 11])
def test_rollback_moves_nothing_where_offsets_may_be_unread(kafka: int | None) -> None:
    """ZooKeeper refuses a node of the group: what it has there may be further than the target."""
    offsets = merge_stores(
        [("kafka", {} if kafka is None else {TP: (kafka, "")})],
        [("zookeeper", {UNREAD: "the ACL refuses this client"})],
    )
    [move] = plan_rollback("g", offsets, {TP: COPIED}, {COPY: 8}, [], rewind=True)
    assert (move.outcome, move.reason) == ("refused", "the ACL refuses this client")


def test_unreadable_offset_is_never_moved() -> None:
    """Whatever the other store has: the unreadable offset may be the larger one."""
    offsets = merge_stores(
        [("kafka", {TP: (7, "")})],
        [("zookeeper", {TP: "holds b'junk'", TopicPartition("", -1): "no partition"})],
    )
    moves = plan_group("g", offsets, {TP: COPIED}, {}, [])
    assert [(one.outcome, one.source_offset, one.target_offset, one.reason) for one in moves] == [
        ("unreadable", None, None, "no partition"),
        ("unreadable", None, None, "holds b'junk'"),
    ]
