"""How far consumers are behind, over the time of a history: measures, not verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka08.testing.history.logs import LOG, POLLS, History
from aiokafka08.testing.history.operations import Operation, Value


@dataclass(frozen=True, slots=True)
class Lag:
    """How old the newest message is that a poll could know of, at least.

    Attributes:
        time: when the poll was called.
        process, partition: the consumer, and what it reads.
        lag_s: how long ago the last message that it has got ceased to be the last of the log.
    """

    time: float
    process: str
    partition: str
    lag_s: float


def realtime_lags(operations: Iterable[Operation]) -> list[Lag]:
    """Return the lag of each partition at each poll (Jepsen's realtime-lag)."""
    ordered = History(operations).operations
    expired: dict[str, list[float]] = {}  # place n: when the log had n messages no longer at most
    for one in ordered:
        for partition, offset in highest_offsets(one).items():
            times = expired.setdefault(partition, [])
            times.extend([one.order] * (offset + 1 - len(times)))
    lags = []
    reached: dict[str, dict[str, int]] = {}
    for one in ordered:
        known = reached.setdefault(one.process, {})
        if one.status != "ok" or one.call == LOG:
            continue
        if one.call == "assign":
            reached[one.process] = {name: known.get(name, -1) for name in one.partitions}
        elif one.call in ("subscribe", "assigned"):
            reached[one.process] = {}
        elif one.call in POLLS or one.polled:
            for partition, offset in highest_offsets(one).items():
                known[partition] = max(offset, known.get(partition, -1))
            for partition, offset in known.items():
                times = expired.get(partition, [])
                since = times[offset + 1] if offset + 1 < len(times) else one.invoked
                lag = max(one.invoked - since, 0.0)
                lags.append(Lag(one.invoked, one.process, partition, lag))
    return lags


def worst_lag(lags: Iterable[Lag]) -> Lag | None:
    """Return the greatest of the lags, the first of several; None if there are none."""
    return max(lags, key=lambda one: one.lag_s, default=None)


def unseen_over_time(operations: Iterable[Operation]) -> list[tuple[float, dict[str, int]]]:
    """Return (time, partition → acknowledged messages that no poll had returned) for each step."""
    sent: dict[str, dict[Value, None]] = {}
    polled: dict[str, set[Value]] = {}
    steps = []
    for one in History(operations).operations:
        if one.status != "ok" or one.call == LOG or not (one.sent or one.call in POLLS):
            continue
        for message in one.sent:
            if message.value not in polled.setdefault(message.partition, set()):
                sent.setdefault(message.partition, {})[message.value] = None
        for message in one.polled:
            polled.setdefault(message.partition, set()).add(message.value)
            sent.get(message.partition, {}).pop(message.value, None)
        steps.append((one.order, {partition: len(values) for partition, values in sent.items()}))
    return steps


def highest_offsets(one: Operation) -> dict[str, int]:
    """Return the highest offset of each partition in an operation."""
    found: dict[str, int] = {}
    for message in (*one.sent, *one.polled):
        if message.offset is not None:
            found[message.partition] = max(message.offset, found.get(message.partition, -1))
    return found
