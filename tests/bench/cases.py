"""What is measured: kinds of work, message sizes, compressions, and who takes part."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

PARTITIONS = 3
LINGER_MS = 5
BATCH_BYTES = 256 * 1024

# (client module, function, words for the table), the first one of ours being the default
PRODUCERS = [
    ("ours", "send_many", "aiokafka08 send_many"),
    ("ours", "send", "aiokafka08 send, gathered"),
    ("confluent", "produce", "confluent-kafka produce, callback"),
    ("kafka_python", "produce", "kafka-python send, futures"),
]
CONSUMERS = [
    ("ours", "getmany", "aiokafka08 getmany, CRC checked"),
    ("ours", "iterate", "aiokafka08 async for, CRC checked"),
    ("confluent", "consume", "confluent-kafka consume(1000), check.crcs"),
    ("kafka_python", "poll", "kafka-python poll, CRC checked"),
    ("kafka_python", "iterate", "kafka-python for, CRC checked"),
]


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table; `compression` is None or the codec's name."""

    work: str
    value_bytes: int
    compression: str | None

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.work} {self.value_bytes} B {self.compression or 'plain'}"

    @property
    def topic(self) -> str:
        """The topic that is filled for `consume` cases."""
        return f"bench-{self.value_bytes}-{self.compression or 'plain'}"

    @property
    def clients(self) -> list[tuple[str, str, str]]:
        """Who takes part."""
        return PRODUCERS if self.work == "produce" else CONSUMERS


CASES = [
    Case(work, size, compression)
    for work, size, compression in itertools.product(
        ("produce", "consume"), (100, 1024), (None, "snappy")
    )
]


def values(count: int, value_bytes: int) -> list[bytes]:
    """Distinct values of one size that compress like log lines do, not like zeros."""
    body = b"GET /articles/%07d?page=%03d HTTP/1.1 200 agent=Mozilla/5.0 (X11) ref=/home "
    made = []
    for index in range(count):
        text = body % (index * 2654435761 % 9999991, index % 997)
        made.append((text * (value_bytes // len(text) + 1))[:value_bytes])
    return made
