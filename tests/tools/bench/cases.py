"""The cases of the benchmark: kind of work, message size, compression, clients and goals.

`tests.tools.bench.__main__` runs `CASES`; `report` compares the results with the goals and
`RATIOS`. Only the standard library is imported here, since the workers of all peers import this
module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

PARTITIONS = 3
LINGER_MS = 5
LONG_LINGER_MS = 50
LISTED = 20_000
"""Messages in a list that `send_many` gets in the cases by key, and in rows that say so."""
FEW_LISTED = 1000
"""The same for rows with short lists."""
BATCH_BYTES = 256 * 1024
SET_BYTES = 16 * 1024
"""Size of the sets in topics to be read, before compression: the default of Java's producer. With
much larger plain sets the broker limits every reader (docs/brokers.md 7.15)."""
LARGE_SET_BYTES = (256 * 1024, 1024 * 1024)
MANY_PARTITIONS = 1000
SEEKS = 50
"""How often the clients seek back while a long poll hangs."""
LOOPS = 1000
GATHERED = 50_000
"""Clients await the results of this many messages while as many more are in flight. The garbage
collector takes 45 ms to walk over a million results."""
BROKER = "0.8.2.2"
NEWER_BROKER = "3.9.1"
"""The broker for aiokafka, which doesn't support 0.8.2."""

BEFORE = "before"
"""The module of a client that runs another checkout of this repository (`--before`)."""

TICKER_MS = 20
"""How late the ticker in this package's event loop may be."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Limits for a client in a case.

    `times_peer` is about the rate of the client whose name begins with `peer`, the other fields
    with `times_peer` about its other figures.
    """

    cpu_per_million: float | None = None
    rate: float | None = None
    times_peer: float | None = None
    cpu_times_peer: float | None = None
    p50_times_peer: float | None = None
    p99_times_peer: float | None = None
    peer: str = "confluent-kafka"
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_rss_mb: float | None = None
    why: str = ""
    """One sentence for the report if the goal is missed."""


@dataclass(frozen=True, slots=True)
class Client:
    """A row of a table: a function (`call`) of a module in `clients`, and its name (`words`)."""

    module: str
    call: str
    words: str
    goal: Goal | None = None
    implementation: str = "c"
    """The twin that this package uses."""
    share: float = 1.0
    """Part of the case's messages; smaller for slow clients."""
    broker: str = BROKER
    in_quick: bool = True
    linger_ms: int = LINGER_MS
    """Only in the cases by key."""
    floor: str = ""
    """The row of the same case that this one is divided by in the report."""

    @property
    def is_ours(self) -> bool:
        """True for a client of this checkout."""
        return self.module == "ours"

    @property
    def is_floor(self) -> bool:
        """True for a lower bound of a client of this checkout."""
        return self.module.endswith("floors")

    def before(self) -> Client:
        """Return the same measurement for the checkout that `--before` names, without a goal."""
        return replace(self, module=BEFORE, words=f"{self.words}, before", goal=None)


