"""Messages of a topic: positions, filters and bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from aiokafka08._core.ranges.range_router import open_range_router
from aiokafka08._tools.console import pages
from aiokafka08._tools.console.message_search import (
    LIMIT_S,
    MessagePage,
    MessageQuery,
    search_messages,
)
from aiokafka08._tools.console.message_text import (
    JsonPart,
    PageText,
    indent_json,
    json_part,
    show_bytes,
)
from aiokafka08.embedded_headers import embed
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests.console.consoles import json_of, opened, text_of

HOUR_MS = 3_600_000


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Two partitions with 100 messages each, of a minute each."""
    async with EmbeddedCluster(version="0.10", topics={"orders": 2}) as made:
        for number in range(100):
            for partition in (0, 1):
                made.append(
                    "orders",
                    partition,
                    [b"order %d/%d" % (partition, number)],
                    keys=[b"k%d" % (number % 10)],
                    timestamp_ms=HOUR_MS + number * 60_000 + partition,
                )
        yield made


async def search(
    cluster: EmbeddedCluster, query: MessageQuery, *, limit_s: float = LIMIT_S
) -> MessagePage:
    network = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "t"}
    async with open_range_router(network) as router:
        return await search_messages(router, query, limit_s=limit_s)


def places(page: MessagePage) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in page.messages]


async def test_newest_messages_of_all_partitions_come_first(cluster: EmbeddedCluster) -> None:
    page = await search(cluster, MessageQuery("orders", count=6))
    assert places(page) == [(1, 99), (0, 99), (1, 98), (0, 98), (1, 97), (0, 97)]
    assert (page.newest_first, page.scanned, page.stopped, page.start) == (True, 6, None, "-3")


async def test_time_zero_is_a_time() -> None:
    async with EmbeddedCluster(version="0.10", topics={"orders": 2}) as cluster:
        cluster.append("orders", 0, [b"later"], timestamp_ms=5)
        cluster.append("orders", 1, [b"first"], timestamp_ms=0)
        page = await search(cluster, MessageQuery("orders"))
        assert places(page) == [(0, 0), (1, 0)]


async def test_search_goes_on_where_it_stopped_and_reads_each_message_once(
    cluster: EmbeddedCluster,
) -> None:
    start, seen, pages = "beginning", [], 0
    while True:
        page = await search(cluster, MessageQuery("orders", start=start, count=70))
        seen += places(page)
        pages += 1
        if page.next_start is None:
            break
        assert page.stopped == "70 messages found"
        start = page.next_start
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(100)]
    assert pages == 3


@pytest.mark.parametrize(
    ("start", "partition", "first", "count"),
    [
        ("beginning", 1, (1, 0), 50),
        ("97", None, (0, 97), 6),
        ("-5", 0, (0, 99), 5),
        ("+98", 1, (1, 98), 2),
        ("1970-01-01T02:30:00Z", None, (0, 90), 20),
        ("@9000000", None, (0, 90), 20),
        ("0=99,1=98", None, (1, 98), 3),
        ("end", None, None, 0),
    ],
)
async def test_positions_are_those_of_consume(
    cluster: EmbeddedCluster,
    start: str,
    partition: int | None,
    first: tuple[int, int] | None,
    count: int,
) -> None:
    page = await search(cluster, MessageQuery("orders", partition, start))
    assert len(page.messages) == count
    assert next(iter(places(page)), None) == first


async def test_filters_look_at_each_message_and_say_how_many(cluster: EmbeddedCluster) -> None:
    page = await search(cluster, MessageQuery("orders", start="beginning", contains="/77"))
    assert places(page) == [(0, 77), (1, 77)]
    assert (page.scanned, page.stopped) == (200, None)
    assert page.scanned_bytes == sum(
        len(b"order %d/%d" % (one, number)) + 2 for one in (0, 1) for number in range(100)
    )
    page = await search(cluster, MessageQuery("orders", 0, "beginning", key="k3", contains="3"))
    assert len(page.messages) == 10
    page = await search(cluster, MessageQuery("orders", 0, "-10", key="k3"))
    assert places(page) == [(0, 93)]
    page = await search(cluster, MessageQuery("orders", 0, "beginning", key="k"))
    assert (page.messages, page.scanned) == ([], 100)
    page = await search(cluster, MessageQuery("orders", 0, "beginning", count=2, key="k3"))
    assert (places(page), page.stopped) == ([(0, 3), (0, 13)], "2 messages found")
    assert page.next_start == "0=14"


