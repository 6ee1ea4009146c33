"""Metrics for Prometheus: those of this package's clients, and of the process.

    from prometheus_client import REGISTRY
    from aiokafka08.prometheus import collector

    REGISTRY.register(collector(producer, consumer))

Invariant: no other module imports prometheus-client, which the extra `prometheus` installs:
`pip install 'aiokafka08[prometheus]'`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.producer import AIOKafkaProducer

try:
    from prometheus_client import ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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

_HELD_S: Final = 1.0
"""How long to wait for the event loop of a client."""

_GAUGES: Final = frozenset(
    {
        "requests_in_flight",
        "buffer_used_bytes",
        "buffer_limit_bytes",
        "senders_waiting",
        "batches_unfinished",
        "oldest_batch_ms",
        "buffered_bytes",
        "asked_bytes",
        "assigned_partitions",
        "paused_partitions",
        "compiled",
        "lag",
    }
)
"""The values of `metrics()` that may fall; the others are counters."""

_PARTITION_LAG: Final = re.compile(r"lag\{(?P<topic>.*)-(?P<partition>[0-9]+)\}")


def collector(*clients: Client) -> Collector:
    """Return a collector of what the `metrics()` of these clients return, for any registry.

    The names are `aiokafka08_producer_…` and `aiokafka08_consumer_…` with the label `client_id`;
    counters end with `_total`. The consumer's lag per partition is
    `aiokafka08_consumer_partition_lag` with the labels `client_id`, `topic` and `partition`, for
    the assigned partitions only.

    The values are read when the registry is scraped: in the event loop of each client, also if the
    registry is scraped in a thread, as `prometheus_client.start_http_server` does. A client whose
    event loop is held up for a second has no series in that scrape.

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
        for (kind, client_id), client in self._clients.items():
            for key, value in _metrics(client).items():
                _add(families, kind, client_id, key, value)
        yield from families.values()


def _metrics(client: Client) -> dict[str, float]:
    """Return what `metrics()` returns in the client's event loop."""
    loop = client._lifecycle.loop
    if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
        return client.metrics()

    async def metrics() -> dict[str, float]:
        return client.metrics()

    future = asyncio.run_coroutine_threadsafe(metrics(), loop)
    try:
        return future.result(_HELD_S)
    except TimeoutError:
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


def _add(
    families: dict[str, GaugeMetricFamily | CounterMetricFamily],
    kind: str,
    client_id: str,
    key: str,
    value: float,
) -> None:
    """Add one value of `metrics()` to its family."""
    labels = {"client_id": client_id}
    partition = _PARTITION_LAG.fullmatch(key)
    if partition is not None:
        key, labels = "partition_lag", labels | partition.groupdict()
    name = f"aiokafka08_{kind}_{key}"
    family = families.get(name)
    if family is None:
        is_gauge = partition is not None or key in _GAUGES
        make = GaugeMetricFamily if is_gauge else CounterMetricFamily
        text = f"{key!r} of the {kind}'s metrics()"
        family = families[name] = make(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)


def process_text() -> bytes:
    """Return the metrics of this process, such as its CPU time and memory, on Linux."""
    return generate_latest(ProcessCollector(registry=None))
