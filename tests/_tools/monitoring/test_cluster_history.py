"""Lag in seconds and retention headroom, from samples; and the brokers that were named lately."""

from __future__ import annotations

import pytest

from aiokafka08._tools.monitoring.cluster_history import (
    ClusterHistory,
    KnownBrokers,
    PartitionHistory,
)
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08.structs import TopicPartition

T0 = TopicPartition("t", 0)


def history(*samples: tuple[float, int, int]) -> PartitionHistory:
    made = PartitionHistory()
    for now, start, end in samples:
        made.add(now, start, end)
    return made


def sample(**topics: PartitionSample) -> ClusterSample:
    return ClusterSample({}, {name: TopicSample({0: one}) for name, one in topics.items()})


# --- lag in seconds -------------------------------------------------------------------------------


def test_lag_is_the_age_of_the_next_message() -> None:
    made = history((0, 0, 100), (10, 0, 200), (20, 0, 300))
    assert made.lag_s(20, 299) == 0
    assert made.lag_s(20, 199) == 10
    assert made.lag_s(20, 149) == 15


def test_lag_is_zero_at_the_end_and_beyond() -> None:
    made = history((0, 0, 100))
    assert made.lag_s(50, 100) == 0
    assert made.lag_s(50, 120) == 0


def test_lag_before_the_first_sample_is_a_lower_bound() -> None:
    made = history((0, 0, 100), (10, 0, 100))
    assert made.lag_s(10, 5) == 10


def test_one_sample_does_not_tell_how_long_a_message_waits() -> None:
    made = history((10, 0, 100))
    assert made.lag_s(10, 5) is None
    assert made.lag_s(10, 100) == 0


def test_lag_grows_while_nothing_is_written() -> None:
    """The producer has stopped, and so has the group: the message waits all the same."""
    made = history((0, 0, 100), (10, 0, 101), *((now, 0, 101) for now in range(20, 620, 10)))
    assert made.lag_s(610, 100) == 600


def test_no_sample_has_no_lag() -> None:
    assert PartitionHistory().lag_s(10, 5) is None


# --- headroom -------------------------------------------------------------------------------------


def test_no_headroom_before_the_first_deletion() -> None:
    assert history((0, 0, 100), (10, 0, 200)).headroom_s(10, 50) is None


def test_headroom_is_zero_once_overtaken() -> None:
    made = history((0, 100, 200))
    assert made.headroom_s(0, 99) == 0
    assert made.headroom_s(0, 100) == 0


def test_empty_log_has_headroom_only_for_what_was_lost() -> None:
    made = history((0, 0, 100), (60, 100, 100))
    assert made.headroom_s(60, 100) is None
    assert made.headroom_s(60, 99) == 0


def test_headroom_by_the_rate_of_deletions() -> None:
    """Segments of 100 offsets, one every 50 s: 2 offsets a second."""
    made = history((0, 100, 1000), (50, 200, 1000), (100, 300, 1000), (150, 400, 1000))
    assert made.headroom_s(150, 500) == pytest.approx(50)


def test_headroom_grows_when_deletions_stop() -> None:
    made = history((0, 100, 1000), (50, 200, 1000), (100, 300, 1000))
    assert (made.headroom_s(1000, 500) or 0) > 1000


def test_headroom_by_the_rate_of_writing_at_first() -> None:
    """The log has lost messages before, so retention limits it: it loses what it gains."""
    made = history((0, 100, 1000), (10, 100, 1100))
    assert made.headroom_s(10, 300) == pytest.approx(20)


def test_headroom_is_unknown_without_any_rate() -> None:
    assert history((0, 100, 1000)).headroom_s(0, 300) is None
    assert history((0, 100, 1000), (10, 100, 1000)).headroom_s(10, 300) is None


def test_recreated_topic_forgets_the_deletions() -> None:
    made = history((0, 100, 1000), (50, 200, 1000), (100, 300, 1000), (150, 0, 10))
    assert made.headroom_s(150, 5) is None


# --- all partitions -------------------------------------------------------------------------------


def test_deleted_topic_is_forgotten() -> None:
    made = ClusterHistory()
    made.add(0, sample(t=PartitionSample(0, start=0, end=5), u=PartitionSample(0, start=0, end=5)))
    assert made.begin() == 0
    made.add(10, sample(u=PartitionSample(0, start=0, end=5)))
    assert made.lag_s(10, T0, 3) is None
    assert made.headroom_s(10, T0, 3) is None
    made.add(20, sample(t=PartitionSample(0, start=0, end=5)))
    assert made.lag_s(30, T0, 3) == 10  # a new topic of the same name
    assert made.begin() == 20


def test_unreadable_partition_keeps_its_history() -> None:
    made = ClusterHistory()
    made.add(0, sample(t=PartitionSample(0, start=0, end=5)))
    made.add(10, sample(t=PartitionSample(None)))
    assert made.lag_s(10, T0, 3) == 10


# --- brokers --------------------------------------------------------------------------------------


def test_vanished_broker_is_kept_for_an_hour() -> None:
    known = KnownBrokers()
    one, two = BrokerSample(1, "a:9092"), BrokerSample(2, "b:9092")
    assert known.add(0, {1: one, 2: two}) == {1: one, 2: two}
    after = known.add(10, {1: one})
    assert after[1] == one
    assert (after[2].address, after[2].error) == ("b:9092", "the cluster doesn't name it any more")
    assert known.add(20, {1: one, 2: two})[2].error is None
    assert 2 in known.add(3600, {1: one})
    assert known.add(3621, {1: one}) == {1: one}
