"""`TargetMeter`: the topic of a copy at the target: make it, watch it, count it."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
from confluent_kafka import admin as _admin

_admin_types: Any = _admin  # its names aren't exported for type checkers
_READ_S = 120.0
_REQUEST_S = 20.0


class TargetMeter:
    """Creates topics, asks for the ends of their logs, and counts their messages.

    Args:
        servers: addresses of the target.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin = self._connect()

    def _connect(self) -> Any:
        return _admin_types.AdminClient({"bootstrap.servers": self._servers, "log_level": 2})

    def written(self, topic: str, partitions: int) -> tuple[int, int]:
        """Return how many offsets the topic has, and how many of them are committed.

        Markers of transactions have offsets too.

        Raises:
            KafkaException: the target doesn't respond.
        """
        wanted = {
            confluent_kafka.TopicPartition(topic, number): _admin_types.OffsetSpec.latest()
            for number in range(partitions)
        }
        sums = []
        # First the committed ones: then a copy that goes on never looks complete.
        for level in ("READ_COMMITTED", "READ_UNCOMMITTED"):
            futures = self._admin.list_offsets(
                wanted,
                isolation_level=getattr(confluent_kafka.IsolationLevel, level),
                request_timeout=_REQUEST_S,
            )
            sums.append(sum(one.result(_REQUEST_S + 5).offset for one in futures.values()))
        return sums[1], sums[0]

    def count(self, topic: str, partitions: int) -> int:
        """Read the topic, and return how many committed messages it has.

        Raises:
            TimeoutError: its ends aren't reached in time.
        """
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "meter",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)]
            )
            found = ended = 0
            deadline = time.monotonic() + _READ_S
            while ended < partitions:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic}: {found} messages read within {_READ_S:.0f} s")
                for one in consumer.consume(20_000, 0.2):
                    if one.error() is None:
                        found += 1
                    else:
                        ended += 1
            return found
        finally:
            consumer.close()

    def create(self, topic: str, partitions: int) -> None:
        """Create the topic, and wait until its leaders respond.

        Raises:
            TimeoutError: they don't in time.
        """
        new = _admin_types.NewTopic(topic, partitions, 1)
        self._admin.create_topics([new])[topic].result(_REQUEST_S)
        deadline = time.monotonic() + _REQUEST_S
        while True:
            try:
                self.written(topic, partitions)
                return
            except confluent_kafka.KafkaException as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic}: {error} for {_REQUEST_S:.0f} s") from error
            # NOT_LEADER_FOR_PARTITION of a topic's first second may last in a client's cache.
            self._admin = self._connect()
            time.sleep(0.2)

    def delete(self, topic: str) -> None:
        """Delete the topic."""
        self._admin.delete_topics([topic])[topic].result(_REQUEST_S)
