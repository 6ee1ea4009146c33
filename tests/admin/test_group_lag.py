"""`lag_rows()`: committed offsets, ends and owners become rows."""

from __future__ import annotations

from aiokafka08 import OffsetAndMetadata, TopicPartition
from aiokafka08.admin import PartitionLag, PartitionOwner, StoredOffsets, lag_rows

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def stored(group: str, store: str, **offsets: int) -> StoredOffsets:
    tps = {"t0": T0, "t1": T1, "u0": U0}
    found = {tps[name]: OffsetAndMetadata(offset, "") for name, offset in offsets.items()}
    return StoredOffsets(group, store, found)  # type: ignore[arg-type]


def test_row_per_store_partition_and_group_in_order() -> None:
    rows = lag_rows(
        [
            stored("h", "kafka", t0=1),
            stored("g", "zookeeper", t1=4, t0=3),
            stored("g", "kafka", t0=5),
        ],
        {T0: 10, T1: 4},
        {"g": {T0: PartitionOwner("m", "zookeeper")}},
    )
    assert rows == [
        PartitionLag("g", "kafka", "t", 0, 5, 10, 5, "m"),
        PartitionLag("g", "zookeeper", "t", 0, 3, 10, 7, "m"),
        PartitionLag("g", "zookeeper", "t", 1, 4, 4, 0, None),
        PartitionLag("h", "kafka", "t", 0, 1, 10, 9, None),
        PartitionLag("h", "kafka", "t", 1, None, 4, None, None),
    ]


def test_owned_partition_without_an_offset_has_a_row() -> None:
    owners = {"g": {T0: PartitionOwner("m", "kafka"), U0: PartitionOwner("m", "kafka")}}
    assert lag_rows([stored("g", "kafka", t0=1)], {T0: 1, U0: 7}, owners) == [
        PartitionLag("g", "kafka", "t", 0, 1, 1, 0, "m"),
        PartitionLag("g", "kafka", "u", 0, None, 7, None, "m"),
    ]


def test_partition_that_was_never_committed_has_a_row_without_a_member() -> None:
    """Else its messages are hidden; partitions of topics that the group doesn't read have none."""
    rows = lag_rows(
        [stored("g", "zookeeper", t0=1), stored("h", "kafka", u0=2)],
        {T0: 1, T1: 1020, U0: 2},
        {"h": {U0: PartitionOwner("m", "kafka")}},
    )
    assert rows == [
        PartitionLag("g", "zookeeper", "t", 0, 1, 1, 0, None),
        PartitionLag("g", "zookeeper", "t", 1, None, 1020, None, None),
        PartitionLag("h", "kafka", "u", 0, 2, 2, 0, "m"),
    ]


def test_unknown_end_has_no_lag_and_a_short_log_a_negative_one() -> None:
    rows = lag_rows([stored("g", "kafka", t0=9, t1=9, u0=9)], {T0: 4, T1: None}, {})
    assert [(row.end, row.lag) for row in rows] == [(4, -5), (None, None), (None, None)]
