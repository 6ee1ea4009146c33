"""What the console changes, and what it refuses to change, on embedded clusters."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._tools.console import changes
from aiokafka08._tools.console.application import make_console
from aiokafka08._tools.console.guard import Admission, viewer_of
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.console import app
from aiokafka08.embedded_headers import extract
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Close, EmbeddedCluster
from tests.console.consoles import (
    BASE,
    FORM,
    PAYLOADS,
    change_of,
    client_of,
    commit,
    confirmed,
    fields_of,
    is_ready,
    json_of,
    opened,
    post,
    text_of,
)
from tests.support.waiting import eventually

ORDERS = TopicPartition("orders", 0)
CHANGING = ("/topics/orders/produce", "/topics/orders/change", "/create-topic", "/changes/x")


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Ten messages in orders/0, and the group billing at 4 of it."""
    async with EmbeddedCluster(version="0.10", topics={"orders": 2}) as made:
        made.append("orders", 0, [b"tea %d" % number for number in range(10)])
        await commit(made, 4)
        yield made


async def committed(cluster: EmbeddedCluster) -> int:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return (await admin.list_consumer_group_offsets("billing"))[ORDERS].offset


async def planned(client: httpx.AsyncClient, **query: str) -> str:
    """Return the page with the plan of a reset of billing."""
    page = await client.get("/group/reset", params={"name": "billing", **query})
    text_of(page.text)
    return page.text


# --- what is allowed ------------------------------------------------------------------------------


async def test_without_allow_no_route_changes_anything(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        for path in CHANGING:
            assert (await client.get(path)).status_code == 404
            assert (await client.post(path, headers=FORM)).status_code == 405
        page = (await client.get("/topics/orders")).text
        assert "/produce" not in page
        assert "read-only" in page
        assert "session" not in "".join(client.cookies)


async def test_only_allowed_changes_have_routes(cluster: EmbeddedCluster) -> None:
    for kind, served in (("produce", CHANGING[:1]), ("topics", CHANGING[1:3]), ("reset", ())):
        async with opened(cluster.bootstrap_servers, allow=[kind]) as client:
            for path in CHANGING[:3]:
                status = 200 if path in served else 404
                assert (await client.get(path)).status_code == status
                sent = await client.post(path, headers=FORM)
                assert sent.status_code == (415 if path in served else 404)
            assert f"changes allowed: {kind}" in (await client.get("/topics/orders")).text


def test_unknown_kind_is_refused_with_the_list() -> None:
    for allow in (["produce,delete"], ["delete"], [""]):
        with pytest.raises(IllegalArgumentError, match="expected some of produce, reset, topics"):
            app(bootstrap_servers="127.0.0.1:1", allow=allow)


async def test_plan_is_shown_without_allow_and_leaves_no_trace() -> None:
    async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"tea"] * 5)
        async with opened(cluster.bootstrap_servers) as client:
            page = await client.get("/group/reset", params={"name": "nobody", "to": "earliest"})
            assert page.status_code == 404
            assert "__consumer_offsets" not in await json_of(client, "/topics", internal="1")
        await commit(cluster, 2)
        async with opened(cluster.bootstrap_servers) as client:
            page = await client.get("/group/reset", params={"name": "billing", "to": "earliest"})
            assert "This is a plan: nothing was changed" in text_of(page.text)
            assert 'method="post"' not in page.text
        assert await committed(cluster) == 2


# --- safety ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": BASE, "sec-fetch-site": "cross-site"},
        {"origin": BASE, "sec-fetch-site": "same-site"},
    ],
)
async def test_posts_of_other_origins_are_refused(
    cluster: EmbeddedCluster, headers: dict[str, str]
) -> None:
    async with opened(cluster.bootstrap_servers, allow=["reset"]) as client:
        page = await planned(client, to="earliest")
        data = {"csrf": fields_of(page)["csrf"]}
        sent = await client.post(change_of(page), data=data, headers=headers)
        assert sent.status_code == 403
        assert await committed(cluster) == 4
        allowed = await client.post(
            change_of(page), data=data, headers={**FORM, "sec-fetch-site": "same-origin"}
        )
        assert allowed.status_code == 303
    assert await committed(cluster) == 0


