"""`-s avro -r URL`: values in Confluent's wire format, with the schemas of a registry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from aiokafka08._tools.records.avro import SchemaRegistry
from aiokafka08.errors import KafkaConnectionError
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.support.schema_registry import Registry, schema_registry
from tests.support.schema_registry import avro_message as message


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as server:
        yield server


TEA = message(7, {"what": "tea", "count": 3})
MILK = message(7, {"what": "milk", "count": None})


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_avro_is_shown_as_json(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, registry: Registry
) -> None:
    kafka_cluster.append("orders", 0, [TEA, MILK, None], keys=[b"\0\0\0\1", None, None])
    at = ["-b", kafka_cluster.bootstrap_servers, "-r", registry.url + "/", "-e"]
    flags = ["-s", "key=i", "-s", "value=avro", "--format", "jsonl"]
    done = cli("consume", "orders", *at, *flags)
    assert (done.code, done.err) == (0, "")
    tea, milk = {"what": "tea", "count": {"int": 3}}, {"what": "milk", "count": None}
    records = [json.loads(line) for line in done.lines]
    assert [(one["key"], one["value"]) for one in records] == [
        ("1", tea),
        (None, milk),
        (None, None),
    ]
    done = cli("kcat", "-C", "-t", "orders", *at, "-q", "-s", "value=avro", "-J")
    assert [json.loads(line)["payload"] for line in done.lines] == [tea, milk, None]
    done = cli("consume", "orders", *at, "-s", "value=avro", "-f", "%s;")
    assert [json.loads(one) for one in done.out.split(b";")[:2]] == [tea, milk]
    assert len(registry.paths) == 3, "a command requests a schema once"


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"tea", "offset 0: not Avro with a schema id: 3 bytes"),
        (message(8, {"what": "tea"}), "offset 0: the schema registry has no schema 8"),
        (TEA[:-2], "offset 0: the bytes don't fit their schema"),
    ],
)
def test_wrong_avro_is_named(
    value: bytes, text: str, cli: RunCommand, kafka_cluster: EmbeddedCluster, registry: Registry
) -> None:
    kafka_cluster.append("orders", 0, [value])
    at = ["-b", kafka_cluster.bootstrap_servers, "-r", registry.url, "-s", "avro", "-e"]
    done = cli("consume", "orders", *at, "--format", "jsonl")
    assert (done.code, done.out) == (1, b"")
    assert text in done.err
    shown = json.loads(cli("kcat", "-C", "-t", "orders", *at, "-J").out)
    assert shown["payload"] is None
    assert text.partition(": ")[2] in shown["payload_error"]


def test_response_in_single_bytes_is_given_up(registry: Registry) -> None:
    registry.pause_s = 0.05
    with pytest.raises(KafkaConnectionError, match="no answer for schema 7: timed out"):
        SchemaRegistry(registry.url).request(7, 1.0)


def test_password_of_a_registry_is_in_no_error() -> None:
    registry = SchemaRegistry("http://ann:secret@127.0.0.1:1/path")
    with pytest.raises(
        KafkaConnectionError, match=re.escape("'http://127.0.0.1:1/path'")
    ) as caught:
        registry.request(7, 1.0)
    assert "secret" not in str(caught.value)


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize(("url", "code"), [("http://127.0.0.1:1", 1), ("not a url", 2)])
def test_registry_out_of_reach_is_named(
    url: str, code: int, cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, [TEA])
    at = ["-b", kafka_cluster.bootstrap_servers, "-r", url, "-s", "avro", "-e"]
    done = cli("consume", "orders", *at)
    assert (done.code, done.out) == (code, b"")
    assert f"schema registry {url!r}" in done.err
    assert done.err.count("\n") == 1
