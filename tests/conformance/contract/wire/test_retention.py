"""Retention by time and by size (docs/brokers.md 8.18)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.testing.state import WEEK_MS
from tests.brokers.waiting import wait_for
from tests.conformance.contract.targets import line_targets
from tests.conformance.contract.wire.requests import fetch, list_offsets, plain, produce
from tests.conformance.contract.wire.target import Target, has_config
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name

LOG_START = -2
CHECK_S = 40
"""Real brokers begin to check 30 s after their start; those of the tests check each second."""


def lines_with_retention() -> list[Any]:
    """Return the targets, the real ones for `--full` only."""
    return [
        pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.full])
        if one.values[0].kind == "real"
        else one
        for one in line_targets(has_config("retention.ms"))
    ]


@pytest.mark.parametrize("spec", lines_with_retention(), indirect=True)
def test_retention_deletes_what_real_brokers_delete(target: Target, wire: WireClient) -> None:
    magic = target.line.message_format
    for_ever = {} if target.line.negative_retention_is_over else {"retention.ms": "-1"}
    configs: dict[str, dict[str, str]] = {
        "old": {"retention.ms": "1"},
        "compacted": {"retention.ms": "1", "cleanup.policy": "compact"},
        "negative": {"retention.ms": "-1"},
        "large": {"retention.bytes": "1", "segment.bytes": "150", **for_ever},
        "empty": {"retention.bytes": "0", "segment.bytes": "150", **for_ever},
        "fits": {"retention.bytes": "1000", "segment.bytes": "150", **for_ever},
        "week": {"retention.ms": str(WEEK_MS)},
        "default": {},
    }
    topics = {kind: unique_name(kind) for kind in configs}
    for kind, topic in topics.items():
        target.create_topic(topic, config=configs[kind])
        for _ in range(3):  # 100 bytes each
            assert produce(wire, topic, plain((b"k", bytes(73)), magic=magic)).error_code == 0
    # Timestamps of 1970 are too old, where messages have some.
    expected = {
        "old": 3,
        "compacted": 0,
        "negative": 3 if target.line.negative_retention_is_over else 0,
        "large": 2,
        "empty": 3,
        "fits": 0,
        "week": 3 if magic else 0,
        # A week too; real brokers of 0.10 keep all in the tests (tests/brokers/properties.py).
        "default": 3 if magic and not target.real else 0,
    }
    starts: dict[str, int] = {}

    def checked() -> bool:
        target.apply_retention()
        for kind, topic in topics.items():
            starts[kind] = list_offsets(wire, topic, LOG_START)[1][0]
        return starts == expected

    wait_for(checked, CHECK_S, lambda: f"log starts {starts}, expected {expected}")
    assert fetch(wire, topics["old"], 0).error_code == 1
    assert fetch(wire, topics["old"], 3)[:2] == (0, 3)
    assert produce(wire, topics["old"], plain(b"x", magic=magic)).offset == 3


@pytest.mark.parametrize(
    "spec",
    [one for one in lines_with_retention() if one.id in ("embedded_0.10", "real_0.10.2.2")],
    indirect=True,
)
def test_largest_timestamp_decides_about_a_segment(target: Target, wire: WireClient) -> None:
    now_ms = int(time.time() * 1000)

    def stamped(timestamp_ms: int) -> bytes:
        return encode_entry(0, b"k", bytes(65), magic=1, timestamp_ms=timestamp_ms)

    kept, deleted = unique_name("kept"), unique_name("deleted")
    for topic in (kept, deleted):
        target.create_topic(topic, config={"retention.ms": "3000000", "segment.bytes": "150"})
        # A segment per message; in the first topic a young one is the first.
        times = (now_ms, 5) if topic == kept else (5, now_ms + 9_000_000, 5)
        for timestamp_ms in times:
            assert produce(wire, topic, stamped(timestamp_ms)).error_code == 0

    def checked() -> bool:
        target.apply_retention()
        return list_offsets(wire, deleted, LOG_START)[1] == [1]

    wait_for(checked, CHECK_S, "the first segment is deleted")
    assert list_offsets(wire, kept, LOG_START) == (0, [0])
