"""Avro on the pages of messages, with the schemas of a registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from aiokafka08._tools.console import pages
from aiokafka08._tools.console.message_text import FORMS
from aiokafka08._tools.records import avro
from aiokafka08._tools.records.avro_records import AVRO_FORMS
from aiokafka08.console import app
from aiokafka08.embedded_headers import embed
from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.protocol.compression import Codec
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, cli
from tests.console.consoles import PAYLOADS, client_of, is_ready, json_of, opened, text_of
from tests.console.test_live_messages import View, viewed
from tests.support.schema_registry import Registry, avro_message, schema_registry
from tests.support.waiting import eventually, until

__all__ = ["cli"]  # the fixture

PATH = "/topics/orders/messages"
CARD: dict[str, Any] = {
    "type": "record",
    "name": "Card",
    "namespace": "bank",
    "fields": [
        {"name": "number", "type": ["null", "string"]},
        {"name": "holder", "type": "string"},
    ],
}
PAYMENT: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "long"}, {"name": "card", "type": ["null", CARD]}],
}
SECRET = "4111111111111111"
TEA = avro_message(7, {"what": "tea", "count": 3})
MILK = avro_message(7, {"what": "café", "count": None})


def payment(number: int) -> bytes:
    return avro_message(8, {"id": number, "card": {"number": SECRET, "holder": "ann"}}, PAYMENT)


def hostile_messages(registry: Registry) -> list[bytes]:
    """Register schemas with hostile names, and return messages: of one each, wrong and right."""
    messages: list[bytes] = []
    fields: list[dict[str, Any]]
    for number, payload in enumerate(PAYLOADS):
        fields = [{"name": payload, "type": ["string", {"type": "enum", "name": "E"}]}]
        registry.add(100 + number, {"type": "record", "name": payload, "fields": fields})
        fields = [{"name": payload, "type": {"type": "map", "values": "string"}}]
        schema = {"type": "record", "name": payload, "fields": fields}
        registry.add(200 + number, schema)
        value = {payload: {payload: payload}}
        messages.append(b"\0\0\0\0" + bytes([100 + number]))
        messages.append(avro_message(200 + number, value, schema))
    return messages


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine nothing is given up."""
    monkeypatch.setattr(avro, "_WAIT_S", 60.0)
    monkeypatch.setattr(pages, "LIMIT_S", 120.0)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as server:
        server.add(8, PAYMENT)
        yield server


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    topics = {"orders": 1, "cards": 1, "hostile": 1}
    async with EmbeddedCluster(version="0.10", topics=topics) as made:
        yield made


async def test_page_shows_what_consume_writes(
    cluster: EmbeddedCluster, registry: Registry, cli: RunCommand
) -> None:
    cluster.append("orders", 0, [TEA, MILK, None], keys=[b"ann", b"", None])
    async with opened(cluster.bootstrap_servers, registry=registry.url) as client:
        page = await json_of(client, PATH, **{"as": "value=avro", "from": "0"})
        download = await client.get(f"{PATH}?as=value%3Davro&format=jsonl&from=0")
        html = await client.get(f"{PATH}?as=value%3Davro")
        message = await client.get(f"{PATH}/0/1?as=value%3Davro")
    at = ("-b", cluster.bootstrap_servers, "-e", "-r", registry.url)
    done = await asyncio.to_thread(
        cli, "consume", "orders", *at, "-s", "value=avro", "--format", "jsonl"
    )
    expected = [json.loads(line) for line in done.lines]
    assert [one["value"] for one in expected] == [
        {"what": "tea", "count": {"int": 3}},
        {"what": "café", "count": None},
        None,
    ]
    assert page["messages"] == expected
    assert [json.loads(line) for line in download.text.splitlines()] == expected
    assert '{"what": "café", "count": null}' in text_of(html.text)
    assert "schema 7" in text_of(html.text)
    assert 'href="/topics/orders/messages/0/0?as=value%3Davro"' in html.text
    assert '"what": "café"' in text_of(message.text)
    assert registry.paths.count("/schemas/ids/7") == 2, "once by the console, once by consume"


