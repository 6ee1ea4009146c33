"""Metrics of this package's clients, and of the process, for Prometheus.

    from prometheus_client import REGISTRY
    from aiokafka08.prometheus import collector

    REGISTRY.register(collector(producer, consumer))

Invariant: the clients don't import this module, which needs prometheus-client. The extra
`prometheus` installs it.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aiokafka08._core.histogram import BOUNDS_S
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.telemetry import Event

try:
    from prometheus_client import ProcessCollector, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "aiokafka08.prometheus needs prometheus-client. "
        "Install the extra: pip install 'aiokafka08[prometheus]'",
        name=error.name,
    ) from None

if TYPE_CHECKING:
    from prometheus_client import Metric

Client = AIOKafkaProducer | AIOKafkaConsumer

# How long to wait for the event loop of a client
_HELD_S: Final = 1.0


class ClientMetric(NamedTuple):
    """Describes a value of `metrics()`.

    `kind` is "histogram" for the values of a histogram, "gauge" for another value that may fall,
    else "counter".
    """

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str


CLIENT_METRICS: Final = {
    "messages_sent": ClientMetric("counter", "messages", "acknowledged; with `acks=0` written"),
    "messages_failed": ClientMetric(
        "counter",
        "messages",
        "whose future has an error; a call of `send` that raises isn't counted",
    ),
    "bytes_sent": ClientMetric(
        "counter", "bytes", "of message sets as sent: compressed, retries included"
    ),
    "requests_sent": ClientMetric("counter", "requests", "Produce requests"),
    "requests_in_flight": ClientMetric("gauge", "requests", "Produce requests without a response"),
    "buffer_used_bytes": ClientMetric("gauge", "bytes", "of messages not yet acknowledged"),
    "buffer_limit_bytes": ClientMetric("gauge", "bytes", "the option `buffer_memory`"),
    "senders_waiting": ClientMetric(
        "gauge",
        "calls",
        "of `send` that wait for memory, for a topic's metadata, or behind such a call",
    ),
    "batches_unfinished": ClientMetric("gauge", "batches", "not yet acknowledged"),
    "oldest_batch_ms": ClientMetric(
        "gauge", "ms", "the age of the oldest batch that isn't acknowledged; 0 without one"
    ),
    "acknowledgement_seconds": ClientMetric(
        "histogram",
        "seconds",
        "from the first message of a batch to its acknowledgement, once for each batch; not of "
        "those that fail, nor with `acks=0`",
    ),
    "request_seconds": ClientMetric(
        "histogram",
        "seconds",
        "from the write of a Produce request to its response; with `acks=0` to that of the small "
        "request behind it",
    ),
    "compiled": ClientMetric(
        "gauge", "0 or 1", "1: the compiled modules run; 0: a part is pure Python"
    ),
    "retries": ClientMetric("counter", "batches", "sent again, as the event `BatchRetried`"),
    "headers_dropped": ClientMetric(
        "counter", "messages", 'sent without their headers, by `headers="drop"`'
    ),
    "messages_consumed": ClientMetric("counter", "messages", "returned to the program"),
    "bytes_fetched": ClientMetric("counter", "bytes", "of message sets received: compressed"),
    "fetch_requests": ClientMetric("counter", "requests", "Fetch requests sent"),
    "fetch_request_failures": ClientMetric(
        "counter", "requests", "Fetch requests without a response"
    ),
    "fetch_request_seconds": ClientMetric(
        "histogram",
        "seconds",
        "from the write of a Fetch request to its response, which the broker holds back until "
        "there are messages, up to `fetch_max_wait_ms`",
    ),
    "commit_seconds": ClientMetric(
        "histogram", "seconds", "a commit of offsets that succeeded, retries included"
    ),
    "buffered_bytes": ClientMetric("gauge", "bytes", "fetched and not yet returned"),
    "buffered_limit_bytes": ClientMetric(
        "gauge", "bytes", "that may be buffered, with messages larger than a partition's share"
    ),
    "requested_bytes": ClientMetric("gauge", "bytes", "that the fetches in flight may return"),
    "assigned_partitions": ClientMetric("gauge", "partitions", "of this consumer"),
    "paused_partitions": ClientMetric("gauge", "partitions", "paused by `pause()`"),
    "lag": ClientMetric(
        "gauge",
        "messages",
        "from the positions to the high watermarks, over all partitions; `lag{topic-partition}` "
        "for each one. An estimate: offsets may have holes",
    ),
    "partition_lag": ClientMetric("gauge", "messages", "as `lag`, for one partition"),
}
"""The metrics by their name in `metrics()`, without the counters that are named by an event.

