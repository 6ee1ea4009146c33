"""Headers on the command line: `-H`, `%h`, `kcat -J` and `jsonl`, beside Debian's kcat."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from aiokafka08.embedded_headers import embed
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.test_kcat import run_kcat, run_ours
from tests.brokers.fixtures import BrokerClusters

EMBEDDED = ("-X", "headers=embedded")
HEADERS = ("-H", "a=b", "-H", "ü=x=y", "-H", "empty=")
PAIRS = [("a", b"b"), ("ü", b"x=y"), ("empty", b"")]
OUTPUTS = (["-f", r"%s [%h]\n"], ["-f", "%h|%S;"], ["-J"], ["-J", "-Z"])


@pytest.mark.real
@pytest.mark.timeout(120)
@pytest.mark.release("3.9.1")
def test_headers_are_written_and_shown_as_by_kcat(
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    cli: RunCommand,
    kafka_cluster: EmbeddedCluster,
) -> None:
    """kcat has real headers on a 3.9.1, this command has them in the values of messages."""
    real = broker_clusters.get("3.9.1")
    kcat = run_kcat(real.bootstrap_servers, None)
    ours = run_ours(cli, kafka_cluster.bootstrap_servers)
    topic = unique_topic("headers")
    real.create_topic(topic, 1)
    for headers in (HEADERS, ()):
        produce = ("-P", "-t", topic, "-p", "0", "-k", "key", *headers)
        kcat(*produce, stdin=b"tea\nmilk\n")
        ours(*produce, *EMBEDDED, stdin=b"tea\nmilk\n")
    for flags in OUTPUTS:
        consume = ("-C", "-t", topic, "-p", "0", "-e", "-q", *flags)
        shown = [run(*consume) for run in (kcat, lambda *words: ours(*words, *EMBEDDED))]
        if "-J" in flags:
            rows = [[json.loads(line) for line in one.splitlines()] for one in shown]
            for row in [*rows[0], *rows[1]]:
                for name in ("ts", "tstype", "broker"):
                    row.pop(name, None)
            assert [list(row) for row in rows[0]] == [list(row) for row in rows[1]]
            shown = [json.dumps(one).encode() for one in rows]
        assert shown[0] == shown[1], flags


@pytest.mark.kafka_cluster(topics={"orders": 1, "copy": 1})
def test_produce_and_jsonl_keep_headers(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    at = ("-b", kafka_cluster.bootstrap_servers, *EMBEDDED)
    assert cli("produce", "orders", *at, *HEADERS, stdin=b"tea\n").code == 0
    kafka_cluster.append("orders", 0, [b"plain", None])
    done = cli("consume", "orders", *at, "--exit", "--format", "jsonl")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [one["value"] for one in lines] == ["tea", "plain", None]
    assert lines[0]["headers"] == [["a", "b"], ["ü", "x=y"], ["empty", ""]]
    assert [one["headers"] for one in lines[1:]] == [[], []]
    done = cli("produce", "copy", *at, "--format", "jsonl", "-H", "more=1", stdin=done.out)
    assert done.code == 0, done.err
    assert [one.value for one in kafka_cluster.log("copy", 0)] == [
        embed(b"tea", [("more", b"1"), *PAIRS]),
        embed(b"plain", [("more", b"1")]),
        None,
    ]
    done = cli("consume", "orders", *at, "--exit", "-f", "%s:%h;")
    assert done.out == "tea:a=b,ü=x=y,empty=;plain:;:;".encode()


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_modes_without_headers(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are shown and sent as they are, whatever the environment says."""
    monkeypatch.setenv("AIOKAFKA08_HEADERS", "embedded")
    at = ("-b", kafka_cluster.bootstrap_servers)
    line = b'{"value": "tea", "headers": [["a", "b"]]}\n'
    for words, stdin in (
        (("-H", "a=b"), b"tea\n"),
        (("--format", "jsonl"), b'{"value": "x"}\n' + line),
    ):
        done = cli("produce", "orders", *at, *words, stdin=stdin)
        assert done.code != 0
        assert "-X headers=embedded" in done.err
    assert "message 2 of the input: " in done.err
    assert kafka_cluster.log("orders", 0) == []
    dropping = (*at, "-X", "headers=drop")
    assert cli("produce", "orders", *dropping, "-H", "a=b", stdin=b"tea\n").code == 0
    value = embed(b"v", PAIRS)
    assert value is not None
    kafka_cluster.append("orders", 0, [value])
    for mode in (at, dropping):
        done = cli("consume", "orders", *mode, "--exit", "-D", "")
        assert done.out == b"tea" + value
        done = cli("consume", "orders", *mode, "--exit", "-f", "%h")
        assert done.code == 2
        assert "-X headers=embedded" in done.err
    done = cli("consume", "orders", *at, "-X", "headers=yes", "--exit")
    assert (done.code, "embedded" in done.err) == (2, True)


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_damaged_envelope_is_named(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 0, [b"tea", b"\xff\x01\x05", b"milk"])
    at = ("-b", kafka_cluster.bootstrap_servers, *EMBEDDED)
    for follow in (("--exit",), ("-c", "3")):
        done = cli("consume", "orders", *at, *follow)
        assert (done.code, done.out) == (1, b"tea\n")
        assert "offset 1: the value begins with 0xff" in done.err


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize(
    "headers", ["1", '"ab"', '{"id": "7"}', '["ab"]', "[[1, 2]]", '[["a"]]', '[["a", 1]]']
)
def test_wrong_headers_of_jsonl_are_named(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, headers: str
) -> None:
    at = ("-b", kafka_cluster.bootstrap_servers, *EMBEDDED)
    line = f'{{"value": "x", "headers": {headers}}}\n'.encode()
    done = cli("produce", "orders", *at, "--format", "jsonl", stdin=line)
    assert done.code == 1
    assert "line 1 of the input: headers " in done.err