async def test_token_of_a_form_is_of_its_session(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers, allow=["reset", "produce"]) as client:
        page = await planned(client, to="earliest")
        path, token = change_of(page), fields_of(page)["csrf"]
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        for data in ({"value": "tea"}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "\u00e4"}):
            sent = await client.post(path, data=data, headers=FORM)
            assert sent.status_code == 403
            assert "Nothing was changed" in text_of(sent.text)
        client.cookies.clear()
        assert (await client.post(path, data={"csrf": token}, headers=FORM)).status_code == 403
        assert (await client.get(path)).status_code == 404  # it is another session's
        other = fields_of((await client.get("/topics/orders/produce")).text)["csrf"]
        assert other != token
        assert (await client.post(path, data={"csrf": other}, headers=FORM)).status_code == 404
        assert (await client.post(path, data={"csrf": token}, headers=FORM)).status_code == 403
        client.cookies.clear()
        sent = await client.post(path, data={"csrf": token}, headers={**FORM, "cookie": cookie})
        assert sent.status_code == 303
    assert await committed(cluster) == 0


async def test_nothing_is_changed_through_get(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers, allow=["reset", "produce", "topics"]) as client:
        page = await planned(client, to="earliest")
        path, fields = change_of(page), fields_of(page)
        for method in ("GET", "HEAD"):
            assert (await client.request(method, path, params=fields)).status_code == 200
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
            sent = await client.request(method, path, params=fields, headers=FORM)
            assert (sent.status_code, sent.headers["allow"]) == (405, "GET, HEAD, POST")
        await client.get("/topics/orders/produce", params={"value": "tea", **fields})
        assert (await json_of(client, path))["state"] == "waiting"
    assert await committed(cluster) == 4
    assert len(cluster.log("orders", 0)) == 10


async def test_body_is_bounded_and_has_to_be_a_form(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        path = "/topics/orders/produce"
        sent = await post(client, path, value="x" * 300_000)
        assert sent.status_code == 413
        assert "Larger messages are for 'aiokafka08 produce'" in text_of(sent.text)
        for content, kind, status in (
            (b"{}", "application/json", 415),
            (b"value=%ff", "application/x-www-form-urlencoded", 400),
            (b"\xff", "application/x-www-form-urlencoded", 400),
            (b"&".join([b"a=1"] * 100), "application/x-www-form-urlencoded", 400),
        ):
            sent = await client.post(path, content=content, headers={**FORM, "content-type": kind})
            assert sent.status_code == status
    assert len(cluster.log("orders", 0)) == 10


# --- produce --------------------------------------------------------------------------------------


async def test_message_is_produced_as_it_was_shown(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        asked = await post(
            client, "/topics/orders/produce", partition="1", key="ann", value="one\r\ntwo"
        )
        shown = text_of((await client.get(asked.headers["location"])).text)
        assert cluster.bootstrap_servers in shown
        assert "produce to topic 'orders', partition 1: key 3 bytes" in shown
        assert not cluster.log("orders", 1)
        caplog.set_level(logging.WARNING, "aiokafka08.console")
        done = await confirmed(client, asked)
        assert "Done. The message has offset 0 in partition 1." in done
        # Confirming again, as by a second click, produces no second one.
        assert (await post_again(client, asked)).status_code == 303
        [message] = cluster.log("orders", 1)
        assert (message.key, message.value) == (b"ann", b"one\ntwo")
    begin, end = [record.getMessage() for record in caplog.records]
    what = "127.0.0.1: produce to topic 'orders', partition 1: key 3 bytes, value 7 bytes"
    assert begin.startswith(f"{what}, on brokers 0 at 127.0.0.1:")
    assert end == f"{what}: done: The message has offset 0 in partition 1"


async def post_again(client: httpx.AsyncClient, asked: httpx.Response) -> httpx.Response:
    token = fields_of((await client.get("/topics/orders/produce")).text)["csrf"]
    return await client.post(asked.headers["location"], data={"csrf": token}, headers=FORM)


async def test_tombstone_headers_and_hex_are_produced(cluster: EmbeddedCluster) -> None:
    path = "/topics/orders/produce"
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        await confirmed(client, await post(client, path, partition="1", key="k", null="1"))
        asked = await post(client, path, partition="1", value="6b ff", **{"as": "hex"})
        await confirmed(client, asked)
        asked = await post(client, path, partition="1", value="tea", headers="a=1\nb=2")
        await confirmed(client, asked)
        asked = await post(client, path, value="by key", key="ann")
        assert "topic 'orders', by key" in await confirmed(client, asked)
    tombstone, binary, embedded, *_ = cluster.log("orders", 1)
    assert (tombstone.key, tombstone.value) == (b"k", None)
    assert (binary.key, binary.value) == (None, b"k\xff")
    assert extract(embedded.value or b"") == (b"tea", (("a", b"1"), ("b", b"2")))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"partition": "7"}, "has no partition 7"),
        ({"partition": "x"}, "partition='x': expected a number"),
        ({"value": "tea", "null": "1"}, "a null value has no text"),
        ({"headers": "a=1", "null": "1"}, "no headers"),
        ({"value": "zz", "as": "hex"}, "value='zz': expected hexadecimal digits"),
    ],
)
async def test_wrong_message_is_refused_with_what_was_typed(
    cluster: EmbeddedCluster, fields: dict[str, str], text: str
) -> None:
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        sent = await post(client, "/topics/orders/produce", key="typed", **fields)
        assert sent.status_code in (400, 409)
        assert text in text_of(sent.text)
        assert 'value="typed"' in sent.text


