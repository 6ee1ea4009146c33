"""Replay a failing plan once, and print what led to an anomaly.

`explain()` runs the plan with the clients' log, and puts what happened to the witness's partition
into one order: faults, assignments, commits, seeks, retries, what was sent and returned, log lines,
requests, and where each reading of a partition begins.

Invariants: one line for each thing, with its virtual time; a line that repeats is printed once,
with its number. If there are too many, those of requests that don't name the partition are left
out first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from aiokafka08.protocol.api import Request, Topic
from aiokafka08.protocol.requests.committed_offsets import CommitPartition
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition
from aiokafka08.testing.history import Anomaly, Message, Operation
from aiokafka08.testing.runtime import Recorded
from tests.faults.simulation.plan import Plan, Send
from tests.faults.simulation.scenario import Report, run

MAX_LINES = 400
"""How many lines are printed, the last ones before the anomaly."""
_SILENT = ("metrics", "ready", "left", "log", "position", "committed")
"""Calls that change nothing."""

Line = tuple[float, str]


class _Capture(logging.Handler):
    """Keeps log lines with their virtual times, but for the brokers' usual ones."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("aiokafka08.testing") and record.levelno < logging.WARNING:
            return
        try:
            now = asyncio.get_running_loop().time()
        except RuntimeError:  # the run has ended
            return
        self.lines.append((now, f"log  {record.getMessage()}"))


@contextmanager
def captured_log() -> Iterator[list[Line]]:
    """Collect the log lines of a block, with their virtual times."""
    logger, capture, disabled = logging.getLogger("aiokafka08"), _Capture(), logging.root.manager
    level, before, propagates = logger.level, disabled.disable, logger.propagate
    logger.addHandler(capture)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.disable(logging.NOTSET)
    try:
        yield capture.lines
    finally:
        logger.removeHandler(capture)
        logger.setLevel(level)
        logger.propagate = propagates
        logging.disable(before)


def explain(plan: Plan, name: str) -> str:
    """Return what happened in a run of the plan until the end of its first anomaly of this name."""
    with captured_log() as lines:
        report = run(plan)
    anomaly = next((one for one in report.anomalies if one.name == name), None)
    if anomaly is None:
        return f"the replay shows no {name}, but: {', '.join(report.names) or 'nothing'}"
    partition = partition_of(anomaly)
    until = max((one.order for one in anomaly.witness), default=float("inf")) + 1.0
    faults = [
        (report.began_at + step.at, f"FAULT {step.do!r}")
        for step in plan.steps
        if not isinstance(step.do, Send)
    ]
    mended = [(report.mended_at, "MENDED all faults")] if report.mended_at else []
    wanted = sorted([*faults, *mended, *lines, *_operations(report, partition)])
    told = [line for line in wanted if line[0] <= until]
    begins = [
        (one.order, one.process)
        for one in report.operations
        if one.call in ("assigned", "seek") and one.order <= until
    ]
    shown = list(merged(with_requests(told, report.read, partition, begins)))
    if len(shown) > MAX_LINES:
        requests = [one for one in report.read if partition in dict(_places(one.request))]
        shown = list(merged(with_requests(told, requests, partition, begins)))
    left_out = len(shown) - MAX_LINES
    head = f"what happened to {partition or 'all partitions'}:"
    more = [f"  … {left_out} lines before"] if left_out > 0 else []
    return "\n".join([str(anomaly), "", head, *more, *shown[-MAX_LINES:]])


def with_requests(
    lines: Iterable[Line],
    requests: Iterable[Recorded],
    partition: str | None = None,
    begins: Iterable[tuple[float, str]] = (),
) -> list[Line]:
    """Put the requests that brokers have read between the lines; those in a gap are counted.

    Args:
        lines: the lines.
        requests: the requests, in their order.
        partition: a request that names it says with which offset, and where reading it begins has a
            line of its own; None: only the second, for all partitions.
        begins: when clients began to read anew, and their ids.
    """
    told: list[Line] = []
    kept = deque(requests)
    reading = _Reading(begins)
    for line in sorted(lines, key=itemgetter(0)):
        first: dict[str, float] = {}
        counts: Counter[str] = Counter()
        while kept and kept[0].read_at <= line[0]:
            one = kept.popleft()
            told += [
                (one.read_at, text)
                for place, text in reading.begun(one)
                if partition in (None, place)
            ]
            said = None if partition is None else dict(_places(one.request)).get(partition)
            name = type(one.request).__name__.removesuffix("Request")
            named = "" if said is None else f" {partition}{said}"
            text = f"{one.client_id} → broker {one.node}: {name}{named}"
            first.setdefault(text, one.read_at)
            counts[text] += 1
        told += [(at, f"{text} × {counts[text]}") for text, at in first.items()]
        told.append(line)
    return sorted(told, key=itemgetter(0))