async def test_fields_and_headers_are_filtered_and_shown(cluster: EmbeddedCluster) -> None:
    order = b'{"id": %d, "items": [{"sku": "tea"}]}'
    traced = embed(order % 18, [("trace", b"<b>17</b>"), ("kind", b"x")])
    cluster.append("orders", 0, [order % 17, traced])
    cluster.append("orders", 0, [order % 17 + b" " * 1_000_000], codec=Codec.GZIP)
    async with opened(cluster.bootstrap_servers) as client:
        path, query = "/topics/orders/messages", {"from": "beginning"}

        async def offsets(**filters: str) -> list[int]:
            page = await json_of(client, path, **query, **filters)
            assert page["scanned"] == 203
            return [one["offset"] for one in page["messages"]]

        assert await offsets(field="items[0].sku=tea") == [100, 101]
        assert await offsets(field="$.id=17", header="") == [100]
        assert await offsets(field="id=^1") == []  # without `regex` it is a text
        assert await offsets(field="id=^1", regex="1") == [100, 101]
        assert await offsets(header="trace", contains="tea") == [101]
        assert await offsets(header="trace=^<b>", field="id=18", regex="1") == [101]
        assert await offsets(header="trace=x") == []
        page = await client.get(path, params={**query, "field": "id=18"})
        text = " ".join(text_of(page.text).split())
        assert "Not searched for the field: 1 value of more than 1 MB" in text
        assert '{"id": 18, "items": [{"sku": "tea"}]}' in text
        assert "2 headers" in text
        assert 'title="trace, kind"' in page.text
        assert 'name="field" value="id=18"' in page.text
        assert "field=id%3D18" in page.text  # of the links to other positions, and to the live view
        for name, wrong in (("field", "a..b=1"), ("header", "=x")):
            refused = await client.get(path, params={name: wrong})
            assert (refused.status_code, f"{name}=" in refused.text) == (400, True)


async def test_hidden_fields_and_headers_are_not_found(cluster: EmbeddedCluster) -> None:
    cluster.append("orders", 0, [b'{"card": {"number": 4111}}', embed(b"x", [("pin", b"7")])])
    path = "/topics/orders/messages"
    async with opened(cluster.bootstrap_servers, mask=["orders=card.number"]) as client:
        for filters in ({"field": "card.number=4111"}, {"header": "pin"}, {"contains": "4111"}):
            page = await json_of(client, path, **{"from": "100", **filters})
            assert (page["messages"], page["scanned"]) == ([], 2)


