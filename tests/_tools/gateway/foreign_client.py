"""Producers and members of groups of other clients, as programs that run until SIGTERM.

    python -m tests._tools.gateway.foreign_client produce kafka-python 0.9 SERVERS TOPIC PARTITIONS
    python -m tests._tools.gateway.foreign_client relay kafka-python 0.9 SERVERS TOPIC
    python -m tests._tools.gateway.foreign_client consume librdkafka 0.9.0.1 SERVERS GROUP TOPIC
    python -m tests._tools.gateway.foreign_client exchange librdkafka 0.9.0.1 SERVERS TOPIC SECONDS

Producers and members take further settings of their client as a last argument, in JSON.

A producer prints its history, one operation of `aiokafka08.testing.history` a line; `relay` ends
with its stdin, too. A member prints "value v" for each message. An exchange ends by itself, or with
an error when a step has taken so many seconds: it prints "sent OFFSET TIMESTAMP KEY VALUE" for each
message that was acknowledged, "read KEY VALUE" for each one read, and "committed OFFSET". Each is a
process of its own, since some clients leave sockets and threads open.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import confluent_kafka

from aiokafka08.testing.history import Message, Operation, write_jsonl
from aiokafka08.testing.history.operations import Status

with warnings.catch_warnings():  # kafka-python's import uses a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PAUSE_S = 0.02
"""Seconds between two messages of a partition: the load isn't the subject."""
COUNT = 50
"""Messages of an exchange in each codec."""
MAY_BE_STORED = 10_000
"""How many messages a report of a retry stands for; neither client says how many there were."""
_STATISTICS_LATE_S = 5
"""How late librdkafka's statistics may tell of a retry, in seconds."""
_REPORTS_APART_S = 0.25
"""A message that is sent again takes longer: `retry.backoff.ms` is 500."""

Ended = Callable[[int | None, object], None]
"""Takes the offset of a message, or None, and the error."""


class Producer(Protocol):
    """What `produce()` needs of a producer."""

    def send(self, partition: int, value: bytes, ended: Ended) -> None:
        """Send a message; `ended` is called once."""

    def flush(self) -> None:
        """Wait until all messages have ended."""


class Journal:
    """Prints operations, from any thread."""

    def __init__(self, topic: str, partitions: int, name: str) -> None:
        self._places = [f"{topic}/{number}" for number in range(partitions)]
        self._name = name
        self._lock = threading.Lock()

    def send(self, producer: Producer, partition: int, number: int) -> None:
        """Send a message, and print the operation when it has ended."""
        value = f"{partition}:{number}"
        accepted: list[float] = []  # empty if the message has ended before `send()` does
        sent = Operation(
            process=self._name,
            call="send",
            invoked=time.monotonic(),
            sent=(Message(self._places[partition], value),),
        )

        def ended(offset: int | None, error: object) -> None:
            message = Message(self._places[partition], value, offset)
            status: Status = "ok" if error is None else "unknown"
            text = "" if error is None else repr(error)
            self._print(
                replace(
                    sent,
                    sent=(message,),
                    accepted=accepted[0] if accepted else None,
                    ended=time.monotonic(),
                    status=status,
                    error=text,
                )
            )

        producer.send(partition, value.encode(), ended)
        accepted.append(time.monotonic())

    def retried(self, partition: int | None = None, before_s: float = 0.0) -> None:
        """Print that messages of a partition, or of any, are sent again, or were before."""
        now = time.monotonic() - before_s
        places = self._places if partition is None else [self._places[partition]]
        facts = {"messages": MAY_BE_STORED, "may_be_stored": True}
        for place in places:
            self._print(
                Operation(
                    process=self._name,
                    call="retried",
                    invoked=now,
                    ended=now,
                    partitions=(place,),
                    facts=facts,
                )
            )

    def _print(self, operation: Operation) -> None:
        with self._lock:
            write_jsonl([operation], sys.stdout)
            sys.stdout.flush()


class KafkaPython:
    """kafka-python, with a retry for each error; it logs retries."""

    def __init__(
        self, servers: str, version: str, topic: str, journal: Journal, others: Mapping[str, Any]
    ) -> None:
        self._topic = topic
        newer = {"enable_idempotence": False} if kafka.__version__ > "2.1" else {}
        settings = {
            "bootstrap_servers": servers.split(","),
            "api_version": tuple(map(int, version.split("."))),
            "acks": "all",
            "retries": 1_000_000,
            "retry_backoff_ms": 200,
            "request_timeout_ms": 10_000,
            "max_block_ms": 120_000,
            "max_in_flight_requests_per_connection": 1,
        }
        self._producer = kafka.KafkaProducer(**{**settings, **newer, **others})
        handler = logging.Handler()
        handler.emit = lambda record: self._logged(record, journal)  # type: ignore[method-assign]
        logging.getLogger("kafka.producer.sender").addHandler(handler)

    def _logged(self, record: logging.LogRecord, journal: Journal) -> None:
        if "produce response on topic-partition" in record.msg and isinstance(record.args, tuple):
            for place in record.args:
                if isinstance(place, kafka.TopicPartition):
                    journal.retried(place.partition)

    def send(self, partition: int, value: bytes, ended: Ended) -> None:
        future = self._producer.send(self._topic, value, partition=partition)
        future.add_callback(lambda found: ended(found.offset, None))
        future.add_errback(lambda error: ended(None, error))

    def flush(self) -> None:
        self._producer.flush(120)


