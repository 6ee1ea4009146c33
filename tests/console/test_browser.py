"""Debian's chromium opens each page of a console on a cluster whose data is hostile.

Playwright drives it; requests to other hosts are counted and refused. `CONSOLE_SCREENSHOTS`
names a folder for pictures of the pages, to be looked at.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.fixtures import BrokerClusters
from tests.console.consoles import PAYLOADS
from tests.console.test_avro import hostile_messages
from tests.console.test_command import running
from tests.console.test_neighbours import hostile_clients, served_bridge, served_gateway
from tests.support.browser import opened_browser, violations
from tests.support.schema_registry import Registry, schema_registry

PAGES = {
    "cluster": "/",
    "topics": "/topics?internal=1&sort=-messages",
    "topic": "/topics/orders",
    "messages": "/topics/orders/messages?from=beginning",
    "hex": "/topics/orders/messages?as=hex",
    "avro": "/topics/avro/messages?as=avro",
    "message": "/topics/orders/messages/0/3",
    "tail": "/topics/orders/tail",
    "groups": "/groups?sort=-lag",
    "group": "/group?name=billing",
    "watch": "/watch",
    "gateway": "/gateway",
    "bridge": "/bridge",
}
ERRORS = {
    "missing": "/topics/nope",
    "no message": "/topics/orders/messages/0/4711",
    "no match": "/topics/orders/messages?from=beginning&contains=nothing+has+this",
    "no topic": "/topics?q=nope",
    "no group": "/groups?q=nope",
    "reset": "/group/reset?name=billing&store=kafka&to=earliest",
}
SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture
def browser() -> Iterator[Any]:
    """A browser of this test only: while it is open, its thread has an event loop that runs."""
    with opened_browser() as made:
        yield made


async def _commit(servers: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        for group in ("billing", *PAYLOADS[:4]):
            await admin.reset_consumer_group_offsets(group, {TopicPartition("orders", 0): 2})


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A schema registry."""
    with schema_registry() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(registry: Registry) -> Iterator[EmbeddedCluster]:
    """A cluster whose data is hostile."""
    topics = {"orders": 3, "x._-": 1, "live": 1, "avro": 1}
    with EmbeddedCluster(version="0.10", brokers=2, topics=topics) as cluster:
        values = [one.encode() for one in PAYLOADS] + [b'{"a": "<script>hacked=1</script>"}']
        cluster.append("orders", 0, values, keys=values)
        cluster.append("orders", 1, [b"\xff\x00<b>", None, b"tea"])
        cluster.append("avro", 0, hostile_messages(registry))
        asyncio.run(_commit(cluster.bootstrap_servers))
        yield cluster


@pytest.fixture(scope="module")
def url(cluster: EmbeddedCluster, registry: Registry) -> Iterator[str]:
    """The URL of a console, with its token."""
    at = ("-b", cluster.bootstrap_servers, "--listen", ":0", "--interval", "1")
    clients = hostile_clients()
    with served_gateway(clients) as gateway, served_bridge(CopyStatus()) as bridge:
        beside = ("--gateway", gateway.url, "--bridge", bridge.url, "--registry", registry.url)
        with running(*at, *beside) as (_, printed):
            yield printed


def watched_page(context: Any, base: str) -> tuple[Any, list[str]]:
    """Return a page, and a list that gets its errors, dialogs and requests to other hosts."""
    problems: list[str] = []

    def refuse(route: Any) -> None:
        problems.append(f"request to {route.request.url}")
        route.abort()

    context.route(lambda target: not target.startswith(f"{base}/"), refuse)
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    return page, problems


def wait_for_rows(page: Any, count: int) -> None:
    """Wait until a table has this number of rows: a click doesn't wait for the next page."""
    from playwright.sync_api import expect

    expect(page.locator("tbody tr")).to_have_count(count, timeout=30_000)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_pages_open_without_errors_foreign_requests_or_barriers(
    url: str, browser: Any, screen: str, scheme: str
) -> None:
    base = url.split("/?")[0]
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page, problems = watched_page(context, base)
    page.goto(url)
    assert page.url == f"{base}/"  # the token is gone
    page.wait_for_selector("table", timeout=40_000)
    problems.clear()  # the page that waits for the first sample is a 503
    for name, path in PAGES.items():
        page.goto(f"{base}{path}")
        assert page.title()
        assert page.evaluate("typeof hacked") == "undefined", name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        for summary in page.query_selector_all("summary"):
            summary.click()
        folder = os.environ.get("CONSOLE_SCREENSHOTS")
        if folder:
            target = Path(folder, f"{name}-{screen}-{scheme}.png")
            page.screenshot(path=str(target), full_page=True)
        assert violations(page) == [], name
    assert problems == []
    for name, path in ERRORS.items():
        page.goto(f"{base}{path}")
        assert violations(page) == [], name
    context.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_that_waits_for_brokers_is_accessible(browser: Any, scheme: str) -> None:
    with running("-b", "127.0.0.1:1", "--listen", ":0", "--interval", "1") as (_, url):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("[data-waiting] .note.error", timeout=40_000)
        assert violations(page) == []
        context.close()


