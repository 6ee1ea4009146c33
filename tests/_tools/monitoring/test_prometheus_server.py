"""Debian's Prometheus and promtool judge the exporter, and the files in examples/monitoring.

The server scrapes an exporter of an embedded cluster in which messages are produced, consumed and
deleted; each query of the dashboard must find data.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import command_line
from tests.brokers.ports import free_port
from tests.support.debian_tools import debian_tool
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples/monitoring"

KAFKA_EXPORTER_QUERIES = [
    'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m]))'
    " by (topic)",
    'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic) ',
    "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', "
    'topic=~"$topic"}[5m])/5) by (topic)',
    "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',"
    'topic=~"$topic"}[5m])/5) by (consumergroup, topic)',
    'sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})',
]
"""The queries of kafka_exporter's own dashboard (Grafana 7589), kafka_exporter_overview.json."""


def promtool(*arguments: str, stdin: bytes | None = None, cwd: Path | None = None) -> str:
    """Run promtool and return its output, with the exit code in front."""
    path = debian_tool("prometheus", "promtool")
    done = subprocess.run([path, *arguments], input=stdin, cwd=cwd, capture_output=True, timeout=60)
    return f"{done.returncode} {(done.stdout + done.stderr).decode()}"


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Yield title and query of each panel; a panel's second query has its letter."""
    for panel in json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            letter = target["refId"].removeprefix("A")
            yield panel["title"] + letter, target["expr"]


def test_dashboard_has_the_fields_that_grafana_needs() -> None:
    """No Grafana is installed here, so this checks what its import asks of a panel."""
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert dashboard["title"]
    assert dashboard["uid"]
    assert dashboard["schemaVersion"] >= 36
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        title, place = panel["title"], panel["gridPos"]
        assert title
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken, title
        assert max(x for x, _ in taken) < 24, title
        assert not cells & taken, f"{title} overlaps another panel"
        cells |= taken
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("stat", "table", "timeseries", "bargauge", "gauge"), title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"], title
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), title
        for target in panel["targets"]:
            assert target["expr"]
            assert target["datasource"] == panel["datasource"]


def test_configuration_and_rules_are_valid() -> None:
    assert promtool("check", "config", "prometheus.yml", cwd=EXAMPLES).startswith("0 ")


def test_page_has_the_alerts_of_clients() -> None:
    """Prometheus accepts the rules; their metrics exist; the page's table has each of them."""
    done = promtool("check", "rules", "client-alerts.yml", cwd=EXAMPLES)
    assert done.startswith("0 "), done
    rules = re.findall(r"expr: (.+)", (EXAMPLES / "client-alerts.yml").read_text())
    page = (EXAMPLES.parents[1] / "docs/monitoring.md").read_text()
    assert [rule for rule in rules if f"`{rule}`" not in page] == []
    folder = EXAMPLES.parents[1] / "docs/reference"
    reference = (folder / "metrics.md").read_text() + (folder / "events.md").read_text()
    names = set(re.findall(r"aiokafka08_(?:producer|consumer)_(\w+)", " ".join(rules)))
    assert {re.sub("_(total|bucket)$", "", name) for name in names} <= set(
        re.findall(r"\| `(\w+)`", reference)
    )


def test_alerts_fire_as_they_should(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), tmp_path)
    done = promtool("test", "rules", "alerts_test.yml", cwd=tmp_path)
    assert done.startswith("0 "), done


def test_documentation_names_each_metric_alert_and_panel() -> None:
    """And nothing in the dashboard or the rules uses a metric that isn't documented."""
    page = (EXAMPLES.parents[1] / "docs/monitoring.md").read_text()
    rules = (EXAMPLES / "alerts.yml").read_text()
    used = " ".join(query for _, query in dashboard_queries()) + rules
    metrics = set(re.findall(r"\bkafka_\w+", used))
    assert metrics <= set(re.findall(r"`(kafka_\w+)`", page))
    documented = re.findall(r"^\| `(Kafka\w+)`", page, re.M)
    assert re.findall(r"alert: (\w+)", rules) == documented


# --- with a server --------------------------------------------------------------------------------


