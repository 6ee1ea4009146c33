"""The pages /metrics and /healthz of a run. Pure: `CopyStatus` in, bytes out.

Invariant: /healthz is 200 only while a copy is running, no partition or topic has stopped, no error
repeats, no cluster stays away, and no message has waited `SILENT_S` without a commit; else it is
503 with the reasons. docs/bridge.md lists the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from aiokafka08._core.metrics.endpoint import Page
from aiokafka08._core.metrics.metric_family import MetricFamily
from aiokafka08._core.metrics.text_format import CONTENT_TYPE, write_text
from aiokafka08.bridge.copy.status import SESSION, CopyStatus

# Messages that have waited for this long without a commit make /healthz fail.
SILENT_S: Final = 30.0
_PREFIX: Final = "aiokafka08_bridge"
_BY_PARTITION: Final = ("topic", "partition")


def metrics_page(status: CopyStatus, now: float) -> Page:
    """Return /metrics; `now` is the loop's time. Another thread may write to `status`."""
    return Page(CONTENT_TYPE, write_text([*_partitions(status, now), *_totals(status)]))


def health_page(status: CopyStatus, now: float) -> Page:
    """Return /healthz; `now` is the loop's time. Another thread may write to `status`."""
    silent_s = min(status.lag_s(now), now - status.committed_at)
    silence = f"messages wait, and none was committed for {silent_s:.0f} s"
    # An action that failed once is being retried. A session's end is in `status.problem`.
    errors = [(action, error) for action, error in list(status.errors.items()) if action != SESSION]
    # Without a session, `status.problem` already names the cluster that is away.
    away = list(status.away.items()) if status.problem is None else []
    problems = [
        *([silence] if silent_s >= SILENT_S else []),
        *([status.problem] if status.problem is not None else []),
        *(f"{action}: {error}" for action, error in errors if error.count > 1),
        *(f"the {name} is away: {error}" for name, error in away if error.count > 1),
        *status.stopped.values(),
        *status.refused_topics.values(),
    ]
    kind = "text/plain; charset=utf-8"
    if problems:
        body = "\n".join(problems).encode() + b"\n"
        return Page(kind, body, status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(kind, b"ok\n")


def _partitions(status: CopyStatus, now: float) -> Iterator[MetricFamily]:
    position = MetricFamily(f"{_PREFIX}_position", "Next source offset to copy", _BY_PARTITION)
    end = MetricFamily(f"{_PREFIX}_source_end", "End of the source's log", _BY_PARTITION)
    lag = MetricFamily(f"{_PREFIX}_lag_messages", "Offsets not copied yet", _BY_PARTITION)
    lag_s = MetricFamily(f"{_PREFIX}_lag_seconds", "Seconds behind the end", _BY_PARTITION)
    stopped = MetricFamily(f"{_PREFIX}_stopped", "1: not copied any more", _BY_PARTITION)
    skipped = MetricFamily(f"{_PREFIX}_skipped_total", "Lost offsets passed by", _BY_PARTITION)
    for (topic, number), partition in list(status.partitions.items()):
        labels = topic, str(number)
        position.add(partition.position, *labels)
        if partition.end is not None:
            end.add(partition.end, *labels)
            lag.add(max(partition.end - partition.position, 0), *labels)
        # The age of the oldest end of the log that the copy hasn't reached.
        lag_s.add(partition.lag_s(now), *labels)
        stopped.add(int(partition.stopped is not None), *labels)
        skipped.add(partition.skipped, *labels)
    yield from (position, end, lag, lag_s, stopped, skipped)


def _totals(status: CopyStatus) -> Iterator[MetricFamily]:
    values: list[tuple[str, str, float | None]] = [
        ("messages_total", "Messages copied", status.records),
        ("bytes_total", "Bytes of keys and values copied", status.size),
        ("transactions_total", "Transactions committed", status.transactions),
        ("aborts_total", "Transactions aborted and read again", status.aborts),
        ("sessions_total", "Connections to both clusters that were begun", status.sessions),
        ("refused_topics", "Topics that can't be copied", len(status.refused_topics)),
        ("up", "1 while the copy goes on", int(status.problem is None)),
        ("translated_groups", "Groups of the last translation", status.translated_groups),
        ("translation_timestamp_seconds", "Time of the last translation", status.translated_at),
        ("verification_equal", "1: the last verification was equal", status.verified_equal),
        ("verification_timestamp_seconds", "Time of the last verification", status.verified_at),
    ]  # fmt: skip
    repeats = MetricFamily(f"{_PREFIX}_error_repeats", "Failures in a row", ("what",))
    first = MetricFamily(f"{_PREFIX}_error_timestamp_seconds", "Time of the first one", ("what",))
    for action, error in list(status.errors.items()):
        repeats.add(error.count, action)
        first.add(error.since, action)
    yield from (repeats, first)
    for name, text, value in values:
        if value is not None:
            family = MetricFamily(f"{_PREFIX}_{name}", text)
            family.add(value)
            yield family
