"""The console in a browser on real brokers of five lines, beside the tools of each line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests._tools.cli.conftest import RunCommand, cli
from tests._tools.cli.test_group_on_brokers import fill, numbers_of_kafka, numbers_of_ours
from tests._tools.cli.test_real import offsets_of_kafka, send
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.versions import VERSIONS
from tests.console.test_browser import changing, wait_for_rows
from tests.support.browser import opened_browser

__all__ = ["cli"]  # the fixture


@pytest.fixture
def browser() -> Iterator[Any]:
    """A browser of this test only: while it is open, its thread has an event loop that runs."""
    with opened_browser() as made:
        yield made


def run_apart(call: Callable[..., Any], *args: Any) -> Any:
    """Run a call that has an event loop of its own: the browser's runs in the test's thread."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call, *args).result()


@pytest.mark.real
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["0.8.0", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"])
def test_each_page_opens_sorts_filters_and_tails_with_the_numbers_of_kafkas_tools(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    cli: RunCommand,
    browser: Any,
) -> None:
    cluster = broker_clusters.get(version)
    store = "zookeeper" if VERSIONS[version].number < (0, 9) else "kafka"
    topic, group = unique_topic("lines"), unique_topic("g")
    run_apart(fill, cluster, topic, 10, 5)
    at = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
    to = ("--to-offset", "4", "--topic", topic, "--store", store, "--execute")
    assert run_apart(cli, "group", "reset", group, *to, *at).code == 0
    with changing(browser, *at) as (page, base):

        def data_of(path: str) -> Any:
            return page.request.get(f"{base}{path}&format=json").json()

        pages = ["/", "/topics", "/groups", "/watch", f"/topics/{topic}", f"/group?name={group}"]
        for path in [*pages, f"/topics/{topic}/messages/0/3"]:
            assert page.goto(f"{base}{path}").status == 200, path
            assert page.title(), path

        page.goto(f"{base}/topics?q={topic[:-1]}")
        wait_for_rows(page, 1)
        page.goto(f"{base}/topics/{topic}?sort=-messages")
        ends = {one["partition"]: one["end"] for one in data_of(f"/topics/{topic}?")["partitions"]}
        assert ends == offsets_of_kafka(cluster, version, topic, -1)
        shown = numbers_of_ours(data_of(f"/group?name={group}")["offsets"], store)
        assert shown == {0: (4, 10, 6), 1: (4, 5, 1)}
        if version != "0.9.0.1":  # its tool shows groups only while they have members
            assert shown == numbers_of_kafka(cluster, group, topic, store)

        page.goto(f"{base}/topics/{topic}/messages?from=beginning&contains=v")
        wait_for_rows(page, 15)
        page.goto(f"{base}/topics/{topic}/tail")
        page.wait_for_selector("#pause:visible")
        rows, deadline = page.locator("tbody[data-tail] tr"), time.monotonic() + 60
        while not rows.count():  # the tail looks up the end that it begins at
            assert time.monotonic() < deadline
            run_apart(send, cluster, topic, 1, b"new")
        assert "new" in rows.first.inner_text()
