"""A small Kafka that does everything right, and the histories that its clients would record.

`RightKafka` keeps logs, groups and clients; each method is one step and appends to `operations`.
Sends overlap, retries store batches again, some sends have no known outcome; members of groups
poll, seek, commit, and are given other partitions. `random_history()` takes steps at random.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

from aiokafka08.testing.history import Message, Operation

PRODUCERS = ("p", "q")
MEMBERS = ("c", "d")
GROUP = "g"


class RightKafka:
    """See the module.

    Attributes:
        operations: what was recorded so far.
        logs: the values of each partition, in order.
    """

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.operations: list[Operation] = []
        self.logs: dict[str, list[str]] = {f"t/{number}": [] for number in range(partitions)}
        self._rng = rng
        self._time = 0.0
        self._number = 0
        self._pending: list[tuple[str, str, list[str], float, float]] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, int] = defaultdict(int)
        self._owner = dict.fromkeys(self.logs, "")
        self._position: dict[str, int] = {}
        self._committed = dict.fromkeys(self.logs, 0)
        self._generation = 0
        self.rebalance()

    def tick(self) -> float:
        self._time += 1.0
        return self._time

    def record(self, process: str, call: str, **fields: Any) -> None:
        began = fields.pop("invoked", None) or self.tick()
        self.operations.append(
            Operation(process=process, call=call, invoked=began, ended=self.tick(), **fields)
        )

    # --- producers --------------------------------------------------------------------------------

    def send(self) -> None:
        """Call send; the outcome comes later."""
        producer, partition = self._rng.choice(PRODUCERS), self._rng.choice(list(self.logs))
        values = []
        for _ in range(self._rng.choice((1, 1, 3))):
            self._number += 1
            values.append(f"m{self._number}")
        self._pending.append((producer, partition, values, self.tick(), self.tick()))
        self._waiting[producer] += 1

    def deliver(self) -> None:
        """The oldest pending send of a random partition ends."""
        if not self._pending:
            return
        partition = self._rng.choice(self._pending)[1]
        index = next(i for i, one in enumerate(self._pending) if one[1] == partition)
        producer, _, values, invoked, accepted = self._pending.pop(index)
        self._waiting[producer] -= 1
        log = self.logs[partition]
        known: dict[str, Any] = {"invoked": invoked, "accepted": accepted}
        outcome = self._rng.choice(("ok", "ok", "ok", "twice", "lost answer", "unstored", "fail"))
        if outcome == "twice":
            log.extend(values)
            facts = {"messages": len(values), "may_be_stored": True}
            self.record(producer, "retried", partitions=(partition,), facts=facts)
        places = tuple(
            Message(partition, value, len(log) + place) for place, value in enumerate(values)
        )
        bare = tuple(Message(partition, value) for value in values)
        if outcome in ("ok", "twice"):
            log.extend(values)
            self._counts[producer] += len(values)
            self.record(producer, "send_many", sent=places, **known)
        elif outcome == "fail":
            self.record(producer, "send", sent=bare, status="fail", error="too large",
                        invoked=invoked)  # fmt: skip
        else:
            if outcome == "lost answer":
                log.extend(values)
            self.record(producer, "send", sent=bare, status="unknown", error="timeout", **known)

    def metrics(self) -> None:
        producer = self._rng.choice(PRODUCERS)
        facts = {
            "messages_sent": self._counts[producer],
            "buffer_used_bytes": 10 * self._waiting[producer],
            "buffer_limit_bytes": 10_000,
        }
        self.record(producer, "metrics", facts=facts)

    # --- consumers --------------------------------------------------------------------------------

    def poll(self) -> None:
        member = self._rng.choice(MEMBERS)
        polled: list[Message] = []
        for partition, owner in self._owner.items():
            if owner == member and self._rng.random() < 0.7:
                start = self._position[partition]
                values = self.logs[partition][start : start + self._rng.randint(0, 4)]
                polled += [Message(partition, v, start + n) for n, v in enumerate(values)]
                self._position[partition] = start + len(values)
        self.record(member, "getmany", polled=tuple(polled), group=GROUP, deadline_s=5.0)

    def seek_back(self) -> None:
        partition = self._rng.choice(list(self.logs))
        offset = self._rng.randint(0, self._position[partition])
        self._position[partition] = offset
        self.record(self._owner[partition], "seek", offsets={partition: offset}, group=GROUP)

    def commit(self) -> None:
        member = self._rng.choice(MEMBERS)
        offsets = {p: self._position[p] for p, owner in self._owner.items() if owner == member}
        if self._rng.random() < 0.2:
            self.record(member, "commit", offsets=offsets, group=GROUP, status="unknown")
            if self._rng.random() < 0.5:
                return
        else:
            self.record(member, "commit", offsets=offsets, group=GROUP)
        self._committed.update(offsets)

    def committed(self) -> None:
        self.record("observer", "committed", offsets=dict(self._committed), group=GROUP,
                    partitions=tuple(self.logs))  # fmt: skip

    def position(self) -> None:
        partition = self._rng.choice(list(self.logs))
        offsets = {partition: self._position[partition]}
        self.record(self._owner[partition], "position", offsets=offsets, group=GROUP)

    def rebalance(self) -> None:
        """Commit, revoke, and assign anew from the committed positions."""
        for member in MEMBERS:
            mine = tuple(p for p, owner in self._owner.items() if owner == member)
            if self._rng.random() < 0.7 and mine:
                offsets = {p: self._position[p] for p in mine}
                self.record(member, "commit", offsets=offsets, group=GROUP)
                self._committed.update(offsets)
            self.record(member, "revoked", partitions=mine, group=GROUP)
        self._generation += 1
        for partition in self.logs:
            self._owner[partition] = self._rng.choice(MEMBERS)
            self._position[partition] = self._committed[partition]
        for member in MEMBERS:
            mine = tuple(p for p, owner in self._owner.items() if owner == member)
            self.record(member, "assigned", partitions=mine, group=GROUP,
                        generation=self._generation)  # fmt: skip

    def finish(self) -> None:
        """End all sends, poll everything, read the logs, stop."""
        while self._pending:
            self.deliver()
        for partition, owner in self._owner.items():
            start = self._position[partition]
            rest = self.logs[partition][start:]
            polled = tuple(Message(partition, v, start + n) for n, v in enumerate(rest))
            self._position[partition] = len(self.logs[partition])
            self.record(owner, "getmany", polled=polled, group=GROUP)
        self.committed()
        for partition, log in self.logs.items():
            polled = tuple(Message(partition, v, n) for n, v in enumerate(log))
            self.record("observer", "log", partitions=(partition,), polled=polled)
        for process in (*PRODUCERS, *MEMBERS):
            self.record(process, "stop")
            self.record(process, "ready", facts={"ready": False})
            self.record(process, "left", facts={"tasks": 0, "sockets": 0})


def random_history(rng: random.Random, steps: int = 60) -> list[Operation]:
    """Return the history of a cluster and clients that do everything right."""
    kafka = RightKafka(rng, rng.randint(1, 3))
    choices = [kafka.send] * 5 + [kafka.deliver] * 5 + [kafka.poll] * 5 + [kafka.commit] * 2
    choices += [kafka.committed, kafka.position, kafka.metrics, kafka.rebalance]
    if rng.random() < 0.3:
        choices.append(kafka.seek_back)
    for _ in range(steps):
        rng.choice(choices)()
    kafka.finish()
    return kafka.operations


def without_value(operations: list[Operation], partition: str, value: str) -> list[Operation]:
    """Return the history without any read of a message."""
    return [
        replace(
            one,
            polled=tuple(m for m in one.polled if (m.partition, m.value) != (partition, value)),
        )
        for one in operations
    ]