async def test_hostile_texts_are_escaped_on_each_page_of_a_change(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        for payload in PAYLOADS:
            fields = {"key": payload, "value": payload, "headers": f"{payload.split('=')[0]}=1"}
            asked = await post(client, "/topics/orders/produce", partition="1", **fields)
            await confirmed(client, asked)
            wrong = await post(client, "/topics/orders/produce", partition=payload, **fields)
            text_of(wrong.text)


async def test_change_that_takes_long_goes_on_and_is_shown_when_done(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_PATIENCE_S", 0.0)
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        asked = await post(client, "/topics/orders/produce", partition="1", value="tea")
        assert "It is being carried out" in await confirmed(client, asked)

        async def is_done() -> bool:
            return (await json_of(client, asked.headers["location"]))["state"] == "done"

        await eventually(is_done)
    assert [message.value for message in cluster.log("orders", 1)] == [b"tea"]


async def test_running_change_is_shown_however_many_are_drafted_after_it(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(changes, "_MOST", 2)
    cluster.fault(ProduceRequest, then=Close(), times=None)
    async with opened(cluster.bootstrap_servers, allow=["produce"]) as client:
        asked = await post(client, "/topics/orders/produce", value="tea")
        await confirmed(client, asked)
        for _ in range(3):
            await post(client, "/topics/orders/produce", value="coffee")
        assert (await json_of(client, asked.headers["location"]))["state"] == "running"
        cluster.clear_faults()


async def test_change_that_a_stop_interrupts_is_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(changes, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(changes, "_STOP_S", 0.0)
    async with AsyncExitStack() as exits:
        async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster:
            client = await exits.enter_async_context(
                opened(cluster.bootstrap_servers, allow=["produce"])
            )
            asked = await post(client, "/topics/orders/produce", value="tea")
        # The brokers are away: the change waits for them.
        assert "It is being carried out" in await confirmed(client, asked)
    assert "failed: The console was stopped meanwhile" in caplog.text


# --- reset ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "offset"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 10),
        ({"to": "offset", "value": "7"}, 7),
        ({"to": "offset", "value": "99"}, 10),
        ({"to": "shift", "value": "-3"}, 1),
        ({"to": "shift", "value": "2", "topic": "orders"}, None),
        ({"to": "time", "value": "-1h"}, 0),
    ],
)
async def test_group_is_reset_to_its_plan(
    cluster: EmbeddedCluster, query: dict[str, str], offset: int | None
) -> None:
    async with opened(cluster.bootstrap_servers, allow=["reset"]) as client:
        page = await planned(client, **query)
        if offset is None:  # nothing is committed in orders/1, which the topic has too
            assert "orders/1 can&#39;t be shifted" in page
            return
        data = await json_of(client, "/group/reset", name="billing", **query)
        assert [one["new"] for one in data["plan"]] == [offset]
        assert "They will go on from the new offsets" in page
        assert "No offset is committed for orders/1: not moved" in page
        # The messages have no timestamps, so a time finds their segment.
        assert [one["by_segment"] for one in data["plan"]] == [query["to"] == "time"]
        assert await committed(cluster) == 4
        token = {"csrf": fields_of(page)["csrf"]}
        done = await client.post(change_of(page), data=token, headers=FORM)
        shown = text_of((await client.get(done.headers["location"])).text)
        assert "Done. 1 offset committed." in shown
    assert await committed(cluster) == offset


async def test_plan_that_no_longer_holds_is_refused(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    servers = cluster.bootstrap_servers
    async with (
        opened(servers, allow=["reset"]) as client,
        AIOKafkaConsumer(
            bootstrap_servers=servers, group_id="billing", enable_auto_commit=False
        ) as consumer,
    ):

        async def refused(change: Callable[[], Awaitable[object]]) -> str:
            page = await planned(client, to="earliest")
            await change()
            data = {"csrf": fields_of(page)["csrf"]}
            sent = await client.post(change_of(page), data=data, headers=FORM)
            return text_of((await client.get(sent.headers["location"])).text)

        async def join() -> None:
            consumer.subscribe(["orders"])
            await eventually(has_partitions)

        async def has_partitions() -> bool:
            await consumer.getmany(timeout_ms=50)
            return bool(consumer.assignment())

        moved = await refused(lambda: commit(cluster, 6))
        assert "plan no longer holds: orders/0: committed is 6, not 4. Plan again" in moved
        assert "group 'billing' is live" in await refused(join)
        page = await planned(client, to="earliest")
        assert "group &#39;billing&#39; is live" in page
        assert "/changes/" not in page
    assert await committed(cluster) == 6
    assert "reset group 'billing' in kafka: orders/0 4 → 0: failed: nothing was" in caplog.text


async def test_wrong_target_is_an_error_on_the_page(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers, allow=["reset"]) as client:
        for query, text in (
            ({"to": "offset", "value": "x"}, "value='x': expected a number"),
            ({"to": "time", "value": "x"}, "to-datetime='x': expected a time"),
            ({"to": "<b>"}, "expected one of earliest, latest"),
            ({"to": "earliest", "topic": "nothing"}, "nothing"),
        ):
            page = await client.get("/group/reset", params={"name": "billing", **query})
            assert page.status_code in (400, 409)
            assert text in text_of(page.text)


# --- the cluster ----------------------------------------------------------------------------------


async def test_change_of_another_cluster_is_refused() -> None:
    topics = {"orders": 2}
    async with AsyncExitStack() as exits:
        async with EmbeddedCluster(version="0.10", topics=topics) as cluster:
            port = int(cluster.bootstrap_servers.rpartition(":")[2])
            client = await exits.enter_async_context(
                opened(cluster.bootstrap_servers, allow=["produce"])
            )
            asked = await post(client, "/topics/orders/produce", value="tea")
        # Another address of the same port makes another cluster id.
        async with EmbeddedCluster(
            version="0.10", port=port, advertised_host="localhost", topics=topics
        ) as other:
            done = await confirmed(client, asked)
            assert "nothing was changed: this was confirmed for" in done
            assert not other.log("orders", 0)
            assert not other.log("orders", 1)


async def test_topics_without_zookeeper_say_so_in_place_of_forms(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers, allow=["topics"]) as client:
        for path in ("/create-topic", "/topics/orders/change"):
            page = (await client.get(path)).text
            assert "Topics are changed through ZooKeeper on all releases" in text_of(page)
            assert "<form" not in page


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.8.0", "Brokers of 0.8.0 have no settings of topics"),
        ("0.8.0", "Brokers of 0.8.0 and 0.8.1 can't delete topics"),
        ("0.8.1", "Brokers of 0.8.0 and 0.8.1 can't delete topics"),
    ],
)
async def test_what_a_line_cannot_do_stands_in_place_of_its_form(version: str, text: str) -> None:
    async with EmbeddedCluster(version=version, topics={"orders": 1}) as cluster:
        options: dict[str, Any] = {"allow": ["topics"], "zookeeper_connect": "127.0.0.1:1"}
        async with opened(cluster.bootstrap_servers, **options) as client:
            page = (await client.get("/topics/orders/change")).text
            assert text in text_of(page)
            forms = {"grow", "configure"} if version == "0.8.1" else {"grow"}
            assert set(re.findall(r'name="do" value="(\w+)"', page)) == forms


async def test_group_of_0_8_without_zookeeper_says_so_in_place_of_the_form() -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"tea"])
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="billing",
            enable_auto_commit=False,
            offsets_storage="kafka",
        ) as consumer:
            consumer.assign([ORDERS])
            await consumer.commit({ORDERS: 1})
        async with opened(cluster.bootstrap_servers, allow=["reset"]) as client:
            page = await planned(client, to="earliest")
            assert "Only ZooKeeper knows the members of groups of 0.8" in page
            assert "<form" not in page