async def test_search_ends_in_time_and_keeps_what_was_found() -> None:
    async with EmbeddedCluster(version="0.10", brokers=2, topics={"orders": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("orders", partition, [b"tea"] * 10)
        cluster.fault(
            FetchRequest,
            then=Hang(),
            times=None,
            where=lambda request: any(
                one.partition == 1 for topic in request.topics for one in topic.partitions
            ),
        )
        page = await search(cluster, MessageQuery("orders", start="beginning"), limit_s=1.0)
    assert places(page) == [(0, offset) for offset in range(10)]
    assert (page.stopped, page.next_start) == ("it took 1 s", "0=10,1=0")


async def test_search_ends_after_64_mb(cluster: EmbeddedCluster) -> None:
    for _ in range(9):
        cluster.append("orders", 0, [bytes(1_000_000)] * 8, codec=Codec.SNAPPY)
    query = MessageQuery("orders", 0, "100", contains="nothing")
    page = await search(cluster, query, limit_s=60.0)
    assert (page.stopped, page.scanned, page.next_start) == ("64 MB were read", 64, "0=164")


async def test_compressed_messages_are_unpacked_up_to_16_mb(cluster: EmbeddedCluster) -> None:
    cluster.append("orders", 0, [bytes(17 * 1024 * 1024)], codec=Codec.GZIP)
    cluster.append("orders", 1, [bytes(15 * 1024 * 1024)], codec=Codec.GZIP)
    page = await search(cluster, MessageQuery("orders", start="100"), limit_s=60.0)
    assert places(page) == [(1, 100)]
    [note] = page.notes
    assert "more than 16777216 bytes once decompressed" in note


async def test_searches_have_one_large_compressed_message_open(cluster: EmbeddedCluster) -> None:
    for partition in (0, 1):
        cluster.append("orders", partition, [bytes(1024 * 1024)] * 4, codec=Codec.GZIP)
    unpacking = asyncio.Lock()
    network = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "t"}
    async with open_range_router(network) as router:

        async def found(limit_s: float) -> int:
            query = MessageQuery("orders", start="100")
            page = await search_messages(router, query, limit_s=limit_s, unpacking=unpacking)
            return len(page.messages)

        async with unpacking:  # another search has one open
            assert await found(0.5) == 0
        assert list(await asyncio.gather(found(30.0), found(30.0))) == [8, 8]
        assert not unpacking.locked()


async def test_partition_without_leader_is_named(cluster: EmbeddedCluster) -> None:
    async with EmbeddedCluster(version="0.8.2", brokers=2, topics={"orders": 2}) as other:
        other.append("orders", 0, [b"tea"])
        other.kill(1, then="leaderless")
        page = await search(other, MessageQuery("orders"))
        assert places(page) == [(0, 0)]
        assert page.notes == ["Not read, because they have no leader: partitions 1"]


async def test_damage_is_named_and_the_rest_is_shown(cluster: EmbeddedCluster) -> None:
    cluster.append_raw("orders", 1, b"\0" * 8 + b"\0\0\0\x20" + b"\xff" * 32)
    page = await search(cluster, MessageQuery("orders", start="99"))
    assert places(page) == [(0, 99), (1, 99)]
    assert len(page.notes) == 1
    assert "partition 1" in page.notes[0]
    assert page.stopped == "not all could be read"


async def test_deleted_and_compressed_messages(cluster: EmbeddedCluster) -> None:
    cluster.append("orders", 0, [b"packed"] * 5, codec=Codec.GZIP)
    cluster.delete_before("orders", 0, 50)
    page = await search(cluster, MessageQuery("orders", 0, "102"))
    assert places(page) == [(0, 102), (0, 103), (0, 104)]
    cluster.remove("orders", 0, [60, 61])
    async with opened(cluster.bootstrap_servers) as client:
        shown = await client.get("/topics/orders/messages/0/60")
        assert "There is no message at offset 60" in shown.text
        assert (await json_of(client, "/topics/orders/messages/0/60"))["offset"] == 62


async def test_json_has_the_fields_of_consume(cluster: EmbeddedCluster) -> None:
    cluster.append("orders", 0, [b"\xff\xfe", None], keys=[None, b""])
    async with opened(cluster.bootstrap_servers) as client:
        data = await json_of(client, "/topics/orders/messages", **{"from": "99", "partition": "0"})
    assert data["messages"] == [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 99,
            "timestamp": HOUR_MS + 99 * 60_000,
            "timestamp_type": 0,
            "key": "k9",
            "value": "order 0/99",
        },
        *(
            {
                "topic": "orders",
                "partition": 0,
                "offset": offset,
                "timestamp": None,
                "timestamp_type": None,
                "key": key,
                "value": value,
            }
            for offset, key, value in ((100, None, {"base64": "//4="}), (101, "", None))
        ),
    ]


