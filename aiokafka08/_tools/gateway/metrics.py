"""`PrometheusMetrics`: what the gateway measures of its own work, for Prometheus.

The module `clients` counts client requests; this one measures times, bytes and failures. Each
worker has its own values, and reports their increase since its last report (`take`).
"""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from aiokafka08 import environment
from aiokafka08._tools.gateway.measurements import Measurements, Series

_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


_COUNTERS: Final = (
    ("conversion_seconds", ("api",),
        "Time in which requests and responses of old versions were translated."),
    ("conversion_bytes", ("api",),
        "Bytes of requests and responses of old versions before they were translated."),
    ("upstream_errors", ("node", "kind"),
        "Connections to a broker that couldn't be opened (connect) or have failed (lost)."),
    ("failed_logins", ("mechanism",),
        "Logins of clients that have failed, by SASL mechanism; empty: one that isn't known."),
)  # fmt: skip
"""The names of counters, those of their labels, and what they count."""


class PrometheusMetrics(Measurements, Collector):
    """See the module.

    Args:
        totals: the sums of what the workers have reported; None: export this object's own values.
    """

    def __init__(self, totals: Mapping[Series, float] | None = None) -> None:
        self._totals = totals
        self._taken: dict[Series, float] = {}
        self._registry = CollectorRegistry()
        name = "aiokafka08_gateway_request_seconds"
        text = "From the last byte of a request to its response; the target's time included."
        options: dict[str, Any] = {"buckets": _BUCKETS_S, "registry": self._registry}
        self._latency = Histogram(name, text, ("api",), **options)
        self._counters = {
            name: Counter(f"aiokafka08_gateway_{name}", text, labels, registry=self._registry)
            for name, labels, text in _COUNTERS
        }

    def answered(self, api: str, seconds: float) -> None:
        """See `Measurements`."""
        self._latency.labels(api).observe(seconds)

    @contextmanager
    def converting(self, api: str, size_bytes: int) -> Iterator[None]:
        """See `Measurements`."""
        began = environment.monotonic()
        try:
            yield
            self._counters["conversion_bytes"].labels(api).inc(size_bytes)
        finally:
            # The time counts even if the block raises TakesLongError. A thread then repeats the
            # translation, and counts the bytes.
            seconds = environment.monotonic() - began
            self._counters["conversion_seconds"].labels(api).inc(seconds)

    def upstream_failed(self, node_id: int, kind: str) -> None:
        """See `Measurements`."""
        self._counters["upstream_errors"].labels(str(node_id), kind).inc()

    def login_failed(self, mechanism: str) -> None:
        """See `Measurements`."""
        self._counters["failed_logins"].labels(mechanism).inc()

    def take(self) -> Totals[Series]:
        """See `Measurements`."""
        now = {
            (one.name, tuple(one.labels.items())): one.value
            for family in self._registry.collect()
            for one in family.samples
            if not one.name.endswith("_created")  # a time
        }
        taken, self._taken = self._taken, now
        return Totals({key: value - taken.get(key, 0) for key, value in now.items()})

    def collect(self) -> Iterable[Metric]:
        """Return the values: its own, or the totals."""
        for family in self._registry.collect():
            if self._totals is not None:
                family.samples = [
                    Sample(name, dict(labels), value)
                    for (name, labels), value in self._totals.items()
                    if name.startswith(family.name)
                ]
            yield family

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self)
