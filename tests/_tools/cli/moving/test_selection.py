"""`consume --grep` and `--key`: which records are written, counted and committed."""

from __future__ import annotations

import pytest

from aiokafka08._tools.records.selection import RecordFilter
from aiokafka08.embedded_headers import embed
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand

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