async def test_keys_and_fields_are_filtered_as_they_are_shown(
    cluster: EmbeddedCluster, registry: Registry
) -> None:
    cluster.append("orders", 0, [TEA, MILK, TEA], keys=[MILK, TEA, b"ann"])
    async with opened(cluster.bootstrap_servers, registry=registry.url) as client:
        query = {"as": "avro", "from": "0"}
        for more, offsets in (
            ({"field": "count.int=3"}, [0, 2]),
            ({"contains": "café"}, [1]),
            ({"key": '{"what": "tea", "count": {"int": 3}}'}, [1]),
            ({"key": "ann"}, [2]),
        ):
            found = await json_of(client, PATH, **query, **more)
            assert [one["offset"] for one in found["messages"]] == offsets, more
        assert found["messages"][0]["notes"] == [
            "The key isn't shown as Avro: not Avro with a schema id: 3 bytes; expected a zero "
            "byte, four bytes of the id, and data"
        ]


async def test_what_is_not_avro_has_a_note_and_hides_no_other_message(
    cluster: EmbeddedCluster, registry: Registry
) -> None:
    registry.add(9, "int", schemaType="PROTOBUF")
    registry.add(10, {"type": "record"})
    registry.bodies[11] = b"<html>"
    registry.bodies[13] = b'{"schema": "\\"' + b'\\\\\\"' * 100_000 + b'"}'
    registry.bodies[14] = b'{"schema": "' + b"[" * 500 + b"]" * 500 + b'"}'
    registry.add(12, "x" * 2_000_000)
    values = [b"tea", avro_message(6, "x", "string"), TEA[:-2], b"\0\0\0\0\x0a", b"\0\0\0\0\x09"]
    values += [b"\0\0\0\0\x0d", b"\0\0\0\0\x0e"]
    large, last = b"\0\0\0\0\x07" + b"x" * 1_000_001, [TEA, b"\0\0\0\0\x0b"]
    cluster.append("orders", 0, [*values, b"\0\0\0\0\x0c"])
    cluster.append("orders", 0, [large, *last], codec=Codec.GZIP)
    async with opened(cluster.bootstrap_servers, registry=registry.url) as client:
        found = (await json_of(client, PATH, **{"as": "avro", "from": "0"}))["messages"]
        html = (await client.get(f"{PATH}?as=avro&from=0")).text
    texts = [" ".join(one.get("notes", ())) for one in found]
    for text, part in zip(
        texts,
        (
            "not Avro with a schema id: 3 bytes",
            "the schema registry has no schema 6",
            "they end too early",
            "schema 10 isn't valid",
            "schema 9 isn't Avro",
            "schema 13 isn't valid",
            "schema 14 isn't valid: 'nested more than 400 deep'",
            "schema 12 has more than 1 MiB",
            "it has more than 1 MB",
            "",
            f"schema registry '{registry.url}': no answer for schema 11",
        ),
        strict=True,
    ):
        assert part in text
    assert found[9]["value"] == {"what": "tea", "count": {"int": 3}}
    assert found[0]["value"] == "tea"
    assert text_of(html).count("isn't shown as Avro") == 10


async def test_registry_that_fails_is_named_without_its_password(
    cluster: EmbeddedCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "_WAIT_S", 0.5)
    cluster.append("orders", 0, [TEA, payment(1), b"\0\0\0\0\x0b", b"tea"])
    registry.answers.clear()
    url = registry.url.replace("//", "//ann:secret@")
    async with opened(cluster.bootstrap_servers, registry=url) as client:
        for as_ in ("avro", "value=avro"):
            found = (await json_of(client, PATH, **{"as": as_, "from": "0"}))["messages"]
            assert len(found) == 4
            [note] = found[1]["notes"]
            assert f"schema registry '{registry.url}': no answer for schema" in note
            assert "within 0.5 s" in note
    assert len(registry.paths) == 1, "one that doesn't answer isn't asked for each message"


async def test_any_number_of_schemas_is_not_requested(
    cluster: EmbeddedCluster, registry: Registry
) -> None:
    cluster.append("orders", 0, [b"\0\0\0" + n.to_bytes(2, "big") for n in range(1000, 1400)])
    async with opened(cluster.bootstrap_servers, registry=registry.url) as client:
        query = {"as": "avro", "from": "0", "count": "400"}
        found = (await json_of(client, PATH, **query))["messages"]
        assert len(found) == 400
        assert len(registry.paths) == 100
        assert "100 others were within 10 s" in found[-1]["notes"][0]


async def test_live_view_shows_avro(cluster: EmbeddedCluster, registry: Registry) -> None:
    path, query = "/topics/orders/tail/events", "as=value%3Davro&field=what"
    async with viewed(cluster, path, query, registry=registry.url) as view:
        cluster.append("orders", 0, [TEA, b"not Avro", MILK, *[TEA] * 30])
        cluster.append("orders", 0, [b'{"what": 1}'])
        await until(lambda: "shown as Avro" in "".join(view.texts("rows")), timeout_s=60)
        rows = "".join(view.texts("rows"))
        assert "tea" in rows
        assert "not Avro<" not in rows


