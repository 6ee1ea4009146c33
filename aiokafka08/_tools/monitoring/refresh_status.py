"""`RefreshStatus`: the results of the last refreshes, and the part that a scrape gets. Pure.

Invariant: metrics older than `kept_s` aren't served, because a lag that stands still looks like
that of a healthy group. Then the cluster and its brokers count as down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from aiokafka08._core.metrics.metric_family import MetricFamily
from aiokafka08._tools.monitoring.cluster_sample import BrokerSample
from aiokafka08._tools.monitoring.metric_families import broker_families

# How many refresh intervals the metrics of the last sample are served while refreshes fail.
KEPT_INTERVALS: Final = 4

# How long they are served at least.
MIN_KEPT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ReadyMetrics:
    """The metrics of one sample, as text, plain and compressed; `taken_at` is monotonic time."""

    text: bytes
    compressed: bytes
    taken_at: float


@dataclass(frozen=True, slots=True)
class RefreshStatus:
    """The results of the last refreshes; times are in seconds of a monotonic clock.

    Attributes:
        interval_s: Seconds between two refreshes.
        ended_at: When the last refresh ended; before the first one, when the refresher started.
        ready: The metrics of the last sample; None at first, or if the refresher makes none.
        is_up: Whether the last refresh succeeded, and all known brokers responded.
        brokers: The known brokers, and whether they responded to the last refresh.
        refreshes: The number of refreshes that ended.
        failures: How many of them failed.
        gaps: The parts that the last sample lacks.
        hints: The parts that it lacks because an option is missing.
        error: Why the last refresh failed; None if it didn't.
        duration_s: How long the last refresh took.
        history_begin: The time of the oldest sample in the history; None before the first one.
        min_kept_s: How long the metrics of a sample are served at least.
    """

    interval_s: float
    ended_at: float
    ready: ReadyMetrics | None = None
    is_up: bool = False
    brokers: tuple[BrokerSample, ...] = ()
    refreshes: int = 0
    failures: int = 0
    gaps: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    error: str | None = None
    duration_s: float = 0.0
    history_begin: float | None = None
    min_kept_s: float = MIN_KEPT_S

    @property
    def kept_s(self) -> float:
        """How long a sample's metrics are served; also the timeout for taking a sample."""
        return max(self.interval_s * KEPT_INTERVALS, self.min_kept_s)

    def served(self, now: float) -> ReadyMetrics | None:
        """Return the metrics to serve; None if there are none, or if they are too old."""
        if self.ready is None or now - self.ready.taken_at > self.kept_s:
            return None
        return self.ready

    def problem(self, now: float) -> str | None:
        """Return why the refresher seems to hang; None if it doesn't."""
        # A cluster that is down is no reason: then refreshes fail, but they end.
        since_s = now - self.ended_at
        return f"no refresh has ended for {since_s:.0f} s" if since_s > self.kept_s else None

    def families(self, now: float, version: str) -> list[MetricFamily]:
        """Return the metrics of brokers and of the exporter itself, which are always served.

        `now` is the time of the scrape, `version` the version of this package.
        """
        is_stale = self.served(now) is None
        values = {
            "kafka_up": (
                "1 if the last refresh succeeded, is recent, and all Brokers responded, else 0",
                int(self.is_up and not is_stale),
            ),
            "kafka_exporter_scrape_duration_seconds": (
                "Seconds that the last refresh took",
                self.duration_s,
            ),
            "kafka_exporter_scrape_errors": (
                "Number of things that the last refresh couldn't read",
                len(self.gaps) + (self.error is not None),
            ),
            "kafka_exporter_scrapes_total": ("Number of refreshes so far", self.refreshes),
            "kafka_exporter_scrape_failures_total": (
                "Number of refreshes so far that failed as a whole",
                self.failures,
            ),
        }
        families = broker_families(
            [replace(broker, error=broker.error or "not read lately") for broker in self.brokers]
            if is_stale
            else self.brokers
        )
        families += [
            MetricFamily(name, text, series=[((), value)]) for name, (text, value) in values.items()
        ]
        if self.ready is not None:
            families.append(
                MetricFamily(
                    "kafka_exporter_state_age_seconds",
                    "Age of the sample that the metrics of the cluster are of",
                    series=[((), now - self.ready.taken_at)],
                )
            )
        if self.history_begin is not None:
            families.append(
                MetricFamily(
                    "kafka_exporter_history_seconds",
                    "Age of the oldest sample; lag in seconds can't be more than this",
                    series=[((), now - self.history_begin)],
                )
            )
        families.append(
            MetricFamily(
                "kafka_exporter_build_info",
                "The version of aiokafka08",
                ("version",),
                [((version,), 1.0)],
            )
        )
        return families