# --- who ------------------------------------------------------------------------------------------


async def test_user_is_named_by_a_trusted_proxy_only() -> None:
    network = [ipaddress.ip_network("10.0.0.0/24")]
    behind = Admission(auth_header="X-Remote-User", trusted_proxies=network)
    for access, peer, who in (
        (behind, "10.0.0.7", "'ann' at 10.0.0.7"),
        (behind, "10.0.1.7", "10.0.1.7"),
        (Admission(token="a-token-of-some-length"), "10.0.0.7", "10.0.0.7"),
        (Admission(authorize=lambda request: True), "10.0.0.7", "10.0.0.7"),
    ):
        headers = [(b"x-remote-user", b"ann"), (b"x-forwarded-for", b"203.0.113.5")]
        scope = {"type": "http", "headers": headers, "client": (peer, 4711)}
        assert viewer_of(scope, access) == who


async def test_form_is_of_the_user_that_opened_it(cluster: EmbeddedCluster) -> None:
    """A form that one user has opened isn't posted by another one in the same browser."""
    network = [ipaddress.ip_network("127.0.0.1")]
    access = Admission(auth_header="X-Remote-User", trusted_proxies=network)
    records: list[str] = []
    console = make_console(
        {"bootstrap_servers": cluster.bootstrap_servers},
        access,
        title=None,
        interval_s=1.0,
        allowed=["reset"],
        record=records.append,
    )
    async with console, client_of(console) as client:
        client.headers["x-remote-user"] = "ann"
        await eventually(lambda: is_ready(client))
        page = await planned(client, to="earliest")
        data = {"csrf": fields_of(page)["csrf"]}
        bob = {**FORM, "x-remote-user": "bob"}
        assert (await client.post(change_of(page), data=data, headers=bob)).status_code == 403
        assert records == []
        assert (await client.post(change_of(page), data=data, headers=FORM)).status_code == 303
    assert [text.partition(": ")[0] for text in records] == ["'ann' at 127.0.0.1"] * 2