@dataclass(frozen=True, slots=True)
class Case:
    """One table.

    `compression` is None or the codec's name. `distinct`: the number of different values sent; None
    for as many as messages.
    """

    work: str
    value_bytes: int
    compression: str | None
    clients: tuple[Client, ...]
    share: float = 1.0
    in_quick: bool = True
    partitions: int = PARTITIONS
    by_key: bool = False
    """The messages have keys; their partitions are chosen by murmur2."""
    distinct: int | None = None
    set_bytes: int = SET_BYTES
    """Size of the sets in a topic to be read."""

    @property
    def title(self) -> str:
        """The heading of the table."""
        parts = [f"{self.work} {self.value_bytes} B {self.compression or 'plain'}"]
        if self.set_bytes != SET_BYTES:
            parts.append(f"sets of {self.set_bytes >> 10} KiB")
        if self.work == "consume" and self.partitions != PARTITIONS:
            parts.append(f"{self.partitions:,} partitions")
        return ", ".join(parts)

    @property
    def topic(self) -> str:
        """The topic that the clients write to or read from."""
        return f"bench-{self.title}".replace(" ", "-").replace(",", "")


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times less CPU (or time) the pure twin needs than kafka-python, and the goal."""

    case: Case
    ours: str
    peer: str
    at_least: float
    what: Literal["CPU", "p50"] = "CPU"
    why: str = ""
    """One sentence for the report if the goal is missed."""


PURE_SEND_MANY = "aiokafka08 (pure) send_many"
PURE_SEND = "aiokafka08 (pure) send, gathered"
PURE_ARROW = "aiokafka08 (pure) getmany_arrow"
PURE_GETMANY = "aiokafka08 (pure) getmany"
PURE_ONE_BY_ONE = "aiokafka08 (pure) one at a time"

JAVA_PRODUCE = Client("java", "produce", "Java KafkaProducer, callback")
JAVA_SIMPLE = Client("java", "simple", "Java SimpleConsumer")
JAVA_HIGH_LEVEL = Client("java", "high_level", "Java high-level consumer")
CONFLUENT_PRODUCE = Client("confluent", "produce", "confluent-kafka produce, callback")
CONFLUENT_CONSUME = Client("confluent", "consume", "confluent-kafka consume(1000)")
CONFLUENT_POLL = Client("confluent", "poll", "confluent-kafka poll()")
KAFKA_PYTHON_PRODUCE = Client("kafka_python", "produce", "kafka-python send, futures", share=0.1)
KAFKA_PYTHON_POLL = Client("kafka_python", "poll", "kafka-python poll", share=0.1)
KAFKA_PYTHON_ONE_BY_ONE = Client("kafka_python", "one_by_one", "kafka-python send().get()")


def aiokafka(call: str, words: str, share: float) -> Client:
    """Return a row for aiokafka, on the broker that it needs."""
    words = f"aiokafka {words}, on {NEWER_BROKER}".replace("  ", " ").replace(" ,", ",")
    return Client("aiokafka", call, words, share=share, broker=NEWER_BROKER, in_quick=False)


FLOOR_FEW = Client(
    "produce_floors", "send_many_few", f"floor: send_many of {FEW_LISTED:,}", in_quick=False
)
FLOOR_MANY = Client("produce_floors", "send_many", f"floor: send_many of {LISTED:,}")
FLOOR_SEND = Client(
    "produce_floors", "send", "floor: an append and a future per message", share=0.5
)
FLOOR_APPEND_KEPT = Client(
    "produce_floors", "send_kept", "floor: an append and a future per message, kept"
)
FLOOR_ARROW = Client("consume_floors", "arrow", "floor: getmany_arrow")
FLOOR_GETMANY = Client("consume_floors", "getmany", "floor: getmany")
FLOOR_ITERATE = Client("consume_floors", "iterate", "floor: async for")


def ours(call: str, words: str, floor: Client, goal: Goal | None = None, **how: Any) -> Client:
    """Return a row of this package, beside a floor."""
    return Client("ours", call, f"aiokafka08 {words}", goal, floor=floor.words, **how)


def produce(
    value_bytes: int,
    compression: str | None,
    many: Goal | None = None,
    one: Goal | None = None,
    more: tuple[Client, ...] = (),
    **how: bool,
) -> Case:
    """Return a case of `send_many` and `send` with both twins, beside floors and peers.

    For lz4 kafka-python needs a library that its venv doesn't have.
    """
    pure = "python"
    few, listed = f"send_many of {FEW_LISTED:,}", f"send_many of {LISTED:,}"
    return Case(
        "produce",
        value_bytes,
        compression,
        (
            ours("send_many", "send_many", FLOOR_MANY, many),
            ours("send_many_few", few, FLOOR_FEW, in_quick=False),
            FLOOR_FEW,
            ours("send_many_listed", listed, FLOOR_MANY, in_quick=False),
            FLOOR_MANY,
            ours("send", "send, gathered", FLOOR_SEND, one, share=0.5),
            FLOOR_SEND,
            Client("ours", "send_many", PURE_SEND_MANY, None, pure, share=0.5),
            Client("ours", "send", PURE_SEND, None, pure, share=0.25),
            CONFLUENT_PRODUCE,
            JAVA_PRODUCE,
            *((KAFKA_PYTHON_PRODUCE,) if compression != "lz4" else ()),
            *more,
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
    more: tuple[Client, ...] = (),
    **how: bool,
) -> Case:
    """Return a case of `getmany_arrow`, `getmany` and `async for`, beside floors and peers."""
    pure = "python"
    return Case(
        "consume",
        value_bytes,
        compression,
        (
            ours("arrow", "getmany_arrow", FLOOR_ARROW, arrow),
            FLOOR_ARROW,
            ours("getmany", "getmany", FLOOR_GETMANY, many),
            FLOOR_GETMANY,
            ours("iterate", "async for", FLOOR_ITERATE, walk),
            FLOOR_ITERATE,
            Client("ours", "arrow", PURE_ARROW, None, pure, share=0.25),
            Client("ours", "getmany", PURE_GETMANY, None, pure, share=0.25),
            CONFLUENT_CONSUME,
            CONFLUENT_POLL,
            JAVA_SIMPLE,
            JAVA_HIGH_LEVEL,
            KAFKA_PYTHON_POLL,
            *more,
        ),
        share=1.0 if value_bytes <= 100 else 0.3,
        **how,
    )


def linger_words(linger_ms: int) -> str:
    """Return the end of a row's name: the linger, unless it is the usual one."""
    return "" if linger_ms == LINGER_MS else f", linger {linger_ms} ms"


