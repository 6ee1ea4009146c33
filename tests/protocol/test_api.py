"""The items of requests and responses, by topic and by partition."""

from __future__ import annotations

import pytest

from aiokafka08.protocol.api import by_partition, by_topic, left_out
from aiokafka08.protocol.requests.fetch import FetchPartition
from aiokafka08.structs import TopicPartition


def test_items_grouped_by_topic_are_found_by_partition() -> None:
    parts = [("t", FetchPartition(1, 10, 1)), ("u", FetchPartition(0, 5, 1))]
    parts.append(("t", FetchPartition(0, 7, 1)))
    topics = by_topic(parts)
    assert [(topic.topic, len(topic.partitions)) for topic in topics] == [("t", 2), ("u", 1)]
    found = by_partition(topics)
    assert found == {(topic, part.partition): part for topic, part in parts}
    assert found[TopicPartition("t", 1)].fetch_offset == 10


@pytest.mark.parametrize(("node_id", "who"), [(None, "the broker"), (3, "node 3")])
def test_absent_partition_is_a_retriable_error_that_names_it(node_id: int | None, who: str) -> None:
    error = left_out("t/0", node_id)
    assert error.retriable
    assert error.text == f"{who} left t/0 out of its response"