class Librdkafka:
    """confluent-kafka; a lost connection or a request that had no response is sent again."""

    def __init__(
        self, servers: str, version: str, topic: str, journal: Journal, others: Mapping[str, Any]
    ) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                **librdkafka(servers, version),
                "acks": -1,
                "message.timeout.ms": 120_000,
                "max.in.flight": 1,
                "socket.timeout.ms": 10_000,
                "request.timeout.ms": 8_000,
                "retry.backoff.ms": 500,  # longer than between two statistics
                "statistics.interval.ms": 100,
                "stats_cb": lambda text: self._counted(text, journal),
                "error_cb": lambda error: journal.retried(),
                **others,
            }
        )
        self._known: dict[str, tuple[int, int]] = {}

    def _counted(self, text: str, journal: Journal) -> None:
        may_be_sent_again = False
        for name, one in json.loads(text)["brokers"].items():
            retries = one["txretries"] + one["req_timeouts"] + one["txerrs"]
            # The age of a state goes back where the connection was lost, which no counter tells.
            before, age = self._known.get(name, (retries, one["stateage"]))
            may_be_sent_again |= retries > before or one["stateage"] < age
            self._known[name] = retries, one["stateage"]
        if may_be_sent_again:
            # A message may have ended since, on a busy machine some seconds ago.
            for number in range(int(_STATISTICS_LATE_S / _REPORTS_APART_S)):
                journal.retried(before_s=number * _REPORTS_APART_S)

    def send(self, partition: int, value: bytes, ended: Ended) -> None:
        self._producer.produce(
            self._topic,
            value,
            partition=partition,
            on_delivery=lambda error, message: ended(None if error else message.offset(), error),
        )
        self._producer.poll(0)

    def flush(self) -> None:
        self._producer.flush(120)