def by_key(partitions: int, cpu_times_peer: float, **how: bool) -> Case:
    """Return a case of `send_many` in lists and `send`, by key, each with two values of linger."""
    why = "A batch has few messages here, so its share of a request costs more than they do."

    def rows(linger_ms: int) -> tuple[Client, ...]:
        linger = linger_words(linger_ms)
        confluent, java = f"confluent-kafka produce{linger}", f"Java KafkaProducer{linger}"
        goal = Goal(cpu_times_peer=cpu_times_peer, peer=confluent, why=why)
        many, one = f"send_many of {LISTED:,}{linger}", f"send{linger}"
        calls = (("send_many_by_key", many), ("send_by_key", one))
        return (
            *(
                Client("ours", call, f"aiokafka08 {words}", goal, linger_ms=linger_ms)
                for call, words in calls
            ),
            *(
                Client(
                    *("ours", call, f"aiokafka08 (pure) {words}"),
                    implementation="python",
                    share=0.5,
                    linger_ms=linger_ms,
                )
                for call, words in calls
            ),
            Client("confluent", "produce_by_key", confluent, linger_ms=linger_ms),
            Client("java", "produce_by_key", java, linger_ms=linger_ms),
            Client(
                *("kafka_python", "produce_by_key", f"kafka-python send{linger}"),
                share=0.1,
                linger_ms=linger_ms,
            ),
        )

    return Case(
        f"produce by key to {partitions:,} partitions,",
        100,
        None,
        rows(LINGER_MS) + rows(LONG_LINGER_MS),
        share=0.5,
        partitions=partitions,
        by_key=True,
        **how,
    )


def loops_goal(floor: Client, cpu_times: float, rate: float) -> Goal:
    """Return a goal for a thousand coroutines."""
    why = (
        "Each message costs the user's task and its coroutine, the coroutine of `send_and_wait`, "
        "and asyncio's way of waiting for a future that isn't its own."
    )
    return Goal(cpu_times_peer=cpu_times, peer=floor.words, rate=rate, why=why)


def one_by_one_goal(floor: Client) -> Goal:
    """Return a goal for one message at a time."""
    why = "What the floor leaves out: checks, batches, and the answer's fields."
    return Goal(cpu_times_peer=3, p50_times_peer=1.5, p99_times_peer=2, peer=floor.words, why=why)


ON_ONE_MACHINE = "Client and broker share the cores, so the rate is also the broker's."
RECEIVING = "What decoding doesn't take is receiving: the kernel's copy, and the event loop."

FLOOR_ONE = Client("floors", "one_by_one", "floor: a Protocol on uvloop")
FLOOR_ONE_ASYNCIO = Client("floors", "one_by_one_asyncio", "floor: a Protocol on asyncio")
FLOOR_KEPT = Client("floors", "send_kept", "floor: an object of 32 bytes per message")
FLOOR_LOOPS = Client("floors", "loops", "floor: a future per message on uvloop")
FLOOR_LOOPS_IN_COROUTINES = Client(
    "floors", "loops_in_coroutines", "floor: a future and a coroutine per message on uvloop"
)
FLOOR_LOOPS_ASYNCIO = Client("floors", "loops_asyncio", "floor: a future per message on asyncio")

