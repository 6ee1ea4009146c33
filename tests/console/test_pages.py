"""The pages on an embedded cluster: what they show is what the command line shows."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.console import app
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.groups import ListGroupsRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, cli
from tests.brokers.ports import free_port
from tests.console.consoles import PAYLOADS, client_of, json_of, opened, text_of
from tests.support.waiting import eventually

__all__ = ["cli"]  # the fixture

ORDERS = TopicPartition("orders", 0)


async def commit(servers: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.reset_consumer_group_offsets(group, dict(offsets))


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Ten messages in orders/0, three in orders/1, and the group billing at 4 of orders/0."""
    async with EmbeddedCluster(version="0.10", brokers=2, topics={"orders": 2, "idle": 1}) as made:
        made.append("orders", 0, [b"tea %d" % number for number in range(10)])
        made.append("orders", 1, [b'{"item": "tea", "price": 1.10}'] * 3, keys=[b"ann"] * 3)
        await commit(made.bootstrap_servers, "billing", {ORDERS: 4})
        yield made


PAGES = [
    "/",
    "/topics",
    "/topics?q=ord&sort=-messages&internal=1&rows=1",
    "/topics?q=nothing-of-it",
    "/topics?problems=1",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?from=beginning&as=hex",
    "/topics/orders/messages?contains=no+such+text",
    "/topics/orders/messages/1/2?as=json",
    "/topics/idle/messages",
    "/groups",
    "/groups?lagging=1&sort=-lag",
    "/groups?q=nothing-of-it",
    "/group?name=billing",
    "/group/reset?name=billing",
    "/group/reset?name=billing&to=earliest",
    "/topics/orders/tail",
    "/watch",
]


async def test_each_page_is_html_with_a_title_and_works_without_script(
    cluster: EmbeddedCluster,
) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        for path in PAGES:
            page = await client.get(path)
            assert page.status_code == 200, path
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert "<title>" in page.text
            text_of(page.text)
        for name in ("console.css", "console.js", "htmx.min.js", "icon.svg", "htmx.LICENSE.txt"):
            assert (await client.get(f"/static/{name}")).status_code == 200


async def test_numbers_are_those_of_the_command_line(
    cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="beyond") as manual:
        manual.assign([TopicPartition("orders", 1)])
        await manual.commit({TopicPartition("orders", 1): 7})
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="reader", enable_auto_commit=False
    ) as reader:
        await reader.commit({ORDERS: 2})
        async with opened(servers) as client:
            topics = await json_of(client, "/topics", internal="1")
            topic = await json_of(client, "/topics/orders")
            groups = await json_of(client, "/groups")
            pages = {
                one["group"]: await json_of(client, "/group", name=one["group"])
                for one in groups["groups"]
            }
        at = ("-b", servers, "--format", "json")
        listed = (await asyncio.to_thread(cli, "topics", *at)).json
        offsets = (await asyncio.to_thread(cli, "offsets", "orders", *at)).json
        lags = (await asyncio.to_thread(cli, "group", "lag", "--all", *at)).json
    assert [(one["topic"], one["partitions"], one["replicas"]) for one in topics["topics"]] == [
        (one["topic"], one["partitions"], one["replicas"]) for one in listed
    ]
    assert [(one["partition"], one["first"], one["end"]) for one in topic["partitions"]] == [
        (one["partition"], one["first"], one["last"]) for one in offsets
    ]
    assert set(pages) == {"beyond", "billing", "reader"}
    fields = ("group", "store", "topic", "partition", "committed", "end", "lag", "member")
    shown = [
        {name: row[name] for name in fields} for page in pages.values() for row in page["offsets"]
    ]
    assert shown == [{name: row[name] for name in fields} for row in lags]
    assert {name: (page["lag"], page["unknown"]) for name, page in pages.items()} == {
        "beyond": (0, 1),
        "billing": (6, 1),
        "reader": (8, 1),
    }
    assert pages["beyond"]["beyond_end"] == 1
    assert pages["reader"]["member_list"][0]["partitions"] == ["orders/0", "orders/1"]
    assert {one["group"]: one["lag"] for one in topic["groups"]} == {
        "beyond": 0,
        "billing": 6,
        "reader": 8,
    }


