"""Rules about unclean elections, min.insync.replicas and retention.ms."""

from __future__ import annotations

import pytest

from aiokafka08._tools.doctor.settings import (
    min_isr,
    retention_deletes_all,
    unclean_election,
    unknown_settings,
)
from tests._tools.doctor.samples import cluster, partition, told


def test_unclean_election_is_found_where_the_topic_allows_it() -> None:
    def found(value: str) -> list[tuple[str, str]]:
        config = {"unclean.leader.election.enable": value}
        return told(unclean_election(cluster(partition(), config=config)))

    assert found("true") == found("TRUE") == [("unclean-election", "topic 't'")]
    assert found("false") == []
    assert not list(unclean_election(cluster(partition())))


@pytest.mark.parametrize(
    ("setting", "replicas", "isr", "codes"),
    [
        ("2", 3, 3, []),
        ("2", 3, 2, []),
        ("2", 3, 1, ["under-min-isr"]),
        ("3", 3, 3, ["min-isr-all-replicas"]),
        ("3", 3, 2, ["min-isr-all-replicas", "under-min-isr"]),
        ("4", 3, 3, ["min-isr-too-high"]),
        ("1", 3, 3, ["min-isr-too-low"]),
        ("1", 1, 1, []),
        ("two", 3, 1, []),
    ],
)
def test_min_isr_is_compared_with_the_replicas(
    setting: str, replicas: int, isr: int, codes: list[str]
) -> None:
    one = partition(assigned=range(replicas), stored_isr=range(isr))
    seen = cluster(one, config={"min.insync.replicas": setting})
    assert [code for code, _ in told(min_isr(seen))] == codes


def test_min_isr_of_few_replicas_concerns_their_partitions_only() -> None:
    parts = [partition(assigned=range(3), stored_isr=range(isr)) for isr in (3, 1)]
    parts += [partition(assigned=[0], stored_isr=[0])] * 2
    found = list(min_isr(cluster(*parts, config={"min.insync.replicas": "2"})))
    assert told(found) == [
        ("min-isr-too-high", "topic 't', partitions 2-3"),
        ("under-min-isr", "topic 't', partition 1"),
    ]
    assert "the same number of replicas" in found[0].action
    too_low = told(min_isr(cluster(*parts, config={"min.insync.replicas": "1"})))
    assert too_low == [("min-isr-too-low", "topic 't', partitions 0-1")]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("1", [("min-isr-too-low", "0-1")]),
        ("2", []),
        ("3", [("min-isr-all-replicas", "0")]),
        ("5", [("min-isr-too-high", "0"), ("min-isr-too-high", "1")]),
    ],
)
def test_min_isr_that_fits_all_factors_is_advised(
    setting: str, expected: list[tuple[str, str]]
) -> None:
    parts = [partition(assigned=range(number), stored_isr=range(number)) for number in (3, 4)]
    found = list(min_isr(cluster(*parts, config={"min.insync.replicas": setting})))
    assert [(code, where.split()[-1]) for code, where in told(found)] == expected
    assert {one.action for one in found} <= {"Set min.insync.replicas=2 for the topic"}


def test_min_isr_is_not_compared_with_replicas_of_a_move() -> None:
    """During a move a partition has its old replicas and the new ones."""
    parts = [partition(assigned=range(number), stored_isr=[0, 1, 2]) for number in (3, 6)]
    seen = cluster(*parts, config={"min.insync.replicas": "3"}, moving={1: (3, 4, 5)})
    [found] = min_isr(seen)
    assert told([found]) == [("min-isr-all-replicas", "topic 't'")]


def test_partition_without_leader_is_not_under_min_isr() -> None:
    one = partition(assigned=[0, 1, 2], stored_isr=[], leader=None)
    assert not list(min_isr(cluster(one, config={"min.insync.replicas": "2"})))


def test_settings_of_the_brokers_are_unknown() -> None:
    first, second = unknown_settings(cluster(partition(), config={}))
    assert first.why.startswith("unclean.leader.election.enable: unknown. It isn't set for the")
    assert second.why.startswith("min.insync.replicas: unknown. It isn't set for the topic")


def test_settings_of_the_topic_are_known() -> None:
    config = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
    assert not list(unknown_settings(cluster(partition(), config=config)))
    assert not list(unknown_settings(cluster(partition(), topic="__consumer_offsets")))


@pytest.mark.parametrize(
    ("config", "releases", "codes"),
    [
        ({"retention.ms": "-1"}, {0: "0.8.2", 1: "0.9"}, ["retention-deletes-all"]),
        ({"retention.ms": "-5"}, {1: "0.8.0 or 0.8.1"}, ["retention-deletes-all"]),
        ({"retention.ms": "-1"}, {1: "0.8"}, ["retention-deletes-all"]),
        ({"retention.ms": "-1"}, {0: "0.8.0", 1: "0.9", 2: "0.10.2"}, []),
        ({"retention.ms": "-1"}, {3: "0.8.2"}, []),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, {0: "0.8.2"}, []),
        ({"retention.ms": "1000"}, {0: "0.8.2"}, []),
        ({"retention.ms": "for ever"}, {0: "0.8.2"}, []),
        ({}, {0: "0.8.2"}, []),
    ],
)
def test_negative_retention_is_found_where_it_deletes(
    config: dict[str, str], releases: dict[int, str], codes: list[str]
) -> None:
    found = list(retention_deletes_all(cluster(partition(), config=config), releases))
    assert [code for code, _ in told(found)] == codes
    assert all("On broker" in one.why for one in found)


@pytest.mark.parametrize(
    ("policy", "is_sure"),
    [({}, False), ({"cleanup.policy": "delete"}, True), ({"cleanup.policy": "COMPACT "}, None)],
)
def test_negative_retention_may_be_of_a_compacted_topic(
    policy: dict[str, str], is_sure: bool | None
) -> None:
    """Without an own cleanup.policy the topic has the brokers', which isn't known."""
    seen = cluster(partition(), config={"retention.ms": "-1", **policy})
    texts = [one.why for one in retention_deletes_all(seen, {0: "0.8.2"})]
    unless = "unless the brokers' cleanup.policy is compact"
    assert [unless not in text for text in texts] == ([] if is_sure is None else [is_sure])
