"""`consume --grep` and `--key`: which records are written, counted and committed."""

from __future__ import annotations

import pytest

from aiokafka08._tools.records.selection import RecordFilter
from aiokafka08.embedded_headers import embed
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.records.sample_records import record

KEYS = [b"a", b"ab", None, b"^a", b"b"]
VALUES = [b"tea", "café\nmilk".encode(), b"\xff\0tea", None, b"TEA"]


@pytest.fixture
def at(kafka_cluster: EmbeddedCluster) -> tuple[str, ...]:
    kafka_cluster.append("orders", 0, VALUES, keys=KEYS)
    return "orders", "-b", kafka_cluster.bootstrap_servers, "-e", "-f", "%o "


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        (["--grep", "tea"], b"0 2 "),
        (["--grep", "(?i)^tea$"], b"0 4 "),
        (["--grep", "é\nm"], b"1 "),
        (["--grep", r"\xff\x00"], b"2 "),
        (["--grep", ""], b"0 1 2 4 "),
        (["--key", "a"], b"0 "),
        (["--key", "^a"], b"0 1 "),
        (["--key", r"^\^a$"], b"3 "),
        (["--key", "^"], b"0 1 3 4 "),
        (["--key", "b", "--grep", "T"], b"4 "),
        (["--grep", "tea", "-c", "1"], b"0 "),
        (["--grep", "(?i)tea", "--from", "1", "-c", "2"], b"2 4 "),
        (["--grep", "tea", "--rate", "1MB/s"], b"0 2 "),
        (["--grep", "nothing"], b""),
    ],
)
def test_records_are_selected_by_key_and_value(
    flags: list[str], offsets: bytes, cli: RunCommand, at: tuple[str, ...]
) -> None:
    assert cli("consume", *at, *flags) == (0, offsets, "")


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize("format", ["raw", "jsonl", "hex", "base64"])
def test_each_format_writes_only_what_was_selected(
    format: str, cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, [b"tea", b"milk", b"teapot"])
    read = ["consume", "orders", "-b", kafka_cluster.bootstrap_servers, "-e", "--format", format]
    lines = cli(*read).lines
    assert cli(*read, "--grep", "tea").lines == [lines[0], lines[2]]


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_value_is_searched_without_its_headers(
    cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    values = [embed(b"milk", [("drink", b"tea")]), embed(b"tea", []), b"\xffdamaged"]
    kafka_cluster.append("orders", 0, values)
    read = ["consume", "orders", "-b", kafka_cluster.bootstrap_servers, "-e", "-f", "%o "]
    done = cli(*read, "--grep", "tea", "-X", "headers=embedded", "-c", "1")
    assert done == (0, b"1 ", "")
    done = cli(*read, "--grep", "tea", "-X", "headers=embedded")
    assert (done.code, done.out, "isn't a whole envelope" in done.err) == (1, b"1 ", True)


ORDERS = [
    b'{"id": 17, "items": [{"sku": "tea"}, {"sku": "milk"}], "paid": true, "note": null}',
    b'{"id": 170, "price": 1.10, "paid": false, "a=b": "x"}',
    embed(b'{"id": "17", "items": [], "more": {"deep": {}}}', [("trace", b"a=b"), ("kind", b"")]),
    b'"17"',
    b"17",
    None,
    b"{not JSON",
    b"[" * 100_000,
    b'{"id": "\\ud800"}',
]


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        (["--field", "id=17"], b"0 2 "),
        (["--field", "id=^17"], b"0 1 2 "),
        (["--field", "id"], b"0 1 2 8 "),
        (["--field", "price=1.1"], b""),
        (["--field", "price=1.10"], b"1 "),
        (["--field", "paid=true"], b"0 "),
        (["--field", "note=null"], b"0 "),
        (["--field", "items.sku=milk"], b"0 "),
        (["--field", "items[0].sku=milk"], b""),
        (["--field", "items"], b"0 2 "),
        (["--field", "more.deep"], b"2 "),
        (["--field", "more.deep="], b""),
        (["--field", '["a=b"]=x'], b"1 "),
        (["--field", "$=17"], b"3 4 "),
        (["--field", "id=17", "--field", "paid=true"], b"0 "),
        (["--header", "trace=a=b"], b"2 "),
        (["--header", "trace=a=b", "-X", "headers=embedded"], b"2 "),
        (["--header", "trace=^b"], b""),
        (["--header", "trace"], b"2 "),
        (["--header", "kind="], b"2 "),
        (["--header", "other"], b""),
        (["--header", "trace", "--field", "id=17", "--grep", "deep"], b"2 "),
    ],
)
def test_records_are_selected_by_fields_and_headers(
    flags: list[str], offsets: bytes, cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, ORDERS)
    read = ["consume", "orders", "-b", kafka_cluster.bootstrap_servers, "-e", "-f", "%o "]
    assert cli(*read, *flags) == (0, offsets, "")


def test_text_without_patterns_is_compared_as_it_is() -> None:
    accept = RecordFilter("^k", "a.b", compiler=None).accepts
    assert accept(record(b"xa.bx", b"^k"))
    assert not accept(record(b"xaxbx", b"^k"))
    assert not accept(record(b"a.b", b"k"))
    assert not accept(record(b"a.b", b"^k\n"))
    assert not accept(record(None, b"^k"))
    assert RecordFilter(fields=["id=^1"], compiler=None).accepts(record(b'{"id": "^1"}'))
    assert not RecordFilter(fields=["id=^1"], compiler=None).accepts(record(b'{"id": "1"}'))


def test_value_longer_than_the_limit_is_counted() -> None:
    only = RecordFilter(fields=["id=1"], json_bytes=9)
    assert only.accepts(record(b'{"id": 1}'))
    assert not only.accepts(record(b'{"id":  1}'))
    assert only.longer == 1


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_group_commits_what_was_read(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 0, [b"tea", b"milk", b"tea", b"water", b"water"])
    server = ("-b", kafka_cluster.bootstrap_servers)
    read = ["consume", "orders", *server, "-g", "g", "-e", "-f", "%o ", "--grep", "tea"]

    def committed() -> int | None:
        found = kafka_cluster.committed("g", "orders", 0)
        return None if found is None else found.offset

    assert (cli(*read, "-c", "1").out, committed()) == (b"0 ", 1)
    assert (cli(*read, "-c", "1").out, committed()) == (b"2 ", 3)
    assert (cli(*read).out, committed()) == (b"", 5)


def test_wrong_regular_expression_is_named() -> None:
    with pytest.raises(IllegalArgumentError, match=r"--grep='\*tea': .*did you mean '\.\*tea'"):
        RecordFilter(None, "*tea")
    with pytest.raises(IllegalArgumentError, match=r"--key='\^\(': "):
        RecordFilter("^(", None)
    for text in ("order..id=17", "=17", "", "a[=1"):
        with pytest.raises(IllegalArgumentError, match=r"--field=.*: expected PATH=VALUE"):
            RecordFilter(fields=[text])
    with pytest.raises(IllegalArgumentError, match=r"--header='=x': expected NAME=VALUE"):
        RecordFilter(headers=["=x"])
    with pytest.raises(IllegalArgumentError, match=r"--field='\^\(': "):
        RecordFilter(fields=["id=^("])