def librdkafka(servers: str, version: str) -> dict[str, Any]:
    """Return the settings of a client for brokers of this version."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    settings["broker.version.fallback"] = version
    if not version.startswith("0.10"):
        settings["api.version.request"] = False
    return settings


PRODUCERS: dict[str, Callable[..., Producer]] = {
    "kafka-python": KafkaPython,
    "librdkafka": Librdkafka,
}


def produce(
    end: threading.Event,
    client: str,
    version: str,
    servers: str,
    topic: str,
    partitions: str,
    others: str = "{}",
) -> None:
    """Send numbered messages to each partition."""
    journal = Journal(topic, int(partitions), client)
    producer: Producer = PRODUCERS[client](servers, version, topic, journal, json.loads(others))
    number = 0
    while not end.wait(PAUSE_S):
        for partition in range(int(partitions)):
            journal.send(producer, partition, number)
        number += 1
    producer.flush()


def relay(
    end: threading.Event, client: str, version: str, servers: str, topic: str, others: str = "{}"
) -> None:
    """Send the numbers in the lines of stdin to partition 0."""
    journal = Journal(topic, 1, client)
    producer: Producer = PRODUCERS[client](servers, version, topic, journal, json.loads(others))
    for line in sys.stdin:
        journal.send(producer, 0, int(line))
    producer.flush()


def consume(
    end: threading.Event,
    client: str,
    version: str,
    servers: str,
    group: str,
    topic: str,
    others: str = "{}",
) -> None:
    """Be a member of a group."""
    poll = MEMBERS[client](servers, version, group, topic, json.loads(others))
    while not end.is_set():
        for value in poll():
            print("value", value.decode(), flush=True)
    poll(end=True)


def kafka_python_member(
    servers: str, version: str, group: str, topic: str, others: Mapping[str, Any]
) -> Any:
    """Return a function that polls, and ends the member."""
    consumer: Any = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        api_version=tuple(map(int, version.split("."))),
        group_id=group,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        auto_commit_interval_ms=200,
        request_timeout_ms=12_000,
        auto_offset_reset="earliest",
        **others,
    )

    def poll(*, end: bool = False) -> list[bytes]:
        if end:
            consumer.close()
            return []
        try:
            polled = consumer.poll(200)
        except kafka.errors.KafkaError as error:
            # When the broker that is asked for the coordinator goes, 3.0 waits for new metadata
            # (`ensure_coordinator_ready_async`), and raises what ends that request: a lost
            # connection, if all brokers have gone. It does so without a gateway too. The consumer
            # is well, and a service polls again.
            if not error.retriable:
                raise
            return []
        return [one.value for records in polled.values() for one in records]

    return poll


def librdkafka_member(
    servers: str, version: str, group: str, topic: str, others: Mapping[str, Any]
) -> Any:
    """Return a function that polls, and ends the member."""
    consumer = confluent_kafka.Consumer(
        {
            **librdkafka(servers, version),
            "group.id": group,
            "session.timeout.ms": 6000,
            "auto.commit.interval.ms": 200,
            "auto.offset.reset": "earliest",
            **others,
        }
    )
    consumer.subscribe([topic])

    def poll(*, end: bool = False) -> list[bytes]:
        if end:
            consumer.close()
            return []
        found = consumer.consume(500, 0.2)
        return [one.value() or b"" for one in found if one.error() is None]

    return poll


MEMBERS = {"kafka-python": kafka_python_member, "librdkafka": librdkafka_member}


def exchange(
    end: threading.Event, client: str, version: str, servers: str, topic: str, seconds: str
) -> None:
    """Produce in each codec, read it all, commit a position and fetch it."""
    {"kafka-python": kafka_python_exchange, "librdkafka": librdkafka_exchange}[client](
        servers, version, topic, float(seconds)
    )


def kafka_python_exchange(servers: str, version: str, topic: str, seconds: float) -> None:
    """See `exchange`; of the codecs it has those of the standard library."""
    numbers = tuple(map(int, version.split(".")))
    newer = {"enable_idempotence": False} if kafka.__version__ > "2.1" else {}
    settings = {"bootstrap_servers": servers.split(","), "api_version": numbers}
    begin = int(time.time() * 1000)
    for codec in (None, "gzip"):
        producer = kafka.KafkaProducer(
            **settings, compression_type=codec, max_block_ms=seconds * 1000, linger_ms=5, **newer
        )
        sent = [
            (
                number,
                producer.send(
                    topic,
                    f"{codec}-{number}".encode(),
                    key=f"key-{number}".encode(),
                    partition=0,
                    timestamp_ms=begin + number,
                ),
            )
            for number in range(COUNT)
        ]
        for number, future in sent:
            offset = future.get(seconds).offset
            print("sent", offset, begin + number, f"key-{number}", f"{codec}-{number}")
        producer.close()
    place = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        **settings,
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=seconds * 1000,
    )
    consumer.assign([place])
    for _ in range(2 * COUNT):
        found = next(consumer)
        print("read", found.key.decode(), found.value.decode())
    if numbers >= (0, 8, 1):
        consumer.commit()
        print("committed", consumer.committed(place))
    consumer.close()


def librdkafka_exchange(servers: str, version: str, topic: str, seconds: float) -> None:
    """See `exchange`."""
    settings = librdkafka(servers, version)
    begin = int(time.time() * 1000)
    for codec in ("none", "gzip", "snappy", "lz4"):
        producer = confluent_kafka.Producer(
            {
                **settings,
                "compression.type": codec,
                "message.timeout.ms": int(seconds * 1000),
                "linger.ms": 5,
            }
        )

        def done(error: object, message: Any) -> None:
            if error is not None:
                raise SystemExit(str(error))
            key, value = message.key().decode(), message.value().decode()
            stamp = begin + int(key.removeprefix("key-"))
            print("sent", message.offset(), stamp, key, value)

        for number in range(COUNT):
            producer.produce(
                topic,
                f"{codec}-{number}",
                f"key-{number}",
                partition=0,
                timestamp=begin + number,
                on_delivery=done,
            )
        if producer.flush(seconds):
            raise SystemExit("not all messages have ended")
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = 4 * COUNT
    while left:
        found = consumer.consume(left, seconds)
        if not found or found[0].error():
            raise SystemExit("nothing to read")
        for one in found:
            print("read", (one.key() or b"").decode(), (one.value() or b"").decode())
        left -= len(found)
    end = confluent_kafka.TopicPartition(topic, 0, 4 * COUNT)
    consumer.commit(offsets=[end], asynchronous=False)
    print("committed", consumer.committed([end], seconds)[0].offset)
    consumer.close()


def main(work: str, *arguments: str) -> None:
    """Work until SIGTERM."""
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    works: dict[str, Callable[..., None]]
    works = {"produce": produce, "relay": relay, "consume": consume, "exchange": exchange}
    works[work](end, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
