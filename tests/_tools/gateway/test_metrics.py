"""What the gateway measures of its own work."""

from __future__ import annotations

import re
from collections import Counter

from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.measurements import Series
from aiokafka08._tools.gateway.metrics import PrometheusMetrics
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from tests._tools.gateway.gateways import HOST, RawClient, ScriptedBroker, first_port
from tests._tools.gateway.test_access import KEYS, Caller, StubTarget
from tests.brokers.ports import free_ports
from tests.support.waiting import until


def value_of(metrics: PrometheusMetrics, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", metrics.text().decode(), re.MULTILINE)
    return 0.0 if found is None else float(found[1])


async def started(broker: ScriptedBroker, metrics: PrometheusMetrics) -> Gateway:
    options = gateway_options(broker.address, f"{HOST}:{free_ports()}")
    gateway = Gateway(options, PortTable(), metrics)
    await gateway.start()
    return gateway


async def test_latency_and_conversion_are_measured() -> None:
    metrics = PrometheusMetrics()
    async with StubTarget() as target:
        gateway = await started(target, metrics)
        try:
            async with await RawClient.connect(first_port(gateway)) as client:
                caller = Caller(client)
                await caller.call("ListGroups", 0)
                await caller.call("ListOffsets", 0, Topics=[])
        finally:
            await gateway.stop()
    for api, converted in (("ListGroups", False), ("ListOffsets", True)):
        label = f'{{api="{api}"}}'
        assert value_of(metrics, f"aiokafka08_gateway_request_seconds_count{label}") == 1
        for name in ("seconds", "bytes"):
            value = value_of(metrics, f"aiokafka08_gateway_conversion_{name}_total{label}")
            assert (value > 0) == converted, name


def test_values_of_workers_are_added_up() -> None:
    workers, totals = [PrometheusMetrics(), PrometheusMetrics()], Counter[Series]()
    for _ in range(2):
        for seconds, worker in enumerate(workers, 1):
            worker.answered("Fetch", seconds)
            worker.upstream_failed(1, "lost")
            totals.update(worker.take())
    text = PrometheusMetrics(totals)
    assert value_of(text, 'aiokafka08_gateway_request_seconds_sum{api="Fetch"}') == 6
    for le, count in (("0.5", 0), ("1.0", 2), ("+Inf", 4)):
        series = f'aiokafka08_gateway_request_seconds_bucket{{api="Fetch",le="{le}"}}'
        assert f"\n{series} {count}.0\n" in text.text().decode()
    assert value_of(text, 'aiokafka08_gateway_upstream_errors_total{kind="lost",node="1"}') == 4
    assert "# TYPE aiokafka08_gateway_request_seconds histogram" in text.text().decode()
    assert "_created" not in text.text().decode()
    assert not any(workers[0].take().values())


async def test_lost_and_refused_connections_to_the_target_are_counted() -> None:
    metrics = PrometheusMetrics()
    errors = "aiokafka08_gateway_upstream_errors_total"
    async with ScriptedBroker(lambda frame: b"\0\0\0\x63 another correlation id") as broker:
        gateway = await started(broker, metrics)
        try:
            async with await RawClient.connect(first_port(gateway)) as client:
                Caller(client).send(KEYS["ListGroups"], 0, {})
                assert await client.is_closed()
            assert value_of(metrics, f'{errors}{{kind="lost",node="0"}}') == 1
            assert gateway.is_listening
            broker.stop_listening()
            async with await RawClient.connect(first_port(gateway)) as client:
                assert await client.is_closed()
            assert value_of(metrics, f'{errors}{{kind="connect",node="0"}}') == 1
            assert not gateway.is_listening
            broker.listen()
            await until(lambda: gateway.is_listening, "the listener is open again")
        finally:
            await gateway.stop()