@pytest.mark.timeout(180)
def test_page_refreshes_itself_and_keeps_what_was_typed(url: str, browser: Any) -> None:
    base = url.split("/?")[0]
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("table", timeout=40_000)
    page.goto(f"{base}/topics")
    page.fill("input[name=q]", "typed")
    before = page.get_attribute("#age", "data-age")
    page.wait_for_function(
        "before => document.querySelector('#age').dataset.age !== before",
        arg=before,
        timeout=30_000,
    )
    assert page.input_value("input[name=q]") == "typed"
    context.close()


@pytest.mark.timeout(180)
def test_live_view_shows_rows_until_it_is_paused(
    cluster: EmbeddedCluster, url: str, browser: Any
) -> None:
    base = url.split("/?")[0]
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(url)
    page.wait_for_selector("table", timeout=40_000)
    problems.clear()  # the page that waits for the first sample is a 503
    page.goto(f"{base}/topics/live/messages")
    page.click("#live-link")
    state, rows = page.locator("#tail-state"), page.locator("tbody[data-tail] tr")
    page.wait_for_function(
        "() => /^Live:/.test(document.querySelector('#tail-state').textContent)", timeout=30_000
    )
    values = [one.encode() for one in PAYLOADS]
    cluster.append("live", 0, values, keys=values)
    rows.nth(len(values) - 1).wait_for(timeout=30_000)
    assert rows.first.locator("td").nth(1).text_content() == str(len(values) - 1)
    assert page.evaluate("typeof hacked") == "undefined"
    page.click("#pause")
    assert state.text_content() == "Paused."
    cluster.append("live", 0, [b"not seen"])
    page.click("#pause")
    page.wait_for_function(
        "() => /^Live:/.test(document.querySelector('#tail-state').textContent)", timeout=30_000
    )
    cluster.append("live", 0, [b"seen again"])
    rows.nth(len(values)).wait_for(timeout=30_000)
    assert "seen again" in (rows.first.text_content() or "")
    assert "not seen" not in (page.text_content("tbody[data-tail]") or "")
    assert problems == []
    context.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_age_is_not_of_the_viewers_clock(url: str, browser: Any, ahead_ms: int) -> None:
    base = url.split("/?")[0]
    context = browser.new_context()
    context.add_init_script(f"const now = Date.now; Date.now = () => now() + ({ahead_ms});")
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("table", timeout=40_000)
    # Without htmx nothing refreshes the data.
    context.route("**/htmx.min.js*", lambda route: route.abort())
    page.goto(f"{base}/topics")
    page.wait_for_function(
        "() => /^[4-9] s old$/.test(document.querySelector('#age').textContent)", timeout=10_000
    )
    assert page.get_attribute("#age", "class") == "bad"  # after three intervals of 1 s
    context.close()


@pytest.mark.timeout(180)
def test_pages_work_without_script(url: str, browser: Any) -> None:
    base = url.split("/?")[0]
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("table", timeout=40_000)
    page.goto(f"{base}/topics")
    page.click("text=Partitions")
    page.wait_for_url("**/topics?*sort=-partitions*")
    page.fill("input[name=q]", "ord")
    page.click("button")
    wait_for_rows(page, 1)
    page.click("tbody a")
    page.click("text=look at messages")
    wait_for_rows(page, 11)
    page.fill("input[name=field]", "a=<script>hacked=1</script>")
    page.click("form.tools button")
    wait_for_rows(page, 1)
    page.fill("input[name=field]", "a[=")
    page.click("form.tools button")
    assert "--" not in (page.text_content(".note.error") or "--")
    context.close()