async def test_cluster_page_shows_rates_after_the_second_sample(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        first = await json_of(client, "/")
        assert first["messages_per_s"] is None
        assert (first["topics"], first["partitions"] > 2, first["leaderless"]) == (2, True, 0)
        cluster.append("orders", 0, [b"more"] * 20)

        async def is_growing() -> bool:
            return bool((await json_of(client, "/"))["messages_per_s"])

        await eventually(is_growing)
        assert {one["node"]: one["release"] for one in first["brokers"]} == {
            0: "0.10.2",
            1: "0.10.2",
        }
        await eventually(lambda: _has(client, "/", '<figure class="chart"'))
        assert "spark" in (await client.get("/topics")).text


async def test_topic_with_a_stale_isr_is_neither_ok_nor_under_replicated() -> None:
    """Brokers of 0.8 may list an old ISR; without ZooKeeper nothing else is known."""
    async with EmbeddedCluster(version="0.8.2", brokers=2, topics={"orders": 1}) as cluster:
        cluster.stop(1)
        cluster.restart(1)
        async with opened(cluster.bootstrap_servers) as client:
            data = await json_of(client, "/")
            assert data["under_replicated"] is None
            assert {one["node"]: one["out_of_sync"] for one in data["brokers"]} == {0: 0, 1: None}
            [row] = (await json_of(client, "/topics", problems="1"))["topics"]
            assert row["under_replicated"] is None
            page = text_of((await client.get("/topics?sort=-problems")).text)
            assert "replication unknown" in page
            assert (await client.get("/topics/orders")).status_code == 200


async def _has(client: httpx.AsyncClient, path: str, text: str) -> bool:
    return text in (await client.get(path)).text


async def test_sort_filter_and_page_are_in_the_url() -> None:
    topics = {f"topic-{number:03}": 1 + number % 3 for number in range(120)}
    async with (
        EmbeddedCluster(version="0.10", topics=topics) as cluster,
        opened(cluster.bootstrap_servers) as client,
    ):
        first = await client.get("/topics")
        assert "1–50 of 120" in text_of(first.text)
        third = await json_of(client, "/topics", page="3")
        assert [one["topic"] for one in third["topics"]] == sorted(topics)[100:]
        by_size = await json_of(client, "/topics", sort="-partitions", rows="500")
        sizes = [one["partitions"] for one in by_size["topics"]]
        assert sizes == sorted(sizes, reverse=True)
        assert len(sizes) == 120
        found = await json_of(client, "/topics", q="C-11", page="9")
        assert [one["topic"] for one in found["topics"]] == sorted(topics)[110:]
        page = await client.get("/topics?q=topic-00&sort=-topic&rows=5&page=2")
        assert "rows=5" in page.text
        assert "page=1" in page.text
        for wrong in ("page=-1", "page=99999999999", "rows=x"):
            assert (await client.get(f"/topics?{wrong}")).status_code == 200


async def test_what_does_not_exist_is_404_and_names_what_is_alike(
    cluster: EmbeddedCluster,
) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        for path, text in (
            ("/topics/order", "Did you mean 'orders'"),
            ("/topics/order/messages", "Did you mean 'orders'"),
            ("/topics/orders/messages?partition=7", "it has 0, 1"),
            ("/topics/orders/messages?from=99", "the log goes from 0 to 10"),
            ("/topics/orders/messages/0/10", "the log ends before it"),
            ("/group?name=bill", "Did you mean 'billing'"),
            ("/nothing", "Not Found"),
        ):
            page = await client.get(path)
            assert page.status_code == 404, path
            assert text in text_of(page.text), path
            as_json = await client.get(path, headers={"accept": "application/json"})
            assert as_json.status_code == 404
            assert text in as_json.json()["error"]
        for path in ("from=x", "count=x", "partition=x", "from=stored", "from=0=1,0=2"):
            page = await client.get(f"/topics/orders/messages?{path}")
            assert page.status_code == 400
            assert "--from" not in page.text


async def test_empty_cluster_says_so() -> None:
    async with (
        EmbeddedCluster(version="0.8.2") as cluster,
        opened(cluster.bootstrap_servers) as client,
    ):
        assert "The cluster has no topic" in (await client.get("/topics")).text
        assert "No group has committed an offset" in (await client.get("/groups")).text
        assert "groups in ZooKeeper" in (await client.get("/groups")).text


async def test_first_page_says_what_is_read_until_there_is_a_sample() -> None:
    async with opened(f"127.0.0.1:{free_port()}", is_read=False) as client:
        page = await client.get("/")
        assert page.status_code == 503
        assert 'http-equiv="refresh"' in page.text  # for viewers without scripts
        text_of(page.text)
        await eventually(lambda: _has(client, "/topics", "Nothing could be read yet"))


async def test_last_data_is_shown_with_its_age_when_the_brokers_are_gone() -> None:
    cluster = EmbeddedCluster(version="0.10", topics={"orders": 1})
    async with cluster, opened(cluster.bootstrap_servers, request_timeout_ms=500) as client:
        before = await json_of(client, "/topics")
        assert before["problem"] is None
        assert (await json_of(client, "/"))["healthy"] is True
        assert '<small class="good">healthy' in (await client.get("/")).text
        cluster.kill(0)
        await eventually(lambda: _has(client, "/topics", "No new data"))
        after = await json_of(client, "/topics")
        assert after["topics"][0]["topic"] == "orders"
        assert after["problem"]
        assert after["age_s"] > 0
        page = (await client.get("/")).text
        assert "unknown since " in text_of(page)
        assert "healthy" not in text_of(page)
        assert '"good"' not in page
        assert '"good"' not in (await client.get("/topics")).text
        assert (await json_of(client, "/"))["healthy"] is None
        assert (await client.get("/topics/order")).status_code == 503
        failed = await client.get("/topics/orders/messages")
        assert failed.status_code == 503
        text_of(failed.text)


async def test_missing_zookeeper_is_a_gap_on_the_page(cluster: EmbeddedCluster) -> None:
    async with opened(
        cluster.bootstrap_servers,
        zookeeper_connect=f"127.0.0.1:{free_port()}",
        request_timeout_ms=1000,
    ) as client:
        page = await client.get("/topics")
        assert "Not everything could be read" in page.text
        assert "in ZooKeeper not read" in page.text
        data = await json_of(client, "/groups")
        assert [one["group"] for one in data["groups"]] == ["billing"]
        assert data["gaps"]
        for path, text in (
            ("/group?name=bill", "group 'bill' in kafka couldn't be read now"),
            ("/group?name=old&store=zookeeper", "group 'old' in zookeeper couldn't be read now"),
            ("/topics/order", "topic 'order' couldn't be read now"),
        ):
            page = await client.get(path)
            assert (page.status_code, text in text_of(page.text)) == (503, True), page.text
            assert "in ZooKeeper not read" in page.text
        assert "Did you mean" in (await client.get("/group?name=bill")).text


async def test_damage_names_a_place_to_begin(cluster: EmbeddedCluster) -> None:
    damaged = bytearray(encode_entry(0, None, b"damaged"))
    damaged[-1] ^= 1
    cluster.append_raw("idle", 0, bytes(damaged))
    async with opened(cluster.bootstrap_servers) as client:
        page = text_of((await client.get("/topics/idle/messages")).text)
    assert "to begin at offset 1 skips it" in page
    assert "seek()" not in page


async def test_pages_leave_no_garbage_that_holds_a_view(cluster: EmbeddedCluster) -> None:
    """Full garbage collections are rare, and a view of a large cluster has many megabytes."""
    async with opened(cluster.bootstrap_servers, allow=["produce,reset,topics"]) as client:
        paths = [*PAGES, *("/topics/orders/produce", "/topics/orders/change", "/create-topic")]
        for path in paths:  # what is made once
            await client.get(path)
        gc.collect()
        gc.disable()
        try:
            for path in paths:
                await client.get(path)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = {type(one).__module__ for one in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.enable()
            gc.garbage.clear()
    assert not {name for name in found if name.startswith(("jinja2", "aiokafka08._tools.console"))}


async def test_console_that_is_not_run_says_how(cluster: EmbeddedCluster) -> None:
    async with client_of(app(bootstrap_servers=cluster.bootstrap_servers)) as client:
        page = await client.get("/")
        assert (page.status_code, "async with console" in page.text) == (503, True)


async def test_reading_leaves_no_trace(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    before = await _state(cluster)
    begin = len(cluster.history)
    async with opened(servers) as client:
        for path in [*PAGES, "/topics/new-one", "/topics/new-one/messages", "/group?name=new"]:
            await client.get(path)
        sent = {type(one.request).__name__ for one in cluster.history[begin:]}
    assert await _state(cluster) == before
    assert sent <= {
        *("ApiVersionsRequest", "MetadataRequest", "ListOffsetsRequest", "FetchRequest"),
        *("GroupCoordinatorRequest", "ListGroupsRequest", "DescribeGroupsRequest"),
        "OffsetFetchRequest",
    }


async def _state(cluster: EmbeddedCluster) -> object:
    servers = cluster.bootstrap_servers
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        topics = await admin.list_topics()
        groups = await admin.list_consumer_groups()
    offsets = [cluster.offsets("orders", 0), cluster.offsets("idle", 0)]
    return sorted(topics), groups, offsets, cluster.committed("billing", "orders", 0)


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2", "0.9", "0.10"])
async def test_pages_open_on_each_line(version: str) -> None:
    async with EmbeddedCluster(version=version, brokers=2, topics={"orders": 2}) as cluster:
        cluster.append("orders", 0, [b"tea", None], keys=[b"k", b"k"])
        async with opened(cluster.bootstrap_servers) as client:
            for path in ("/", "/topics", "/topics/orders", "/groups", "/topics/orders/messages"):
                page = await client.get(path)
                assert page.status_code == 200, (path, page.text)
                text_of(page.text)
            assert "tombstone" in page.text
            [broker, _] = (await json_of(client, "/"))["brokers"]
            # The console doesn't ask the brokers which release of 0.8 they have.
            shown = {"0.8.0": "0.8.x", "0.8.2": "0.8.x", "0.9": "0.9", "0.10": "0.10.2"}
            assert broker["release"] == shown[version]


# --- hostile data ---------------------------------------------------------------------------------


async def test_hostile_messages_and_groups_are_escaped() -> None:
    async with EmbeddedCluster(version="0.10", topics={"x._-X": 1}) as cluster:
        servers = cluster.bootstrap_servers
        values = [one.encode() for one in PAYLOADS]
        values += [b"\xff\xfe<script>", b'{"a": "<script>hacked=1</script>"}', b"\xff\x01"]
        cluster.append("x._-X", 0, values, keys=values)
        for payload in PAYLOADS[:-1]:
            await commit(servers, payload, {TopicPartition("x._-X", 0): 1})
        async with opened(servers) as client:
            for form in ("auto", "text", "json", "hex"):
                path = f"/topics/x._-X/messages?from=beginning&as={form}"
                shown = text_of((await client.get(path)).text)
                if form == "text":
                    assert all(one in shown for one in PAYLOADS[:4])
                    assert "\\u202e\\x00<b>" in shown
            for offset in range(len(values)):
                text_of((await client.get(f"/topics/x._-X/messages/0/{offset}")).text)
            groups = text_of((await client.get("/groups")).text)
            assert all(payload in groups for payload in PAYLOADS[:-1])
            for payload in PAYLOADS[:-1]:
                page = await client.get("/group", params={"name": payload})
                assert page.status_code == 200
                assert payload in text_of(page.text)
            for payload in PAYLOADS:
                for path in ("/topics", "/groups", "/topics/x._-X/messages"):
                    names = ("q", "contains", "key", "sort", "field", "header")
                    query = dict.fromkeys(names, payload)
                    text_of((await client.get(path, params=query)).text)
                text_of((await client.get("/group", params={"name": payload + "?"})).text)
                wrong = await client.get("/topics/x._-X/messages", params={"from": payload})
                text_of(wrong.text)


async def test_view_is_ready_for_many_viewers(cluster: EmbeddedCluster) -> None:
    """Pages are served of what is in memory: viewers cost the brokers nothing."""
    async with opened(cluster.bootstrap_servers) as client:
        before = sum(type(one.request) is ListGroupsRequest for one in cluster.history)
        pages = [one for one in PAGES if "messages" not in one] * 10
        began = time.monotonic()
        await asyncio.gather(*(client.get(path) for path in pages))
        samples = 1 + (time.monotonic() - began)  # one a second
        after = sum(type(one.request) is ListGroupsRequest for one in cluster.history)
        assert after - before <= 2 * (samples + 1)  # two brokers


async def test_one_of_a_thing_is_not_several_and_wrong_queries_name_their_field() -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster,
        opened(cluster.bootstrap_servers) as client,
    ):
        page = (await client.get("/")).text
        for noun in ("broker", "topic", "partition", "group"):
            plural = "s" if noun == "group" else ""
            assert f"<span>{noun}{plural}</span>" in page
        found = (await client.get("/topics", params={"q": "nope"})).text
        assert "0 of 1 topic<" in found
        wrong = await client.get("/topics", params={"sort": "-lga"})
        assert (wrong.status_code, "sort='-lga': expected one of" in text_of(wrong.text)) == (
            400,
            True,
        )
        query = {"contains": "(", "regex": "1"}
        wrong = await client.get("/topics/orders/messages", params=query)
        assert (wrong.status_code, "Value contains='('" in text_of(wrong.text)) == (400, True)
