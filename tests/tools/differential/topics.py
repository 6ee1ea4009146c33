"""The topics of cases: each symbol stands for a topic of one kind, new for each run of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """What a topic is like."""

    partitions: int = 1
    replicated: bool = False
    """Whether it has all brokers as replicas; else each partition has one."""
    config: Mapping[str, str] = {}


KINDS: dict[str, Kind] = {
    "$t0": Kind(2),
    "$t1": Kind(1),
    "$r0": Kind(3, replicated=True),
    "$r1": Kind(1, replicated=True, config={"min.insync.replicas": "4"}),
    "$seg": Kind(1, config={"segment.bytes": "400"}),
    "$max": Kind(1, config={"max.message.bytes": "200"}),
    "$cmp": Kind(1, config={"cleanup.policy": "compact"}),
    "$lat": Kind(1, config={"message.timestamp.type": "LogAppendTime"}),
    "$gz": Kind(1, config={"compression.type": "gzip"}),
}
"""Symbol → its kind. Other topics ("$x0", …) don't exist until a request creates them."""