PRODUCE = produce(
    100,
    None,
    Goal(
        0.3,
        times_peer=2,
        why="Runs vary from 0.29 to 0.33; the kernel takes 0.05 to 0.07 of that.",
    ),
    Goal(
        1.1,
        times_peer=1.3,
        why="A coroutine and a future per message; each result is awaited, which the peer's "
        "callback doesn't need.",
    ),
    (aiokafka("send", "send, gathered", 0.1),),
)
ONE_BY_ONE = Case(
    "one at a time,",
    100,
    None,
    (
        Client("ours", "one_by_one", "aiokafka08 one at a time", one_by_one_goal(FLOOR_ONE)),
        FLOOR_ONE,
        Client(
            "ours",
            "one_by_one_asyncio",
            "aiokafka08 one at a time, asyncio",
            one_by_one_goal(FLOOR_ONE_ASYNCIO),
        ),
        FLOOR_ONE_ASYNCIO,
        Client("ours", "one_by_one", PURE_ONE_BY_ONE, None, "python"),
        Client("confluent", "one_by_one", "confluent-kafka produce + flush"),
        Client("java", "one_by_one", "Java send().get()"),
        KAFKA_PYTHON_ONE_BY_ONE,
        aiokafka("one_by_one", "", 1.0),
    ),
    share=0.01,
)
ARROW_50_MIB = ours("arrow_50_mib", "getmany_arrow, fetch_max_bytes 50 MiB", FLOOR_ARROW)
GETMANY_50_MIB = ours("getmany_50_mib", "getmany, fetch_max_bytes 50 MiB", FLOOR_GETMANY)
ITERATE_50_MIB = ours("iterate_50_mib", "async for, fetch_max_bytes 50 MiB", FLOOR_ITERATE)
CONSUME = consume(
    100,
    None,
    Goal(
        0.15,
        rate=4_000_000,
        peak_rss_mb=60,
        why=RECEIVING + " pyarrow's import alone takes 30 to 45 MB.",
    ),
    Goal(0.35, times_peer=1.7, peer=CONFLUENT_CONSUME.words, peak_rss_mb=60, why=RECEIVING),
    Goal(
        0.65,
        times_peer=1.2,
        peer=CONFLUENT_POLL.words,
        peak_rss_mb=60,
        why="Each step of `async for` is a call of a coroutine.",
    ),
    (
        Client(
            "ours",
            "getmany_ten_times",
            "aiokafka08 getmany, ten times over",
            Goal(peak_rss_mb=60),
            in_quick=False,
        ),
        aiokafka("getmany", "getmany", 0.25),
        aiokafka("iterate", "async for", 0.1),
    ),
)

HEADLINE = (PRODUCE, CONSUME)
"""The cases of the picture."""

PRODUCING = (
    PRODUCE,
    produce(100, "snappy", Goal(0.6, times_peer=1.5, why=ON_ONE_MACHINE)),
    produce(1024, None, Goal(1.5, times_peer=1.5, why=ON_ONE_MACHINE)),
    produce(1024, "snappy", in_quick=False),
)
BY_KEY = (by_key(100, 0.3, in_quick=False), by_key(1000, 0.5, in_quick=False))

