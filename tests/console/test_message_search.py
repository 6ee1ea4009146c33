"""Messages of a topic: positions, filters and bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from aiokafka08._core.ranges.range_router import open_range_router
from aiokafka08._tools.console.message_search import MessagePage, MessageQuery, search_messages
from aiokafka08._tools.console.message_text import indent_json, show_bytes
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests.console.consoles import json_of, opened

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


async def search(cluster: EmbeddedCluster, query: MessageQuery, **limits: float) -> MessagePage:
    network = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "t"}
    async with open_range_router(network) as router:
        return await search_messages(router, query, **limits)


def places(page: MessagePage) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in page.messages]


async def test_newest_messages_of_all_partitions_come_first(cluster: EmbeddedCluster) -> None:
    page = await search(cluster, MessageQuery("orders", count=6))
    assert places(page) == [(1, 99), (0, 99), (1, 98), (0, 98), (1, 97), (0, 97)]
    assert (page.newest_first, page.scanned, page.stopped, page.start) == (True, 6, None, "-3")


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


async def test_search_ends_in_time_and_keeps_what_was_found(cluster: EmbeddedCluster) -> None:
    cluster.fault(
        FetchRequest,
        then=Hang(),
        times=None,
        where=lambda request: any(
            one.partition == 1 for topic in request.topics for one in topic.partitions
        ),
    )
    page = await search(cluster, MessageQuery("orders", start="beginning"), limit_s=1.0)
    assert {record.partition for record in page.messages} <= {0}
    assert page.stopped == "it took 1 s"
    assert page.next_start is not None


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


async def test_too_many_searches_wait_and_then_say_so(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        responses: list[httpx.Response] = [
            await client.get("/topics/orders/messages?count=100000"),
            await client.get("/topics/orders/messages?from=-100000"),
        ]
    assert [one.status_code for one in responses] == [200, 200]
    assert "a page shows 500 messages at most" in responses[1].text


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
    assert indent_json('{"x":1.10,"y":1e400,"z":12345678901234567890123}') == (
        '{\n  "x": 1.10,\n  "y": 1e400,\n  "z": 12345678901234567890123\n}'
    )
    assert indent_json('{"a,b": "}:{\\"[", "c": []}') == '{\n  "a,b": "}:{\\"[",\n  "c": []\n}'
    assert indent_json("[" * 41 + "]" * 41) is None
    assert indent_json("[" * 100_000) is None
    assert indent_json("17") is None


def test_long_values_are_cut_between_characters() -> None:
    shown = show_bytes("ö".encode() * 100, "auto", 99)
    assert (shown.form, shown.text, shown.cut, shown.size) == ("text", "ö" * 49, 101, 200)
    assert show_bytes(b"\xff" * 100, "auto", 10).cut == 90