@contextmanager
def changing(browser: Any, *arguments: str, has_script: bool = True) -> Iterator[tuple[Any, str]]:
    """Yield a page on a phone's screen and the base URL of a console; no problem may show up."""
    with running(*arguments, "--listen", ":0", "--interval", "1") as (_, url):
        base = url.split("/?")[0]
        width, height = SCREENS["phone"]
        context = browser.new_context(
            viewport={"width": width, "height": height}, java_script_enabled=has_script
        )
        page, problems = watched_page(context, base)
        page.goto(url)
        page.wait_for_selector(".figures", timeout=40_000)
        problems.clear()  # the page that waits for the first sample is a 503
        yield page, base
        assert problems == []
        context.close()


def barriers(page: Any) -> list[str]:
    """Return what is inaccessible on a page; nothing without scripts, which axe-core needs."""
    return violations(page) if page.evaluate("typeof htmx") != "undefined" else []


def look_and_confirm(page: Any, name: str) -> str:
    """Look at a confirmation, confirm it, and return the text of the page with the outcome."""
    page.wait_for_selector("form[action*='/changes/'] button")  # a click doesn't wait for the page
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS["phone"][0], name
    assert barriers(page) == []
    folder = os.environ.get("CONSOLE_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder, f"{name}-phone-light.png")), full_page=True)
    page.click("form.change button")
    outcome = page.text_content("p[role=status]")
    assert page.evaluate("typeof hacked") == "undefined"
    assert barriers(page) == []
    return str(outcome)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("has_script", [True, False])
def test_message_is_produced_and_group_reset(
    cluster: EmbeddedCluster, browser: Any, has_script: bool
) -> None:
    at = ("-b", cluster.bootstrap_servers, "--allow", "produce,reset")
    with changing(browser, *at, has_script=has_script) as (page, base):
        page.goto(f"{base}/topics/live")
        page.click("text=Produce a message")
        assert barriers(page) == []
        page.select_option("select[name=partition]", "0")
        page.fill("input[name=key]", PAYLOADS[0])
        page.fill("textarea[name=value]", f"{PAYLOADS[1]}\nnext line")
        before = len(cluster.log("live", 0))
        page.click("form.change button")
        assert cluster.bootstrap_servers.split(",")[0] in (page.text_content("dl") or "")
        assert len(cluster.log("live", 0)) == before
        assert f"offset {before} in partition 0" in look_and_confirm(page, "produce")
        produced = cluster.log("live", 0)[-1]
        assert (produced.key, produced.value) == (
            PAYLOADS[0].encode(),
            f"{PAYLOADS[1]}\nnext line".encode(),
        )
        page.click("text=Look at it")
        assert "next line" in (page.text_content("main") or "")

        page.goto(f"{base}/group?name=billing")
        page.click("text=Plan a reset")
        page.select_option("select[name=to]", "offset")
        page.fill("input[name=value]", "7" if has_script else "2")
        page.click("form.tools button")
        wait_for_rows(page, 1)
        assert "Done. 1 offset committed." in look_and_confirm(page, "reset")


@pytest.mark.real
@pytest.mark.release("0.8.2.2")
@pytest.mark.timeout(180)
def test_topic_is_created_configured_and_deleted(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], browser: Any
) -> None:
    real, topic = broker_clusters.get("0.8.2.2"), unique_topic("made")
    at = ("-b", real.bootstrap_servers, "--zookeeper", real.zookeeper_connect, "--allow", "topics")
    with changing(browser, *at) as (page, base):
        page.goto(f"{base}/topics")
        page.click("text=Create a topic")
        assert barriers(page) == []
        page.fill("input[name=name]", topic)
        page.fill("input[name=partitions]", "2")
        page.click("form.change button")
        assert "Done. The topic was created" in look_and_confirm(page, "create")
        deadline = time.monotonic() + 60
        while page.goto(f"{base}/topics?q={topic}") and not page.locator("td.name a").count():
            assert time.monotonic() < deadline
        page.click("td.name a")
        page.click("text=Grow, configure, delete")
        assert barriers(page) == []
        page.fill("input[name=name]", "retention.ms")
        page.fill("form.change input[name=value]", "3600000")
        page.click("form.change:has(input[value=configure]) button")
        assert "Done." in look_and_confirm(page, "configure")
        page.goto(f"{base}/topics/{topic}/change")
        page.click("form.change:has(input[value=delete]) button")
        page.fill("input[name=typed]", topic)
        assert "Done. The topic was deleted" in look_and_confirm(page, "delete")
