"""What is measured: kinds of work, message sizes, compressions, who takes part, and the goals."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 3
LINGER_MS = 5
BATCH_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Goal:
    """What this package is to reach in a case, side by side with `peer` (words for a client)."""

    cpu_per_million: float | None = None
    rate: float | None = None
    times_peer: float | None = None
    peer: str = "confluent-kafka"
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_rss_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One who takes part: a function of a module in `clients`, and words for the table."""

    module: str
    call: str
    words: str
    goal: Goal | None = None
    implementation: str = "c"
    """The twin that this package works with."""
    share: float = 1.0
    """How many of the case's messages; less for those who are slow."""


@dataclass(frozen=True, slots=True)
class Case:
    """One table; `compression` is None or the codec's name."""

    work: str
    value_bytes: int
    compression: str | None
    clients: tuple[Client, ...]
    share: float = 1.0
    in_quick: bool = True

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.work} {self.value_bytes} B {self.compression or 'plain'}"

    @property
    def topic(self) -> str:
        """The topic that it writes to or reads from."""
        name = f"bench-{self.work}-{self.value_bytes}-{self.compression or 'plain'}"
        return name.replace(" ", "-").replace(",", "")


CONFLUENT_PRODUCE = Client("confluent", "produce", "confluent-kafka produce, callback")
KAFKA_PYTHON_PRODUCE = Client("kafka_python", "produce", "kafka-python send, futures", share=0.1)
CONFLUENT_CONSUME = Client("confluent", "consume", "confluent-kafka consume(1000), check.crcs")
CONFLUENT_POLL = Client("confluent", "poll", "confluent-kafka poll(), check.crcs", share=0.5)
KAFKA_PYTHON_POLL = Client("kafka_python", "poll", "kafka-python poll, CRC checked", share=0.1)


def produce(
    value_bytes: int, compression: str | None, many: Goal, one: Goal | None = None, **how: bool
) -> Case:
    """`send_many` and `send`, both twins, beside the peers."""
    pure = "python"
    return Case(
        "produce",
        value_bytes,
        compression,
        (
            Client("ours", "send_many", "aiokafka08 send_many", many),
            Client("ours", "send", "aiokafka08 send, gathered", one, share=0.5),
            Client("ours", "send_many", "aiokafka08 (pure) send_many", None, pure, share=0.5),
            Client("ours", "send", "aiokafka08 (pure) send, gathered", None, pure, share=0.25),
            CONFLUENT_PRODUCE,
            KAFKA_PYTHON_PRODUCE,
        ),
        share=1.0 if value_bytes <= 100 else 0.3,
        **how,
    )


def consume(
    value_bytes: int,
    compression: str | None,
    arrow: Goal | None = None,
    many: Goal | None = None,
    walk: Goal | None = None,
    **how: bool,
) -> Case:
    """Arrow batches, `getmany` and `async for`, beside the peers."""
    pure = "python"
    return Case(
        "consume",
        value_bytes,
        compression,
        (
            Client("ours", "arrow", "aiokafka08 getmany_arrow, CRC checked", arrow),
            Client("ours", "getmany", "aiokafka08 getmany, CRC checked", many),
            Client("ours", "iterate", "aiokafka08 async for, CRC checked", walk),
            Client("ours", "arrow", "aiokafka08 (pure) getmany_arrow", None, pure, share=0.25),
            Client("ours", "getmany", "aiokafka08 (pure) getmany", None, pure, share=0.25),
            CONFLUENT_CONSUME,
            CONFLUENT_POLL,
            KAFKA_PYTHON_POLL,
        ),
        share=1.0 if value_bytes <= 100 else 0.3,
        **how,
    )


CASES = [
    produce(100, None, Goal(0.3, times_peer=2), Goal(1.1, times_peer=1.3)),
    produce(100, "snappy", Goal(0.6, times_peer=1.5)),
    produce(1024, None, Goal(1.5, times_peer=1.5)),
    produce(1024, "snappy", Goal(), in_quick=False),
    Case(
        "1,000 send_and_wait loops, linger 0,",
        100,
        None,
        (
            Client("ours", "loops", "aiokafka08 on uvloop", Goal(2.2, rate=300_000)),
            Client("ours", "loops_asyncio", "aiokafka08 on asyncio", Goal(2.8, rate=200_000)),
            Client("confluent", "loops", "confluent-kafka AIOProducer", share=0.05),
        ),
        share=0.3,
    ),
    Case(
        "one at a time,",
        100,
        None,
        (
            Client("ours", "one_by_one", "aiokafka08", Goal(p50_ms=0.15, p99_ms=0.4)),
            Client("confluent", "one_by_one", "confluent-kafka produce + flush"),
            Client("kafka_python", "one_by_one", "kafka-python send().get()"),
        ),
        share=0.01,
    ),
    consume(
        100,
        None,
        Goal(0.15, rate=4_000_000, peak_rss_mb=60),
        Goal(0.35, times_peer=1.7, peer=CONFLUENT_CONSUME.words),
        Goal(0.65, times_peer=1.2, peer=CONFLUENT_POLL.words),
    ),
    consume(100, "snappy", many=Goal(0.45, times_peer=1, peer=CONFLUENT_CONSUME.words)),
    consume(1024, None, in_quick=False),
    consume(1024, "snappy", in_quick=False),
]


def values(count: int, value_bytes: int) -> list[bytes]:
    """Distinct values of one size that compress like log lines do, not like zeros."""
    body = b"GET /articles/%07d?page=%03d HTTP/1.1 200 agent=Mozilla/5.0 (X11) ref=/home "
    made = []
    for index in range(count):
        text = body % (index * 2654435761 % 9999991, index % 997)
        made.append((text * (value_bytes // len(text) + 1))[:value_bytes])
    return made