MASKS = ("cards=card.number", "c*=card", "cards=value", 'cards=card["bank.Card"].number.string')


@pytest.mark.parametrize("mask", MASKS)
async def test_masked_fields_are_nowhere(
    cluster: EmbeddedCluster, registry: Registry, mask: str
) -> None:
    enveloped = embed(payment(2), [("trace", SECRET.encode())])
    damaged = [payment(3)[:-2], b"\0\0\0\0\x63" + SECRET.encode(), SECRET.encode(), payment(4)[5:]]
    values = [payment(1), enveloped, *damaged]
    cluster.append("cards", 0, values)
    forbidden = (SECRET, SECRET.encode().hex(" "), "base64")
    console = app(
        bootstrap_servers=cluster.bootstrap_servers,
        registry=registry.url,
        mask=[mask, "orders=value"],
    )
    async with console, client_of(console) as client:
        await eventually(lambda: is_ready(client))
        queries = [f"as={form.replace('=', '%3D')}" for form in (*FORMS, *AVRO_FORMS)]
        views = [View(console, "/topics/cards/tail/events", query) for query in queries]
        await until(lambda: all(view.texts("state") for view in views), timeout_s=60)
        for query in queries:
            for page in (
                *(f"?from=0&{query}{more}" for more in ("", "&format=json", "&format=jsonl")),
                *(f"/0/{offset}?{query}" for offset in range(len(values))),
                *(f"/0/{offset}?{query}&format=json" for offset in range(len(values))),
            ):
                text = (await client.get(f"/topics/cards/messages{page}")).text
                assert not [one for one in forbidden if one in text], page
            found = await client.get(f"/topics/cards/messages?from=0&contains={SECRET}&{query}")
            assert "None of 6 messages matches." in found.text
        cluster.append("cards", 0, values)
        for view, query in zip(views, queries, strict=True):
            await until(partial(has_rows, view, len(values)), timeout_s=60)
            rows = "".join(view.texts("rows"))
            assert not [one for one in forbidden if one in rows], query
            await view.leave()


def has_rows(view: View, count: int) -> bool:
    return "".join(view.texts("rows")).count("<tr>") >= count


async def test_names_texts_and_errors_of_schemas_are_escaped(
    cluster: EmbeddedCluster, registry: Registry
) -> None:
    cluster.append("hostile", 0, hostile_messages(registry))
    async with opened(cluster.bootstrap_servers, registry=registry.url) as client:
        html = (await client.get("/topics/hostile/messages?as=avro")).text
        text = text_of(html)
        assert "isn't valid" in text
        assert text.count("<script>hacked=1</script>") > 1
        for offset in range(2 * len(PAYLOADS)):
            text_of((await client.get(f"/topics/hostile/messages/0/{offset}?as=avro")).text)


async def test_value_that_grows_without_end_is_bounded(
    cluster: EmbeddedCluster, registry: Registry
) -> None:
    registry.add(20, {"type": "array", "items": "null"})
    symbol = "A" * 100_000
    registry.add(21, {"type": "array", "items": {"type": "enum", "name": "E", "symbols": [symbol]}})
    bombs = [b"\0\0\0\0\x14" + b"\xfe" + b"\xff" * 7 + b"\1", b"\0\0\0\0\x15\xc8\1" + b"\0" * 101]
    cluster.append("orders", 0, [*bombs, TEA])
    async with opened(cluster.bootstrap_servers, registry=registry.url) as client:
        found = (await json_of(client, PATH, **{"as": "avro", "from": "0"}))["messages"]
    assert ["its JSON is too long" in one.get("notes", [""])[0] for one in found] == [
        True,
        True,
        False,
    ]


async def test_form_without_registry_is_an_error(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        page = await client.get(f"{PATH}?as=avro")
        assert page.status_code == 400
        assert "the console has no schema registry" in text_of(page.text)
        assert "avro" not in (await client.get(PATH)).text


@pytest.mark.parametrize("url", ["registry:8081", "ann:secret@registry:8081"])
async def test_wrong_url_of_a_registry_is_named_without_a_password(
    cluster: EmbeddedCluster, url: str
) -> None:
    with pytest.raises(KafkaConfigurationError) as failure:
        async with opened(cluster.bootstrap_servers, registry=url):
            pass
    assert "schema registry 'registry:8081': expected a URL such as" in failure.value.text
    assert "secret" not in failure.value.text