class _Reading:
    """Where clients begin to read partitions: by their first Fetch, and by one that goes back."""

    def __init__(self, begins: Iterable[tuple[float, str]]) -> None:
        self._begins = deque(sorted(begins))
        self._offsets: dict[str | None, dict[str, int]] = defaultdict(dict)

    def begun(self, one: Recorded) -> Iterator[tuple[str, str]]:
        """Yield each partition that a request begins to read, and the line that says so."""
        while self._begins and self._begins[0][0] <= one.read_at:
            self._offsets.pop(self._begins.popleft()[1], None)
        if not isinstance(one.request, FetchRequest):
            return
        offsets = self._offsets[one.client_id]
        for topic in one.request.topics:
            for part in topic.partitions:
                place = f"{topic.topic}/{part.partition}"
                before = offsets.get(place)
                offsets[place] = part.fetch_offset
                if before is None or part.fetch_offset < before:
                    back = "" if before is None else f", back from {before}"
                    yield place, f"{one.client_id} reads {place} from {part.fetch_offset} on{back}"


def _places(request: Request[Any]) -> Iterator[tuple[str, str]]:
    """Yield the partitions that a request names, and which offset it names for each."""
    for topic in getattr(request, "topics", None) or ():
        for part in topic.partitions if isinstance(topic, Topic) else ():
            match part:
                case FetchPartition():
                    said = f" from {part.fetch_offset}"
                case CommitPartition():
                    said = f" at {part.offset}"
                case ListOffsetsPartition():
                    said = f" by time {part.timestamp}"
                case _:
                    said = ""
            yield f"{topic.topic}/{getattr(part, 'partition', part)}", said


def partition_of(anomaly: Anomaly) -> str | None:
    """Return the partition that an anomaly is about; None if it is about none, or several."""
    if (named := anomaly.facts.get("partition")) is not None:
        return str(named)
    found = {
        place
        for one in anomaly.witness
        for place in (
            *(message.partition for message in (*one.sent, *one.polled)),
            *one.partitions,
            *one.offsets,
        )
    }
    return found.pop() if len(found) == 1 else None


def _operations(report: Report, partition: str | None) -> Iterator[Line]:
    for one in report.operations:
        if one.call not in _SILENT and (text := _shown(one, partition)) is not None:
            yield one.order, f"{one.process:5}{one.call}{text}"


def _shown(one: Operation, partition: str | None) -> str | None:
    """Return what an operation says of the partition; None if it says nothing."""
    places = [place for place in one.partitions if partition in (None, place)]
    offsets = {place: at for place, at in one.offsets.items() if partition in (None, place)}
    sent, polled = _range(one.sent, partition), _range(one.polled, partition)
    if one.call in ("start", "stop"):
        said = ""
    elif one.call in ("assigned", "revoked", "expired"):
        said = f" {' '.join(one.partitions) or 'nothing'}"
        said += "" if one.generation is None else f" in generation {one.generation}"
    elif not (places or offsets or sent or polled or one.error):
        return None
    else:
        said = "".join(
            f" {text}"
            for text in (
                " ".join(places),
                " ".join(f"{place}={at}" for place, at in offsets.items()),
                sent,
                polled,
            )
            if text
        )
    ending = "" if one.status == "ok" else f" ({one.status})"
    return f"{said}{ending}{' ' + one.error[:200] if one.error else ''}"


def _range(messages: tuple[Message, ...], partition: str | None) -> str:
    chosen = [one for one in messages if partition in (None, one.partition)]
    shown = [f"{one.value}@{'?' if one.offset is None else one.offset}" for one in chosen]
    return shown[0] if len(shown) == 1 else f"{shown[0]}…{shown[-1]}" if shown else ""


def merged(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the lines as text; one that repeats once, with its number."""
    for text, same in groupby(lines, key=lambda line: line[1]):
        times = [at for at, _ in same]
        count = f" (× {len(times)}, until {times[-1]:.3f})" if len(times) > 1 else ""
        yield f"  {times[0]:9.3f} {text}{count}"