async def test_a_page_shows_500_messages_at_most(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        responses: list[httpx.Response] = [
            await client.get("/topics/orders/messages?count=100000"),
            await client.get("/topics/orders/messages?from=-100000"),
        ]
    assert [one.status_code for one in responses] == [200, 200]
    assert "a page shows 500 messages at most" in responses[1].text


async def test_messages_that_could_not_be_read_are_not_called_missing() -> None:
    async with (
        EmbeddedCluster(version="0.10", brokers=2, topics={"orders": 2}) as cluster,
        opened(cluster.bootstrap_servers) as client,
    ):
        cluster.append("orders", 0, [b"tea"])
        cluster.kill(1, then="leaderless")
        leaderless = await client.get("/topics/orders/messages/1/0")
        cluster.fault(FetchRequest, then=Hang(), times=None)
        hanging = await client.get("/topics/orders/messages/0/0")
    for page, why in ((leaderless, "they have no leader"), (hanging, "it took 8 s")):
        assert page.status_code == 503
        assert why in text_of(page.text)
        assert "the log ends before it" not in page.text


async def test_pages_of_large_messages_are_bounded(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LIMIT_S", 300.0)  # a busy machine may need more than the default
    deep = b"[" * 39 + b"1," * 8000 + b"1" + b"]" * 39
    controls = b"\x01" * 900_000
    for number in range(50):
        cluster.append("orders", 0, [deep if number % 2 else controls], keys=[b"<" * 16_000])
    cluster.append("orders", 0, [b"[" * 39 + b"1," * 450_000 + b"1" + b"]" * 39])
    threads = set()
    show = PageText.show

    def traced(*arguments: Any) -> Any:
        threads.add(threading.current_thread())
        return show(*arguments)

    monkeypatch.setattr(PageText, "show", traced)
    async with opened(cluster.bootstrap_servers) as client:
        for form in ("auto", "text", "hex"):
            path = f"/topics/orders/messages?partition=0&as={form}"
            page = await client.get(f"{path}&from=100")
            assert 1_500_000 < len(page.text) < 3_000_000
            assert page.text.count('title="this message"') == 50
            page = await client.get(f"/topics/orders/messages/0/150?as={form}")
            assert 900_000 < len(page.text) < 3_000_000
        listed = await client.get("/topics/orders/messages?partition=0&from=100&format=json")
        assert 2_000_000 < len(listed.content) < 9_000_000
        message = listed.json()["messages"][0]
        assert len(message["value"]) + message["value_cut"] == 900_000
        assert "key_cut" not in message
        assert "value_cut" not in listed.json()["messages"][1]
        whole = await json_of(client, "/topics/orders/messages/0/100")
        assert whole["value"] == controls.decode()
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    "path",
    [
        f"/0/{'9' * 5000}",
        f"/{'9' * 5000}/0",
        "/0/9223372036854775808",
        "/2147483648/0",
        "/0/x",
        "/0/-1",
        "/0/\u0661",
    ],
)
async def test_numbers_of_no_message_are_404(cluster: EmbeddedCluster, path: str) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        page = await client.get(f"/topics/orders/messages{path}")
        assert page.status_code == 404


@pytest.mark.parametrize("number", ["{}", "-{}", "+{}", "-{}d", "@{}", "0={}", "-{}ms", "{}-01-01"])
async def test_long_numbers_in_the_query_are_400(cluster: EmbeddedCluster, number: str) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        for digits in ("9" * 5000, "9" * 400):
            query = {"from": number.format(digits)}
            page = await client.get("/topics/orders/messages", params=query)
            assert page.status_code == 400, number
        for name in ("count", "partition"):
            query = {name: number.format("9" * 5000)}
            page = await client.get("/topics/orders/messages", params=query)
            assert page.status_code == 400, number
        for name in ("page", "rows"):
            query = {name: number.format("9" * 5000)}
            assert (await client.get("/topics", params=query)).status_code == 200


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "form", "expected", "text"),
    [
        (None, "auto", "null", "null"),
        (b"", "auto", "text", ""),
        (b"tea", "auto", "text", "tea"),
        ("Köln\t\x00\u202e".encode(), "text", "text", "Köln\t\\x00\\u202e"),
        (b'{"a":[1,{}]}', "auto", "json", '{\n  "a": [\n    1,\n    {}\n  ]\n}'),
        (b'{"a":[1,{}]}', "text", "text", '{"a":[1,{}]}'),
        (b"{nothing}", "json", "text", "{nothing}"),
        (b"\xff\xfe", "auto", "hex", "00000000  ff fe" + " " * 43 + " .."),
        (b"\xff", "text", "text", "\ufffd"),
        (b"AB", "hex", "hex", "00000000  41 42" + " " * 43 + " AB"),
    ],
)
def test_forms(data: bytes | None, form: str, expected: str, text: str) -> None:
    shown = show_bytes(data, form, 1000)
    assert (shown.form, shown.text) == (expected, text)
    assert shown.size == (-1 if data is None else len(data))


def test_json_keeps_each_digit_and_is_bounded() -> None:
    assert indent_json('{"x":1.10,"y":1e400,"z":12345678901234567890123}', 1000) == (
        '{\n  "x": 1.10,\n  "y": 1e400,\n  "z": 12345678901234567890123\n}'
    )
    assert indent_json('{"a,b": "}:{\\"[", "c": []}', 1000) == (
        '{\n  "a,b": "}:{\\"[",\n  "c": []\n}'
    )
    assert indent_json("[" * 41 + "]" * 41, 1000) is None
    assert indent_json("[" * 100_000, 1000) is None
    assert indent_json("17", 1000) is None


def test_long_values_are_cut_between_characters() -> None:
    shown = show_bytes("ö".encode() * 100, "auto", 99)
    assert (shown.form, shown.text, shown.cut, shown.size) == ("text", "ö" * 49, 101, 200)
    assert show_bytes(b"\xff" * 100, "auto", 10).cut == 90
    part = json_part("ö".encode() * 1000, 1999)
    assert part == JsonPart(f'"{"ö" * 499}"', 1002)


def test_json_that_indentation_makes_long_is_shown_as_it_is() -> None:
    deep = b"[" * 39 + b"1," * 8000 + b"1" + b"]" * 39
    shown = show_bytes(deep, "json", 16 * 1024)
    assert (shown.form, shown.text, shown.cut) == ("text", deep.decode(), 0)
    assert indent_json("[1,2]", 12) == "[\n  1,\n  2\n]"
    assert indent_json("[1,2]", 11) is None
