"""Rules about message formats and the size of sets."""

from __future__ import annotations

import pytest

from aiokafka08._tools.doctor.message_sets import SearchCost, formats, large_sets
from aiokafka08.structs import TopicPartition
from tests._tools.doctor.samples import cluster, log, told

SEEN = cluster(log(0, 10))


def codes(used: set[int], release: str) -> list[str]:
    return [code for code, _ in told(formats({"t": used}, SEEN, dict.fromkeys(range(3), release)))]


def test_formats_in_use_are_listed() -> None:
    found = {"a": {0}, "b": {0, 1}, "c": {1}}
    note, mixed = formats(found, SEEN, {0: "0.10.2"})
    assert note.why.startswith("format 0: a, b; format 1: b, c. ")
    assert told([note, mixed]) == [("message-formats", "cluster"), ("mixed-formats", "topic 'b'")]


def test_format_that_the_brokers_do_not_know_is_foreign() -> None:
    assert codes({1}, "0.9") == codes({0, 1}, "0.8") == ["message-formats", "foreign-format"]
    assert codes({0}, "0.9") == codes({1}, "0.10.2") == codes({0}, "0.10.0") == ["message-formats"]
    assert codes({0, 1}, "0.10.2") == ["message-formats", "mixed-formats"]


def test_format_on_converting_brokers_is_unknown() -> None:
    [note] = formats({}, SEEN, {0: "3.9"})
    assert note.why.startswith("unknown: t. ")
    assert not list(formats({}, cluster(log(5, 5)), {0: "3.9"}))


@pytest.mark.parametrize(
    ("empty_ms", "search_ms", "fetch_ms", "is_found"),
    [
        (0.2, 9.2, 10.2, True),  # 9 of 10 ms
        (20, 29, 30, True),  # a long way to the broker
        (0.2, 6.2, 10.2, False),  # less than two thirds
        (0.2, 1.5, 1.6, False),  # too short to matter
        (0.2, 9.0, 0.1, False),  # a measurement that can't be
    ],
)
def test_search_that_takes_most_of_a_fetch_is_found(
    empty_ms: float, search_ms: float, fetch_ms: float, is_found: bool
) -> None:
    cost = SearchCost(empty_ms / 1000, search_ms / 1000, fetch_ms / 1000)
    found = list(large_sets({TopicPartition("t", 3): cost}))
    assert told(found) == [("large-sets", "topic 't', partition 3")] * is_found
    if is_found:
        why = "the broker searches for 9.0 ms before it sends a byte, 90% of a fetch of 1 MiB: "
        assert found[0].why.startswith(why)
