"""kafka-python's consumer as a program, which polls without pauses until SIGTERM.

kafka-python forgets a join whose response arrives between two polls, and joins again. With pauses,
its rejoin and that of another member would trigger each other for ever. It is a process of its own
because it may leave sockets open when it stops.

Arguments: bootstrap servers, group, topic, and the brokers' version if it can't find that out. It
prints "partitions 0 1" when its assignment has changed, and "value v" for each message.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from typing import Any

with warnings.catch_warnings():  # kafka-python's import uses a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka


def main(bootstrap: str, group: str, topic: str, version: str = "") -> None:
    """Be a member until SIGTERM."""
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap.split(","),
        "group_id": group,
        "client_id": "kafka-python",
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 200,
        "auto_commit_interval_ms": 100,
        "auto_offset_reset": "earliest",
    }
    if version:
        options["api_version"] = tuple(map(int, version.split(".")))
    consumer: Any = kafka.KafkaConsumer(topic, **options)
    consumer.partitions_for_topic(topic)  # else it leads a group without the topics' metadata
    assigned: set[int] = set()
    while not end.is_set():
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                print("value", record.value.decode(), flush=True)
        now = {tp.partition for tp in consumer.assignment()}
        if now != assigned:
            assigned = now
            print("partitions", *sorted(assigned), flush=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
