"""The rule about a dead log cleaner."""

from __future__ import annotations

import pytest

from aiokafka08._tools.doctor.compaction import KeyScan, dead_cleaner, is_compacted
from aiokafka08.structs import TopicPartition
from tests._tools.doctor.samples import cluster, log, told

TP = TopicPartition("t", 0)
SCAN = KeyScan(0, 100, 40)


@pytest.mark.parametrize(
    ("before", "after", "end", "is_found"),
    [
        (SCAN, SCAN, 501, True),
        (SCAN, SCAN, 500, False),  # it doesn't grow
        (SCAN, KeyScan(0, 160, 0), 501, False),  # compacted meanwhile
        (KeyScan(0, 100, 41), SCAN, 501, False),
        (KeyScan(0, 100, 0), KeyScan(0, 100, 0), 501, False),  # each key once
        (None, SCAN, 501, False),
    ],
)
def test_compacted_topic_that_only_grows_is_found(
    before: KeyScan | None, after: KeyScan, end: int, is_found: bool
) -> None:
    scans = ({} if before is None else {TP: before}, {TP: after})
    found = list(dead_cleaner(cluster(log(0, 500)), cluster(log(0, end)), scans, 60.0))
    assert told(found) == [("dead-cleaner", "topic 't', partition 0")] * is_found
    assert all("it has grown for 60 s" in one.why for one in found)


def test_topics_are_compacted_by_name_or_setting() -> None:
    assert is_compacted(cluster(topic="__consumer_offsets"), "__consumer_offsets")
    assert is_compacted(cluster(config={"cleanup.policy": "compact"}), "t")
    assert is_compacted(cluster(config={"cleanup.policy": "compact,delete"}), "t")
    assert not is_compacted(cluster(config={"cleanup.policy": "delete"}), "t")
    assert not is_compacted(cluster(), "t")
    assert not is_compacted(cluster(), "other")