async def test_mounted_console_changes_what_authorize_admits(cluster: EmbeddedCluster) -> None:
    def may(request: Request) -> bool:
        user = request.headers.get("x-user")
        return user == "ann" or (user == "bob" and request.method == "GET")

    console = app(
        bootstrap_servers=cluster.bootstrap_servers,
        interval_s=1.0,
        allow=["reset"],
        authorize=may,
    )
    service = Starlette(routes=[Mount("/kafka", console)])
    transport = httpx.ASGITransport(service)
    async with console, httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        client.headers["x-user"] = "bob"

        async def is_read() -> bool:
            return (await client.get("/kafka/")).status_code == 200

        await eventually(is_read)
        page = await client.get("/kafka/group/reset", params={"name": "billing", "to": "latest"})
        path, data = change_of(page.text), {"csrf": fields_of(page.text)["csrf"]}
        assert path.startswith("/kafka/changes/")
        assert (await client.post(path, data=data, headers=FORM)).status_code == 403
        assert await committed(cluster) == 4
        client.headers["x-user"] = "ann"
        done = await client.post(path, data=data, headers=FORM)
        assert (done.status_code, done.headers["location"]) == (303, path)
        outcome = (await client.get(path)).text
        assert 'href="/kafka/group?name=billing' in outcome
    assert await committed(cluster) == 10
