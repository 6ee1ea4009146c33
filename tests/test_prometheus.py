"""`aiokafka08.prometheus.collector`: what `metrics()` of a client returns, for Prometheus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, prometheus
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.prometheus import Client, collector, process_text
from aiokafka08.testing import EmbeddedCluster


def scraped(*clients: Client) -> dict[str, dict[tuple[str, ...], float]]:
    registry = CollectorRegistry()
    registry.register(collector(*clients))
    return {
        sample.name: {
            tuple(other.labels.values()): other.value
            for other in family.samples
            if other.name == sample.name
        }
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


async def test_values_are_those_of_metrics() -> None:
    async with (
        EmbeddedCluster(topics={"a-b": 2}) as cluster,
        AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, client_id="p", acks="all"
        ) as producer,
        AIOKafkaConsumer(
            "a-b",
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="c",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        await producer.send_and_wait("a-b", b"1", partition=1)
        await consumer.getone()
        found = scraped(producer, consumer)
        assert found["aiokafka08_producer_messages_sent_total"] == {("p",): 1}
        assert found["aiokafka08_producer_batches_unfinished"] == {("p",): 0}
        assert found["aiokafka08_consumer_messages_consumed_total"] == {("c",): 1}
        assert found["aiokafka08_consumer_partition_lag"][("c", "1", "a-b")] == 0
        metrics, name = producer.metrics(), "aiokafka08_producer_acknowledgement_seconds"
        assert found[f"{name}_count"] == {("p",): 1}
        assert found[f"{name}_bucket"][("p", "+Inf")] == 1
        assert found[f"{name}_sum"] == {("p",): metrics["acknowledgement_seconds_sum"]}
        assert (
            found[f"{name}_bucket"][("p", "0.25")]
            == metrics["acknowledgement_seconds_bucket{0.25}"]
        )
        for client, kind in ((producer, "producer"), (consumer, "consumer")):
            assert_all(client.metrics(), kind, found)


def assert_all(metrics: dict[str, float], kind: str, found: Mapping[str, object]) -> None:
    """Every value has its series, as gauge or as counter."""
    for name in metrics:
        if "{" not in name:
            shown = f"aiokafka08_{kind}_{name}"
            assert (shown in found) != (f"{shown}_total" in found), name


async def test_values_are_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the registry is scraped in a thread; unless the loop is held up."""
    async with (
        EmbeddedCluster() as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="p") as producer,
    ):
        threads: list[int] = []
        metrics = producer.metrics

        def recorded() -> dict[str, float]:
            threads.append(threading.get_ident())
            return metrics()

        monkeypatch.setattr(producer, "metrics", recorded)
        assert "aiokafka08_producer_compiled" in await asyncio.to_thread(scraped, producer)
        assert "aiokafka08_producer_compiled" in scraped(producer)
        assert set(threads) == {threading.get_ident()}

        monkeypatch.setattr(prometheus, "_HELD_S", 0.01)
        with ThreadPoolExecutor() as pool:
            assert pool.submit(scraped, producer).result() == {}  # which holds the loop up


async def test_falling_values_are_gauges() -> None:
    consumer = AIOKafkaConsumer(client_id="c")
    consumer.assign([TopicPartition("t", 0)])
    found = scraped(AIOKafkaProducer(client_id="p"), consumer)
    assert found["aiokafka08_consumer_assigned_partitions"] == {("c",): 1}
    assert found["aiokafka08_producer_buffer_limit_bytes"] == {("p",): 33554432}
    assert "aiokafka08_consumer_rebalances_total" in found
    await consumer.stop()


async def test_help_has_unit_and_meaning_of_each_metric() -> None:
    registry = CollectorRegistry()
    registry.register(collector(AIOKafkaProducer(), AIOKafkaConsumer()))
    text = generate_latest(registry).decode()
    lines = [line for line in text.splitlines() if line.startswith("# HELP")]
    assert len(lines) > 40
    units = {line.split()[3] for line in lines}
    assert units == {
        *("messages:", "bytes:", "requests:", "batches:", "calls:", "partitions:", "events:"),
        *("ms:", "seconds:", "topics:", "0"),
    }
    assert "senders_waiting calls: of `send` that wait for memory" in text
    assert "rebalances_total events: `Rebalanced`: The consumer's assignment changed\n" in text


async def test_same_client_id_of_two_producers_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="two producers with client_id='p'"):
        collector(AIOKafkaProducer(client_id="p"), AIOKafkaProducer(client_id="p"))


async def test_clients_without_a_client_id_have_series_of_their_own() -> None:
    clients: list[Client] = [AIOKafkaConsumer(), AIOKafkaConsumer(), AIOKafkaProducer()]
    found = scraped(*clients)
    assert len(found["aiokafka08_consumer_lag"]) == 2
    assert all(
        one.startswith("aiokafka08-consumer-") for (one,) in found["aiokafka08_consumer_lag"]
    )


def test_other_objects_are_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="expected an AIOKafkaProducer"):
        collector("producer")  # type: ignore[arg-type]


def test_process_has_metrics() -> None:
    assert b"process_cpu_seconds_total" in process_text()
