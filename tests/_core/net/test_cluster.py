"""`ClusterSnapshot`: how Metadata responses merge; checks of topic names and partitions."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08._core.net.cluster import (
    ClusterSnapshot,
    MergeOrder,
    is_failed_by_one_topic,
)
from aiokafka08._core.topic_names import (
    NewTopicNames,
    check_new_topic_name,
    check_topic_name,
    check_topic_names,
)
from aiokafka08.errors import InvalidTopicError
from aiokafka08.protocol.requests.metadata import (
    Broker,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.structs import TopicPartition

P = PartitionState


def brokers(*node_ids: int) -> list[Broker]:
    return [Broker(node_id, f"kafka{node_id}", 9092) for node_id in node_ids]


def topic(name: str, *partitions: P, code: int = 0) -> TopicState:
    return TopicState(code, name, False, list(partitions))


def led(partition: int, leader: int, code: int = 0) -> P:
    return P(code, partition, leader, [0, 1, 2], [0, 1])


def answer(node_ids: tuple[int, ...], *topics: TopicState, controller: int = -1) -> Any:
    return MetadataResponse(brokers(*node_ids), controller, list(topics))


def merged(*answers: MetadataResponse, all_topics: bool = False) -> ClusterSnapshot:
    snapshot = ClusterSnapshot()
    for one in answers:
        snapshot = snapshot.merge(one, all_topics=all_topics)
    return snapshot


def leaders(snapshot: ClusterSnapshot, name: str) -> list[int | None]:
    return [snapshot.leader(TopicPartition(name, number)) for number in snapshot.partitions(name)]


def test_no_leader_reason_names_the_cause() -> None:
    snapshot = merged(
        answer((0,), topic("t", led(0, 7), led(1, -1), led(2, 0)), topic("gone", code=3))
    )

    def why(name: str, partition: int) -> str | None:
        return snapshot.no_leader_reason(TopicPartition(name, partition))

    assert why("unseen", 0) is None
    assert why("t", 0) == "its leader, node 7, isn't among the known brokers"
    assert why("t", 1) == "the partition has no leader now"
    assert why("t", 44) == "topic 't' has no partition 44; it has 0 to 2"
    assert why("t", 2) is None  # its leader is known
    assert why("gone", 0) == (
        "topic 'gone' doesn't exist and the brokers don't create it, or this principal may not "
        "describe it"
    )


def address(snapshot: ClusterSnapshot, node_id: int) -> tuple[str, int]:
    broker = snapshot.brokers[node_id]
    return broker.host, broker.port


def test_a_response_becomes_a_snapshot() -> None:
    snapshot = merged(answer((1, 0), topic("t", led(1, 0), led(0, 1)), controller=1))
    assert list(snapshot.brokers) == [0, 1]
    assert address(snapshot, 1) == ("kafka1", 9092)
    assert list(snapshot.partitions("t")) == [0, 1]
    assert leaders(snapshot, "t") == [1, 0]
    assert snapshot.controller_id == 1
    one = snapshot.partitions("t")[0]
    assert (one.replicas, one.isr, one.error_code) == ((0, 1, 2), (0, 1), 0)


def test_unknown_brokers_and_topics_are_none_or_empty() -> None:
    snapshot = ClusterSnapshot()
    assert 0 not in snapshot.brokers
    assert snapshot.partitions("t") == {}
    assert snapshot.leader(TopicPartition("t", 0)) is None
    known = merged(answer((0,), topic("t", led(0, 0))))
    assert known.leader(TopicPartition("t", 1)) is None


def test_merge_does_not_change_the_old_snapshot() -> None:
    before = merged(answer((0, 1), topic("t", led(0, 0))))
    after = before.merge(answer((1,), topic("t", led(0, 1))), all_topics=False)
    assert leaders(before, "t") == [0]
    assert leaders(after, "t") == [1]
    with pytest.raises(TypeError):
        before.topics["u"] = before.topics["t"]  # type: ignore[index]
    with pytest.raises(TypeError):
        before.brokers[2] = before.brokers[0]  # type: ignore[index]


def test_equal_responses_give_equal_snapshots() -> None:
    one = answer((0, 1), topic("t", led(0, 0), led(1, 1)), topic("u", led(0, 1)))
    other = answer((1, 0), topic("u", led(0, 1)), topic("t", led(1, 1), led(0, 0)))
    assert merged(one) == merged(other) == merged(one, other)
    assert merged(one) != merged(answer((0, 1), topic("t", led(0, 0), led(1, 0))))


def test_unchanged_topic_stays_the_same_object() -> None:
    """Listeners skip it."""
    response = answer((0, 1), topic("t", led(0, 0)), topic("u", led(0, 0)))
    before = merged(response)
    after = before.merge(
        answer((0, 1), topic("t", led(0, 0)), topic("u", led(0, 1))), all_topics=True
    )
    assert after.topics["t"] is before.topics["t"]
    assert leaders(after, "u") == [1]


def test_brokers_follow_the_responses() -> None:
    moved = MetadataResponse([Broker(0, "kafka0", 9092), Broker(1, "elsewhere", 9093)], -1, [])
    snapshot = merged(answer((0, 1, 2), topic("t", led(0, 0))), moved)
    assert address(snapshot, 1) == ("elsewhere", 9093)
    assert list(snapshot.brokers) == [0, 1]


# --- never emptier ------------------------------------------------------------------------------


@pytest.mark.parametrize("all_topics", [False, True])
def test_a_response_without_brokers_keeps_the_brokers(all_topics: bool) -> None:
    full = answer((0, 1), topic("t", led(0, 1)), controller=1)
    snapshot = merged(full).merge(answer(()), all_topics=all_topics)
    assert list(snapshot.brokers) == [0, 1]
    assert leaders(snapshot, "t") == [1]
    assert snapshot.controller_id == 1


@pytest.mark.parametrize("code", [-1, 3, 5, 17, 29])
def test_a_topic_error_is_kept_with_the_old_partitions(code: int) -> None:
    full = answer((0, 1), topic("t", led(0, 1), led(1, 0)))
    snapshot = merged(full, answer((0, 1), topic("t", code=code)))
    assert leaders(snapshot, "t") == [1, 0]
    assert snapshot.topics["t"].error_code == code


def test_an_unknown_topic_has_its_error_and_no_partitions() -> None:
    info = merged(answer((0,), topic("t", code=3))).topics["t"]
    assert (info.error_code, dict(info.partitions)) == (3, {})


def test_a_topic_that_works_again_loses_its_error() -> None:
    full = answer((0,), topic("t", led(0, 0)))
    assert merged(full, answer((0,), topic("t", code=5)), full).topics["t"].error_code == 0


def test_topics_that_were_not_requested_are_kept() -> None:
    snapshot = merged(answer((0,), topic("t", led(0, 0))), answer((0,), topic("u", led(0, 0))))
    assert set(snapshot.topics) == {"t", "u"}


def test_a_topic_missing_from_a_full_listing_is_removed() -> None:
    snapshot = merged(answer((0,), topic("t", led(0, 0)), topic("u", led(0, 0))))
    snapshot = snapshot.merge(answer((0,), topic("u", led(0, 0))), all_topics=True)
    assert set(snapshot.topics) == {"u"}


def test_a_full_listing_without_brokers_removes_nothing() -> None:
    # What an 0.8 broker says just after its start.
    snapshot = merged(answer((0,), topic("t", led(0, 0))))
    assert snapshot.merge(answer(()), all_topics=True) == snapshot


def in_order(*calls: tuple[int, MetadataResponse, bool]) -> ClusterSnapshot:
    """Merge the responses to numbered calls; the third says whether it lists all topics."""
    order, snapshot = MergeOrder(), ClusterSnapshot()
    for call, response, all_topics in calls:
        snapshot = order.merge(snapshot, response, call=call, all_topics=all_topics)
    return snapshot


def test_late_response_does_not_bring_back_a_removed_topic() -> None:
    listing = answer((0,), topic("u", led(0, 0)))
    late = answer((0,), topic("t", led(0, 0)))
    assert set(in_order((2, listing, True), (1, late, False)).topics) == {"u"}


def test_late_response_of_several_has_its_own_topics() -> None:
    """One call may send several requests: a list of all topics, and others by name."""
    newer = answer((0, 1), topic("t", led(0, 1)))
    snapshot = in_order(
        (2, newer, False),
        (1, answer((0, 1), topic("u", led(0, 0)), topic("t", led(0, 0))), True),
        (1, answer((0, 1), topic("u", led(0, 1)), topic("new", led(0, 0))), False),
    )
    assert [leaders(snapshot, name) for name in ("t", "u", "new")] == [[1], [1], [0]]


def test_late_response_without_brokers_keeps_the_brokers() -> None:
    newer = answer((0, 1), topic("t", led(0, 1)), controller=1)
    snapshot = in_order((2, newer, False), (1, answer((), topic("t", code=-1)), True))
    assert snapshot == merged(newer)


def test_empty_listing_does_not_count_as_one_of_all_topics() -> None:
    late = answer((0,), topic("t", led(0, 0)))
    assert leaders(in_order((2, answer(()), True), (1, late, False)), "t") == [0]


def test_new_partitions_appear() -> None:
    snapshot = merged(
        answer((0,), topic("t", led(0, 0))), answer((0,), topic("t", led(1, 0), led(0, 0)))
    )
    assert list(snapshot.partitions("t")) == [0, 1]


# --- 0.8.0 and 0.8.1 name only the brokers of the requested topics --------------------------------


def test_leaders_of_other_topics_keep_their_addresses() -> None:
    snapshot = merged(answer((0, 1), topic("t", led(0, 1))), answer((2,), topic("u", led(0, 2))))
    assert leaders(snapshot, "t") == [1]
    assert leaders(snapshot, "u") == [2]
    assert list(snapshot.brokers) == [1, 2]  # 0 led nothing


def test_leaders_of_a_topic_in_error_keep_their_addresses() -> None:
    snapshot = merged(
        answer((0, 1), topic("t", led(0, 1))),
        answer((2,), topic("t", code=5), topic("u", led(0, 2))),
    )
    assert leaders(snapshot, "t") == [1]


def test_a_dead_broker_is_removed_with_its_last_topic() -> None:
    before = merged(answer((0, 1), topic("t", led(0, 1)), topic("u", led(0, 1))))
    after = before.merge(
        answer((0,), topic("t", led(0, 0, 9)), topic("u", led(0, 0, 9))), all_topics=False
    )
    assert list(after.brokers) == [0]


def test_a_full_listing_replaces_the_brokers() -> None:
    before = merged(answer((0, 1), topic("t", led(0, 1)), topic("u", code=5)))
    after = before.merge(answer((0,), topic("t", led(0, 0)), topic("u", code=5)), all_topics=True)
    assert list(after.brokers) == [0]


# --- leaders ------------------------------------------------------------------------------------


def test_code_9_with_a_leader_is_no_error() -> None:  # a replica is down, brokers.md 4.7
    snapshot = merged(answer((0, 1), topic("t", led(0, 1, code=9))))
    assert leaders(snapshot, "t") == [1]
    assert snapshot.partitions("t")[0].error_code == 9


@pytest.mark.parametrize("state", [led(0, -1, 5), led(0, -1), led(0, -1, 9), led(0, 1, 5)])
def test_a_partition_in_an_election_has_no_leader(state: PartitionState) -> None:
    snapshot = merged(answer((0, 1), topic("t", state)))
    assert leaders(snapshot, "t") == [None]
    assert snapshot.partitions("t")[0].leader is None


def test_a_leader_without_an_address_is_no_leader() -> None:
    snapshot = merged(answer((0,), topic("t", led(0, 7))))
    assert leaders(snapshot, "t") == [None]


def test_node_0_can_be_a_leader() -> None:
    assert leaders(merged(answer((0,), topic("t", led(0, 0)))), "t") == [0]


# --- internal topics ------------------------------------------------------------------------------


def test_the_offsets_topic_is_internal_even_if_unmarked() -> None:
    snapshot = merged(answer((0,), topic("__consumer_offsets", led(0, 0)), topic("t", led(0, 0))))
    assert snapshot.topics["__consumer_offsets"].is_internal
    assert not snapshot.topics["t"].is_internal


def test_a_topic_marked_internal_is_internal() -> None:
    state = TopicState(0, "__transaction_state", True, [led(0, 0)])
    assert merged(answer((0,), state)).topics["__transaction_state"].is_internal


# --- responses that one topic fails ---------------------------------------------------------------


@pytest.mark.parametrize("code", [-1, 17])
def test_one_code_for_all_without_brokers_is_failed_by_a_topic(code: int) -> None:
    spoilt = answer((), topic("a", code=code), topic("b", code=code))
    assert is_failed_by_one_topic(spoilt, ["a", "b"])


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        (answer((), topic("a", code=-1)), ["a"]),  # the error is this topic's
        (answer((0,), topic("a", code=17), topic("b", code=17)), ["a", "b"]),  # 0.9: both are bad
        (answer((), topic("a", code=5), topic("b", code=5)), ["a", "b"]),  # being created
        (answer((), topic("a", code=-1), topic("b", led(0, 0))), ["a", "b"]),
        (answer(()), ["a", "b"]),
        (answer(()), []),
    ],
    ids=["one topic", "with brokers", "5", "one is fine", "no topics", "nothing asked"],
)
def test_other_responses_are_not_failed_by_one_topic(
    one: MetadataResponse, asked: list[str]
) -> None:
    assert not is_failed_by_one_topic(one, asked)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t", "T.e-s_t.0", "...", "..a", "-", "_", "0", "x" * 255])
def test_valid_topic_names_are_accepted(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a b", "a/b", "a\n", "\n", "a\0", "größe", "x" * 256, "a:b", "a,b", "a*", "٠",
     None, 7, b"t", ("t",), ["t"]],
)  # fmt: skip
def test_invalid_topic_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidTopicError, match="invalid topic name"):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (7, "7: expected a string, not int"),
        (None, "None: expected a string, not NoneType"),
        (b"t", "b't': expected a string, not bytes"),
        (["t"], r"\['t'\]: expected a string, not list"),
    ],
)
def test_name_of_another_type_is_refused_for_its_type(name: Any, text: str) -> None:
    for check in (check_topic_name, check_new_topic_name, lambda one: check_topic_names([one])):
        with pytest.raises(InvalidTopicError, match=f"invalid topic name {text}$"):
            check(name)


def test_a_very_long_name_is_shortened_in_the_error() -> None:
    with pytest.raises(InvalidTopicError) as caught:
        check_topic_name("x" * 1_000_000)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("length", [250, 255])
def test_new_names_are_shorter_than_names_that_are_read(length: int) -> None:
    """A broker of 0.8 or 0.9 can't open the folder of a partition that has a longer name."""
    with pytest.raises(InvalidTopicError, match="expected 1 to 249 characters"):
        check_new_topic_name("bad name")
    assert check_new_topic_name("x" * 249) == "x" * 249
    with pytest.raises(InvalidTopicError, match=f"has {length} characters: expected at most 249"):
        check_new_topic_name("x" * length)


def test_new_name_that_differs_in_dots_only_is_refused() -> None:
    names = NewTopicNames(["a_b", "here"])
    with pytest.raises(InvalidTopicError, match="can't be created: it collides with 'a_b'"):
        names.add("a.b")
    assert names.add("c.d") == "c.d"
    with pytest.raises(InvalidTopicError, match=r"'c_d' can't be created: it collides with"):
        names.add("c_d")


def test_names_that_collide_already_may_stay() -> None:
    names = NewTopicNames(["a_b", "a.b", "x" * 255])
    assert [names.add("a_b"), names.add("a.b"), names.add("x" * 255)] == ["a_b", "a.b", "x" * 255]


def test_a_string_instead_of_a_topic_list_is_an_error() -> None:
    assert check_topic_names(["t", "u"]) == ["t", "u"]
    with pytest.raises(InvalidTopicError, match="topics='orders': expected a list"):
        check_topic_names("orders")


@pytest.mark.parametrize("topics", [b"orders", 7, None])
def test_other_types_instead_of_a_topic_list_are_errors(topics: Any) -> None:
    with pytest.raises(
        InvalidTopicError, match=f"topics={topics!r}: expected a list of topic names"
    ):
        check_topic_names(topics)