@asynccontextmanager
async def process(*command: str | Path, cwd: Path) -> AsyncIterator[None]:
    """Run a program for the time of the block, and end it by SIGTERM."""
    with (cwd / "output").open("ab") as output:
        running = await asyncio.create_subprocess_exec(
            *command, cwd=cwd, stdout=output, stderr=output
        )
        try:
            yield
        finally:
            if running.returncode is None:
                running.terminate()
            async with asyncio.timeout(10):
                await running.wait()


@asynccontextmanager
async def traffic(cluster: EmbeddedCluster) -> AsyncIterator[None]:
    """Produce, consume, commit and delete, for the time of the block."""
    servers = cluster.bootstrap_servers
    async with (
        AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer,
        AIOKafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):

        async def work() -> None:
            for number in range(1_000_000):
                await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
                if number % 5 == 4:
                    await consumer.getmany(timeout_ms=10)
                    await consumer.commit()
                    cluster.delete_before("orders", 0, max(number // 2 - 20, 1))
                await asyncio.sleep(0.05)

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def answer(server: str, query: str) -> list[Any]:
    """Return what the server answers to a query."""
    url = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    body = json.loads(await asyncio.to_thread(fetch, url))
    assert body["status"] == "success", body
    found: list[Any] = body["data"]["result"]
    return found


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        data: bytes = response.read()
    return data


async def test_dashboards_find_data(tmp_path: Path) -> None:
    """Those of examples/monitoring and of kafka_exporter; and the rules are evaluated."""
    prometheus = debian_tool("prometheus", "prometheus")
    exporter, port = f"127.0.0.1:{free_port()}", free_port()
    server = f"http://127.0.0.1:{port}"
    shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
    configuration = (EXAMPLES / "prometheus.yml").read_text()
    configuration = configuration.replace("15s", "1s").replace("localhost:9308", exporter)
    (tmp_path / "prometheus.yml").write_text(configuration)
    async with (
        EmbeddedCluster(version="0.10", brokers=2, topics={"orders": 2}) as cluster,
        traffic(cluster),
        process(
            *command_line("exporter", "-b", cluster.bootstrap_servers, "--listen", exporter),
            "--interval",
            "1",
            cwd=tmp_path,
        ),
        process(
            prometheus,
            "--config.file=prometheus.yml",
            f"--web.listen-address=127.0.0.1:{port}",
            "--storage.tsdb.path=data",
            cwd=tmp_path,
        ),
    ):
        assert len(dict(dashboard_queries())) == len(list(dashboard_queries()))
        waiting = {
            title: query.replace("$__rate_interval", "10s") for title, query in dashboard_queries()
        }
        waiting |= {query: query for query in KAFKA_EXPORTER_QUERIES}
        for name, value in (("instance", exporter), ("topic", ".*"), ("group", ".*")):
            waiting = {title: query.replace(f"${name}", value) for title, query in waiting.items()}
        answers: dict[str, Any] = {}
        try:
            async with asyncio.timeout(40):
                while waiting:
                    for title, query in list(waiting.items()):
                        try:
                            answers[title] = await answer(server, query)
                        except OSError:
                            break  # the server is still starting
                        if answers[title]:
                            del waiting[title]
                    await asyncio.sleep(0.2)
        except TimeoutError:
            output = (tmp_path / "output").read_text()[-2000:]
            pytest.fail(f"no data for {waiting}; the programs said: {output}")
        assert answers["Cluster"][0]["value"][1] == "1"
        assert answers["Brokers"][0]["value"][1] == "2"
        assert answers["Without a leader"][0]["value"][1] == "0"
        assert answers["Members"][0]["metric"] == {"consumergroup": "billing"}
        rules = json.loads(await asyncio.to_thread(fetch, f"{server}/api/v1/rules"))["data"]
        states = {one["name"]: one["health"] for one in rules["groups"][0]["rules"]}
        assert len(states) == 11
        assert set(states.values()) == {"ok"}
        metrics = await asyncio.to_thread(fetch, f"http://{exporter}/metrics")
    linted = await asyncio.to_thread(promtool, "check", "metrics", stdin=metrics)
    complaints = set(re.findall(r"\bkafka_\w+", linted))
    # These two have kafka_exporter's names.
    assert complaints == {
        "kafka_consumergroup_current_offset_sum",
        "kafka_consumergroup_lag_sum",
    }, linted
