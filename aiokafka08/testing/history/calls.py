"""Check that calls end in time, memory stays within its limits, and reports are true. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from aiokafka08.testing.history.logs import History
from aiokafka08.testing.history.operations import Anomaly, Fact, Operation

# Gauges in `metrics`, and the facts that hold their limits.
LIMITS: Final = {
    "buffer_used_bytes": "buffer_limit_bytes",
    "buffered_bytes": "buffered_limit_bytes",
}

# Gauges of a producer that are 0 while no message is pending and no request is in flight.
_EMPTY_WHEN_IDLE: Final = ("buffer_used_bytes", "batches_unfinished", "senders_waiting")


def empty_history(history: History) -> Iterator[Anomaly]:
    """Nothing was sent and nothing polled: such a history proves nothing."""
    if next(history.sends(), None) is None and next(history.polls(), None) is None:
        yield Anomaly("empty-history", tuple(history.operations[:1]))


def late_calls(history: History, late_s: float) -> Iterator[Anomaly]:
    """A call took longer than its deadline allows."""
    for operation in history.operations:
        if operation.deadline_s is None:
            continue
        took = (history.end if operation.ended is None else operation.ended) - operation.invoked
        if took > operation.deadline_s + late_s:
            yield Anomaly(
                "late-call",
                (operation,),
                {"call": operation.call, "took_s": took, "deadline_s": operation.deadline_s},
            )


def never_ended(history: History) -> Iterator[Anomaly]:
    """A call or a message has no end, though its client was stopped."""
    stopped = {
        operation.process: operation
        for operation in history.operations
        if operation.call == "stop" and operation.ended is not None
    }
    for operation in history.operations:
        stop = stopped.get(operation.process)
        if operation.ended is None and stop is not None and operation.invoked < stop.invoked:
            yield Anomaly("never-ended", (operation, stop), {"call": operation.call})


def memory_exceeded(history: History) -> Iterator[Anomaly]:
    """A client held more memory than its limit."""
    for operation in history.operations:
        if operation.call != "metrics":
            continue
        for gauge, limit in LIMITS.items():
            used, most = operation.facts.get(gauge), operation.facts.get(limit)
            if used is not None and most is not None and float(used) > float(most):
                yield Anomaly("memory-exceeded", (operation,), {gauge: used, limit: most})


def left_behind(history: History) -> Iterator[Anomaly]:
    """Tasks, sockets, timers or buffered bytes were left after `stop()`."""
    for operation in history.operations:
        if operation.call == "left":
            facts = {name: value for name, value in operation.facts.items() if value}
            if facts:
                yield Anomaly("left-behind", (operation,), facts)


def wrong_ready(history: History) -> Iterator[Anomaly]:
    """`ready()` is True before start or after stop, or contradicts the facts of a running client.

    The fact `expected` is the result that the observer requires. A producer without an open
    connection (the fact `connections`) isn't ready.
    """
    for operations in history.by_process.values():
        start = next((operation for operation in operations if operation.call == "start"), None)
        stop = next((operation for operation in operations if operation.call == "stop"), None)
        for operation in operations:
            if operation.call in ("ready", "metrics") and "ready" in operation.facts:
                expected, shown_by = _expected_ready(operation, start, stop)
                if expected is not None and operation.facts["ready"] != expected:
                    facts = {"ready": operation.facts["ready"], "expected": expected}
                    yield Anomaly("wrong-ready", (*shown_by, operation), facts)


def _expected_ready(
    operation: Operation, start: Operation | None, stop: Operation | None
) -> tuple[Fact | None, tuple[Operation, ...]]:
    """Return the required result of `ready()` (None if unknown) and the calls that imply it."""
    if stop is not None and operation.invoked > stop.order:
        return False, (stop,)
    if start is not None and operation.order < start.invoked:
        return False, (start,)
    if start is not None and start.status == "fail" and operation.invoked > start.order:
        return False, (start,)  # a client whose start has failed is stopped
    if "expected" in operation.facts:
        return operation.facts["expected"], ()
    is_stopping = stop is not None and operation.order > stop.invoked
    if start is None or start.status != "ok" or operation.invoked < start.order or is_stopping:
        return None, ()
    # With a connection a producer is ready if a broker has responded lately, which no fact shows.
    return (False, (start,)) if operation.facts.get("connections") == 0 else (None, ())


@dataclass(slots=True)
class _Counts:
    """Running totals of messages over time."""

    times: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, counted: list[tuple[float, int]]) -> _Counts:
        ordered = sorted(counted)
        return cls([when for when, _ in ordered], list(accumulate(n for _, n in ordered)))

    def before(self, when: float) -> int:
        index = bisect_left(self.times, when)
        return self.totals[index - 1] if index else 0


def wrong_metrics(history: History) -> Iterator[Anomaly]:
    """A counter in `metrics()` contradicts the earlier calls, or buffers still hold memory.

    `memory-leaked`: buffers aren't empty while no message is pending and no request is in flight.
    """
    for operations in history.by_process.values():
        reports = [operation for operation in operations if operation.call == "metrics"]
        if reports:
            yield from _judge_reports(operations, reports)


def _judge_reports(operations: list[Operation], reports: list[Operation]) -> Iterator[Anomaly]:
    sends = [send for send in operations if send.sent]
    # Leave out calls that raised after buffering some messages, which may still be sent later.
    ended = [
        send
        for send in sends
        if send.ended is not None and (send.status != "unknown" or send.accepted is not None)
    ]
    called = _Counts.of([(send.invoked, len(send.sent)) for send in sends])
    done = _Counts.of([(send.order, len(send.sent)) for send in ended])
    stored = _Counts.of([(o.order, len(o.sent)) for o in ended if o.status == "ok"])
    # If a call with several messages ended with an error, some of them may be stored.
    single = [send for send in ended if len(send.sent) == 1 or send.status == "fail"]
    failed = _Counts.of([(o.order, len(o.sent)) for o in single if o.error])
    refused = _Counts.of([(o.order, len(o.sent)) for o in ended if o.status == "fail"])
    polled = _Counts.of([(o.order, len(o.polled)) for o in operations if o.polled])
    for report in reports:
        at = report.invoked
        bounds = {
            "messages_sent": (stored.before(at), called.before(at) - failed.before(at)),
            "messages_failed": (
                failed.before(at) - refused.before(at),
                called.before(at) - stored.before(at),
            ),
            "messages_consumed": (polled.before(at), polled.before(at)),
        }
        for name, (least, most) in bounds.items():
            value = report.facts.get(name)
            if value is not None and not least <= float(value) <= most:
                facts = {name: value, "at_least": least, "at_most": most}
                yield Anomaly("wrong-metrics", (report,), facts)
        # A message that has expired keeps its memory until its request ends.
        if called.before(at) == done.before(at) and not report.facts.get("requests_in_flight"):
            held = {name: report.facts[name] for name in _EMPTY_WHEN_IDLE if report.facts.get(name)}
            if held:
                yield Anomaly("memory-leaked", (report,), held)


CHECKS: Final = (
    empty_history,
    never_ended,
    memory_exceeded,
    left_behind,
    wrong_ready,
    wrong_metrics,
)