CASES = [
    *PRODUCING,
    produce(100, "lz4", in_quick=False),
    produce(1024, "lz4", in_quick=False),
    *BY_KEY,
    Case(
        "produce, all results kept,",
        100,
        None,
        (
            Client(
                "ours",
                "send_kept",
                "aiokafka08 send, then await",
                Goal(
                    cpu_times_peer=0.3,
                    peak_rss_mb=90,
                    why="A result takes 40 bytes with its place in the list, as the floor's. The "
                    "rest are the interpreter with its modules, and up to `buffer_memory` (32 MiB) "
                    "of messages that the broker hasn't acknowledged.",
                ),
                floor=FLOOR_APPEND_KEPT.words,
            ),
            FLOOR_APPEND_KEPT,
            FLOOR_KEPT,
            CONFLUENT_PRODUCE,
        ),
        distinct=1,
    ),
    Case(
        "1,000 send_and_wait loops, linger 0,",
        100,
        None,
        (
            Client("ours", "loops", "aiokafka08 on uvloop", loops_goal(FLOOR_LOOPS, 1.35, 300_000)),
            FLOOR_LOOPS,
            FLOOR_LOOPS_IN_COROUTINES,
            Client(
                "ours",
                "loops_asyncio",
                "aiokafka08 on asyncio",
                loops_goal(FLOOR_LOOPS_ASYNCIO, 1.15, 200_000),
            ),
            FLOOR_LOOPS_ASYNCIO,
            Client("confluent", "loops", "confluent-kafka AIOProducer", share=0.05),
            aiokafka("loops", "on uvloop", 0.3),
        ),
        share=0.3,
    ),
    ONE_BY_ONE,
    CONSUME,
    *(
        Case(
            "consume",
            100,
            None,
            (
                *(ARROW_50_MIB, FLOOR_ARROW, GETMANY_50_MIB, FLOOR_GETMANY),
                *(CONFLUENT_CONSUME, JAVA_SIMPLE),
            ),
            in_quick=False,
            set_bytes=set_bytes,
        )
        for set_bytes in LARGE_SET_BYTES
    ),
    Case(
        "consume",
        100,
        None,
        (
            *(ARROW_50_MIB, FLOOR_ARROW, GETMANY_50_MIB, FLOOR_GETMANY),
            *(ITERATE_50_MIB, FLOOR_ITERATE),
        ),
        share=0.2,
        in_quick=False,
        partitions=MANY_PARTITIONS,
    ),
    Case(
        "seek back while a long poll hangs,",
        100,
        None,
        (
            Client(
                "ours",
                "seek_back",
                "aiokafka08 getone",
                Goal(p50_ms=10, p99_ms=20, why="Each step is a request on a second connection."),
            ),
            Client("confluent", "seek_back", "confluent-kafka poll()"),
        ),
        share=0.001,
        in_quick=False,
    ),
    consume(
        100,
        "snappy",
        many=Goal(
            0.45,
            times_peer=1,
            peer=CONFLUENT_CONSUME.words,
            why="Decoding and the records themselves.",
        ),
        more=(aiokafka("getmany", "getmany", 0.25),),
    ),
    consume(1024, None, in_quick=False),
    consume(1024, "snappy", in_quick=False),
]

RATIOS = (
    *(
        Ratio(case, ours, KAFKA_PYTHON_PRODUCE.words, 5)
        for case in PRODUCING
        for ours in (PURE_SEND_MANY, PURE_SEND)
    ),
    *(
        Ratio(case, ours.words, f"kafka-python send{linger_words(ours.linger_ms)}", 5)
        for case in BY_KEY
        for ours in case.clients
        if ours.implementation == "python"
    ),
    Ratio(
        CONSUME,
        PURE_ARROW,
        KAFKA_PYTHON_POLL.words,
        5,
        why="half of the pure decoding is `zlib.crc32` and the slices that it needs",
    ),
    Ratio(CONSUME, PURE_GETMANY, KAFKA_PYTHON_POLL.words, 2.5),
    Ratio(ONE_BY_ONE, PURE_ONE_BY_ONE, KAFKA_PYTHON_ONE_BY_ONE.words, 1, "p50"),
)


def keys(count: int) -> list[bytes]:
    """Return keys of some hundred thousand users, in no order."""
    return [b"user-%d" % (index * 7919 % 100_003) for index in range(count)]


def values(count: int, value_bytes: int) -> list[bytes]:
    """Return distinct values of one size that compress like log lines, not like zeros."""
    body = b"GET /articles/%07d?page=%03d HTTP/1.1 200 agent=Mozilla/5.0 (X11) ref=/home "
    made = []
    for index in range(count):
        text = body % (index * 2654435761 % 9999991, index % 997)
        made.append((text * (value_bytes // len(text) + 1))[:value_bytes])
    return made