`partition_lag` stands for the lag of each partition.
"""

_EVENT_METRICS: Final = {
    event.name: ClientMetric(
        "counter", event.unit, f"`{event.__name__}`: {(event.__doc__ or '').split('.')[0]}"
    )
    for event in Event.__subclasses__()
}

_HISTOGRAM_PART: Final = re.compile(r"(?P<name>\w+_seconds)_(count|sum|bucket\{.+\})")

_PARTITION_LAG: Final = re.compile(r"lag\{(?P<topic>.*)-(?P<partition>[0-9]+)\}")


def collector(*clients: Client) -> Collector:
    """Return a collector of the values of these clients' `metrics()`, for any registry.

    The names are `aiokafka08_producer_…` and `aiokafka08_consumer_…` with the label `client_id`;
    counters end with `_total`. Times are histograms in seconds, except the gauge
    `aiokafka08_producer_oldest_batch_ms`. The consumer's lag per partition is
    `aiokafka08_consumer_partition_lag` with the labels `client_id`, `topic` and `partition`, for
    the assigned partitions only.

    The values are read when the registry is scraped, in the event loop of each client, even if the
    scrape is in a thread, as with `prometheus_client.start_http_server`. A client whose event loop
    is held up for a second has no series in that scrape.

    Args:
        clients: producers and consumers, started or not; each has a `client_id` of its own.

    Raises:
        IllegalArgumentError: an argument isn't a producer or consumer of this package, or two
            producers or two consumers have the same `client_id`.
    """
    return _ClientCollector(clients)


class _ClientCollector(Collector):
    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients: dict[tuple[str, str], Client] = {}
        for client in clients:
            key = _kind(client), _client_id(client)
            if key in self._clients:
                raise IllegalArgumentError(
                    f"collector: two {key[0]}s with client_id={key[1]!r}; expected different ones, "
                    "because their metrics differ in this label only"
                )
            self._clients[key] = client

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; prometheus-client calls it."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        histograms: dict[str, HistogramMetricFamily] = {}
        for (kind, client_id), client in self._clients.items():
            metrics = _metrics(client)
            for name in dict.fromkeys(map(metric_name, metrics)):
                if name in metrics:
                    _add(families, kind, client_id, name, metrics[name])
                else:
                    _add_histogram(histograms, kind, client_id, name, metrics)
        yield from families.values()
        yield from histograms.values()


def _metrics(client: Client) -> dict[str, float]:
    """Return the result of `metrics()`, called in the client's event loop."""
    loop = client._lifecycle.loop
    if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
        return client.metrics()

    async def metrics() -> dict[str, float]:
        return client.metrics()

    # The registry may be scraped in a thread.
    future = asyncio.run_coroutine_threadsafe(metrics(), loop)
    try:
        return future.result(_HELD_S)
    except TimeoutError:
        # No series of this client in this scrape: its event loop is held up.
        future.cancel()
        return {}


def _kind(client: object) -> str:
    if isinstance(client, AIOKafkaProducer):
        return "producer"
    if isinstance(client, AIOKafkaConsumer):
        return "consumer"
    raise IllegalArgumentError(
        f"collector: {client!r}; expected an AIOKafkaProducer or AIOKafkaConsumer of aiokafka08"
    )


def _client_id(client: Client) -> str:
    return (client.client if isinstance(client, AIOKafkaProducer) else client._client)._client_id


def metric_name(key: str) -> str:
    """Return the metric's name for a key of `metrics()`; a histogram's parts share its name."""
    part = _HISTOGRAM_PART.fullmatch(key)
    return key if part is None else part["name"]


def _add_histogram(
    families: dict[str, HistogramMetricFamily],
    kind: str,
    client_id: str,
    key: str,
    metrics: dict[str, float],
) -> None:
    name, metric = f"aiokafka08_{kind}_{key}", CLIENT_METRICS[key]
    text = f"{metric.unit}: {metric.meaning}"
    family = families.setdefault(name, HistogramMetricFamily(name, text, labels=["client_id"]))
    buckets = [
        ("+Inf" if math.isinf(bound) else str(bound), metrics[f"{key}_bucket{{{bound:g}}}"])
        for bound in BOUNDS_S
    ]
    family.add_metric([client_id], buckets, metrics[f"{key}_sum"])


def _add(
    families: dict[str, GaugeMetricFamily | CounterMetricFamily],
    kind: str,
    client_id: str,
    key: str,
    value: float,
) -> None:
    labels = {"client_id": client_id}
    partition = _PARTITION_LAG.fullmatch(key)
    if partition is not None:
        key, labels = "partition_lag", labels | partition.groupdict()
    name = f"aiokafka08_{kind}_{key}"
    family = families.get(name)
    if family is None:
        metric = CLIENT_METRICS.get(key) or _EVENT_METRICS[key]
        make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
        text = f"{metric.unit}: {metric.meaning}"
        family = families[name] = make(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)


def process_text() -> bytes:
    """Return the metrics of this process, such as its CPU time and memory, on Linux."""
    return generate_latest(ProcessCollector(registry=None))
