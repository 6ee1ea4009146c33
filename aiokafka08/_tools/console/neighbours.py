"""`Neighbour`: read the state of a gateway or a bridge from the address of its metrics.

`watch` runs each one beside the sampler, and `pages` shows it.

Invariant: the last state that was read stays, with its time; while no newer one can be read,
`problem` says why. No page waits for a neighbour.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiokafka08._tools.monitoring.gateway_clients import SERVED, fetch_clients
from aiokafka08._tools.monitoring.point_history import PointHistory
from aiokafka08._tools.monitoring.served_pages import Samples, endpoint_url, fetch, samples_of
from aiokafka08.errors import KafkaError

_TIMEOUT_S: Final = 5.0
_WINDOW_S: Final = 300.0
_SERVED: Final = {"gateway": SERVED, "bridge": "a bridge serves by `listen` of its file"}
_COUNTED: Final = {
    "gateway": "aiokafka08_gateway_requests_total",
    "bridge": "aiokafka08_bridge_messages_total",
}
_PARTITION: Final = {
    name: f"aiokafka08_bridge_{metric}"
    for name, metric in {
        "position": "position",
        "end": "source_end",
        "lag": "lag_messages",
        "lag_s": "lag_seconds",
        "stopped": "stopped",
        "skipped": "skipped_total",
    }.items()
}


class Neighbour:
    """A gateway or a bridge.

    Args:
        kind: "gateway" or "bridge".
        url: the address of its metrics.

    Attributes:
        base: the address without a path.
        problem: why it wasn't read; None if it was.
        read_at: when it was read last, in seconds since the epoch.
        rows: the clients of a gateway, or the partitions of a bridge.
        health: the text of /healthz.
        rate: requests or copied messages per second, over time.
        left: the messages that a bridge still has to copy, over time.

    Raises:
        IllegalArgumentError: `url` is neither a URL nor "HOST:PORT".
    """

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.base = kind, endpoint_url(url, _SERVED[kind])
        self.problem: str | None = "it isn't read yet"
        self.read_at: float | None = None
        self.rows: list[dict[str, Any]] = []
        self.health = ""
        self.rate, self.left = PointHistory(360, 1440), PointHistory(360, 1440)
        self._samples: Samples = {}
        self._counted: tuple[float, float] | None = None

    async def run(self, interval_s: float) -> None:
        """Read the state every `interval_s` seconds."""
        while True:
            try:
                self._samples, self.health, self.rows = await asyncio.to_thread(self._read)
                self._add(time.time())
                self.problem = None
            except KafkaError as error:
                self.problem = error.text
            except (ValueError, LookupError) as error:
                self.problem = f"{self.base}/metrics: {error}"
            await asyncio.sleep(interval_s)

    def total(self, metric: str, **labels: str) -> float | None:
        """Return the sum of a metric's values with these labels; None if it has none."""
        values = [
            value
            for has, value in self._samples.get(f"aiokafka08_{self.kind}_{metric}", ())
            if labels.items() <= has.items()
        ]
        return sum(values) if values else None

    def failures(self) -> list[tuple[str, int]]:
        """Return the actions that a bridge is retrying, and how often in a row each has failed."""
        repeats = self._samples.get("aiokafka08_bridge_error_repeats", ())
        return [(labels.get("what", ""), int(value)) for labels, value in repeats]

    def seconds_left(self) -> float | None:
        """Return the seconds that a bridge still needs; None if that can't be estimated."""
        left = self.total("lag_messages")
        slope = None if self.read_at is None else self.left.slope(self.read_at, _WINDOW_S)
        if not left:
            return left
        return left / -slope if slope is not None and slope < 0 else None

    def is_ready(self) -> bool:
        """Return whether a bridge is healthy and has copied all.

        Its last verification must have found both sides equal, too.
        """
        equal = self.total("verification_equal")
        is_done = self.health.strip() == "ok" and self.total("lag_messages") == 0
        return self.problem is None and is_done and equal == 1

    def _read(self) -> tuple[Samples, str, list[dict[str, Any]]]:
        metrics, health = (
            fetch(f"{self.base}/{page}", _SERVED[self.kind], _TIMEOUT_S)
            for page in ("metrics", "healthz")
        )
        samples = samples_of(metrics)
        if _COUNTED[self.kind] not in samples and self.kind == "bridge":
            raise ValueError("there are no metrics of a bridge")
        is_gateway = self.kind == "gateway"
        rows = fetch_clients(self.base, _TIMEOUT_S) if is_gateway else _partitions(samples)
        return samples, health.decode(errors="replace"), rows

    def _add(self, now: float) -> None:
        count = sum(value for _, value in self._samples.get(_COUNTED[self.kind], ()))
        if self._counted is not None and now > self._counted[0] and count >= self._counted[1]:
            self.rate.add(now, (count - self._counted[1]) / (now - self._counted[0]))
        self._counted, self.read_at = (now, count), now
        if (left := self.total("lag_messages")) is not None:
            self.left.add(now, left)


def _partitions(samples: Samples) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for name, metric in _PARTITION.items():
        for labels, value in samples.get(metric, ()):
            key = labels["topic"], int(labels["partition"])
            blank = dict.fromkeys(_PARTITION)
            row = rows.setdefault(key, {"topic": key[0], "partition": key[1], **blank})
            row[name] = value if name == "lag_s" else int(value)
    return [row for _, row in sorted(rows.items())]
