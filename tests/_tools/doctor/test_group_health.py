"""Rules about groups."""

from __future__ import annotations

import pytest

from aiokafka08._tools.doctor.group_health import (
    beyond_end,
    hidden_by_damage,
    idle_lag,
    near_retention,
    overtaken,
    seconds_left,
    unknown_members,
)
from aiokafka08.structs import TopicPartition
from tests._tools.doctor.samples import cluster, group, log, told

IDLE = [("idle-group-lag", "group 'g' (kafka)")]


def test_idle_group_with_lag_is_found() -> None:
    seen = cluster(log(0, 1500), groups=[group(250)])
    [found] = idle_lag(seen, seen)
    assert told([found]) == IDLE
    assert found.why.startswith("no members, and 1,250 offsets behind in t. (A consumer that uses")


def test_deleted_messages_of_an_idle_group_are_counted() -> None:
    seen = cluster(log(1000, 1500), groups=[group(250)])
    [found] = idle_lag(seen, seen)
    assert "1,250 offsets behind in t. 750 of them are deleted already. " in found.why
    assert not list(overtaken(seen, seen))


@pytest.mark.parametrize(
    ("config", "loss"),
    [
        ({"cleanup.policy": "delete"}, " Retention deletes what it hasn't read"),
        (
            {},
            " Retention deletes what it hasn't read (unless the brokers' cleanup.policy is "
            "compact)",
        ),
        (
            {"cleanup.policy": "compact"},
            " Compaction removes what it hasn't read where a newer message has the same key",
        ),
        (
            {"cleanup.policy": "compact,delete"},
            " Retention deletes what it hasn't read of t. Compaction removes what it hasn't read "
            "where a newer message has the same key",
        ),
    ],
)
def test_what_an_idle_group_loses_depends_on_the_policy(config: dict[str, str], loss: str) -> None:
    seen = cluster(log(0, 1500), config=config, groups=[group(250)])
    [found] = idle_lag(seen, seen)
    assert found.why.endswith(f"commits.){loss}")


@pytest.mark.parametrize(
    "one",
    [
        group(1500),  # no lag
        group(250, ["member"]),
        group(250, None),  # members unknown
    ],
)
def test_group_is_not_idle_or_has_no_lag(one: object) -> None:
    seen = cluster(log(0, 1500), groups=[one])  # type: ignore[list-item]
    assert not list(idle_lag(seen, seen))


def test_group_without_members_that_commits_is_in_use() -> None:
    first, last = (cluster(log(0, 1500), groups=[group(at)]) for at in (250, 260))
    assert not list(idle_lag(first, last))
    assert told(idle_lag(first, first)) == IDLE


def test_old_offsets_in_the_other_store_are_not_idle() -> None:
    """A group moved from ZooKeeper to Kafka leaves its offsets in ZooKeeper."""
    groups = [group(250, store="zookeeper"), group(1500, ["member"])]
    seen = cluster(log(0, 1500), groups=groups)
    assert not list(idle_lag(seen, seen))


def test_members_of_one_store_count_for_both() -> None:
    """On 0.8.2 brokers don't know the members of a group whose offsets they have."""
    groups = [group(250, None), group(200, store="zookeeper")]
    seen = cluster(log(0, 1500), groups=groups)
    assert told(idle_lag(seen, seen)) == IDLE
    groups = [group(250, None), group(1500, ["member"], store="zookeeper")]
    seen = cluster(log(0, 1500), groups=groups)
    assert not list(idle_lag(seen, seen))


def test_group_in_both_stores_counts_once_by_the_higher_offset() -> None:
    """As in `group lag`: the other offset is left behind by a group that has moved."""
    groups = [group(250), group(1000, store="zookeeper")]
    seen = cluster(log(0, 1500), groups=groups)
    [found] = idle_lag(seen, seen)
    assert found.where == "group 'g' (zookeeper)"
    assert found.why.startswith("no members, and 500 offsets behind in t.")
    seen = cluster(log(0, 1500), groups=[group(250), group(250, store="zookeeper")])
    [found] = idle_lag(seen, seen)
    assert found.where == "group 'g' (kafka, zookeeper)"
    assert found.why.startswith("no members, and 1,250 offsets behind in t.")
    seen = cluster(log(0, 1500), groups=[group(250), group(1500, store="zookeeper")])
    assert not list(idle_lag(seen, seen))


def test_old_offsets_in_the_other_store_are_not_overtaken() -> None:
    groups = [group(250, store="zookeeper"), group(8000, ["member"])]
    seen = cluster(log(1000, 9000), groups=groups)
    assert not list(overtaken(seen, seen))
    later = cluster(log(1000, 9600), groups=[groups[0], group(8600, ["member"])])
    assert not list(near_retention(seen, later, 60.0))
    assert not list(hidden_by_damage({TopicPartition("t", 0): {250: 300}}, seen))
    both = [group(250, store="zookeeper"), group(250)]
    [found] = hidden_by_damage(
        {TopicPartition("t", 0): {250: 300}}, cluster(log(0, 900), groups=both)
    )
    assert found.where == "group 'g' (kafka, zookeeper), topic 't', partition 0"


def test_groups_whose_members_are_unknown_are_named() -> None:
    """Brokers of 0.8.2 have the offsets, and don't know the members: they are in ZooKeeper."""
    groups = [group(250, None, name=name) for name in ("mixed", "billing")]
    groups += [group(1500, None, name="at-end"), group(250, name="idle")]
    seen = cluster(log(0, 1500), groups=groups)
    [found] = unknown_members(seen, seen, asks_zookeeper=False)
    assert (found.code.value, found.where) == ("unchecked", "2 groups")
    assert found.why == (
        "behind, and whether they have members isn't known: 'billing' (1,250 offsets), 'mixed' "
        "(1,250 offsets)"
    )
    assert found.action.startswith("Give --zookeeper host:2181/chroot")
    [found] = unknown_members(seen, seen, asks_zookeeper=True)
    assert "unreadable" in found.action
    [one] = unknown_members(
        *[cluster(log(0, 9), groups=[group(8, None)])] * 2, asks_zookeeper=False
    )
    assert (one.where, one.why) == (
        "1 group",
        "behind, and whether it has members isn't known: 'g' (1 offset)",
    )
    many = [group(250, None, name=f"g{number}") for number in range(12)]
    seen = cluster(log(0, 1500), groups=many)
    [found] = unknown_members(seen, seen, asks_zookeeper=False)
    assert found.where == "12 groups"
    assert found.why.endswith("'g7' (1,250 offsets), and 2 more")
    moved = cluster(log(0, 1500), groups=[group(260, None, name=one.group) for one in many])
    assert not list(unknown_members(seen, moved, asks_zookeeper=False))


def test_offsets_that_are_not_known_make_no_finding() -> None:
    for one in (log(None, None), log(0, None)):
        seen = cluster(one, groups=[group(250)])
        assert not [*idle_lag(seen, seen), *overtaken(seen, seen), *beyond_end(seen, seen)]
    gone = cluster(log(0, 10), topic="other", groups=[group(250)])
    assert not [*idle_lag(gone, gone), *overtaken(gone, gone), *beyond_end(gone, gone)]


def test_group_in_use_that_was_overtaken_is_found() -> None:
    seen = cluster(log(1000, 1500), groups=[group(250, ["member"])])
    [found] = overtaken(seen, seen)
    assert told([found]) == [("group-overtaken", "group 'g' (kafka), topic 't', partition 0")]
    assert "750 offsets were deleted" in found.why
    level = cluster(log(1000, 1500), groups=[group(1000, ["member"])])
    assert not list(overtaken(level, level))


def test_committed_offset_after_the_end_is_found() -> None:
    first = cluster(log(0, 10), groups=[group(250)])
    last = cluster(log(0, 12), groups=[group(250)])
    assert told(beyond_end(first, last)) == [
        ("offset-beyond-end", "group 'g' (kafka), topic 't', partition 0")
    ]
    fine = cluster(log(0, 300), groups=[group(250)])
    assert not list(beyond_end(first, fine))


@pytest.mark.parametrize(
    ("was", "is_", "left_s"),
    [
        # (start, end, committed) at two times, 60 s apart
        ((1000, 9000, 2000), (1000, 9600, 2000), 100),  # it stands still: 1000 at 10/s
        ((1000, 9000, 2000), (1000, 9600, 2300), 260),  # half as fast as the writers: 1300 at 5/s
        ((1000, 9000, 2000), (1000, 9600, 2600), None),  # it keeps up
        ((1000, 9000, 2000), (1000, 9000, 2000), None),  # nobody writes
        ((0, 9000, 2000), (0, 9600, 2000), None),  # retention hasn't deleted anything
        ((1000, 9000, 6000), (1000, 9600, 6000), None),  # in the newer half
        ((1000, 9000, 3500), (3000, 9600, 3500), 0),  # the next deletion
        ((1000, 9000, 2000), (3000, 9600, 2000), None),  # overtaken: another finding
    ],
)
def test_time_until_retention_overtakes_a_group(
    was: tuple[int, int, int], is_: tuple[int, int, int], left_s: float | None
) -> None:
    first, last = (
        cluster(log(start, end), groups=[group(committed)]) for start, end, committed in (was, is_)
    )
    found = list(near_retention(first, last, 60.0))
    if left_s is None:
        assert not found
        return
    [one] = found
    assert told([one]) == [("retention-near", "group 'g' (kafka), topic 't', partition 0")]
    when = f"in about {left_s} s" if left_s < 120 else "in about 4 min"
    assert (when if left_s else "with its next deletion") in one.why


def test_time_beyond_the_horizon_is_no_finding() -> None:
    first, last = (cluster(log(10**9, 10**10 + n), groups=[group(10**9 * 2)]) for n in (0, 60))
    assert not list(near_retention(first, last, 60.0))


def test_compacted_topic_has_no_retention() -> None:
    config = {"cleanup.policy": "compact"}
    first, last = (
        cluster(log(1000, 9000 + n), config=config, groups=[group(2000)]) for n in (0, 600)
    )
    assert not list(near_retention(first, last, 60.0))


def test_group_that_is_new_has_no_estimate() -> None:
    first, last = cluster(log(1000, 9000)), cluster(log(1000, 9600), groups=[group(2000)])
    assert not list(near_retention(first, last, 60.0))
    assert seconds_left((5, 5), (log(None, None), log(1, 9)), 60.0) is None
