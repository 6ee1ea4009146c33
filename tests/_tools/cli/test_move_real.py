"""`produce`, `consume`, `bench` and `kcat` on a real broker of each line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.test_real import RELEASES, topics_of_kafka
from tests.brokers.fixtures import BrokerClusters

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

VALUES = ["tea", "", None, {"base64": "//4AYmlu"}, 'ü\n"\\']


@pytest.mark.parametrize("version", RELEASES)
def test_move_messages_on_each_line(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    cli: RunCommand,
) -> None:
    cluster = broker_clusters.get(version)
    at = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
    topic, group, missing = unique_topic("move"), unique_topic("group"), unique_topic("missing")
    assert cli("topic", "create", topic, "--partitions", "2", *at).code == 0
    before = topics_of_kafka(cluster)

    lines = [
        json.dumps({"key": key, "value": value, "partition": 1}).encode()
        for key, value in zip(VALUES[::-1], VALUES, strict=True)
    ]
    text = b"\n".join(lines)
    flags = ("--format", "jsonl")
    sent = cli("produce", topic, *at, *flags, "--keep-partition", stdin=text)
    said = f"messages were acknowledged: topic {topic!r}, cluster {at[1]}, ZooKeeper {at[3]}\n"
    assert sent == (0, b"", f"aiokafka08: 5 {said}")
    rows = [json.loads(line) for line in cli("consume", topic, *at, "--exit", *flags).lines]
    assert [(one["partition"], one["offset"]) for one in rows] == [(1, at) for at in range(5)]
    assert [(one["key"], one["value"]) for one in rows] == list(
        zip(VALUES[::-1], VALUES, strict=True)
    )
    has_times = version not in ("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1")
    assert all((one["timestamp"] is not None) == has_times for one in rows)

    raw = b"".join(b"%0100d\n" % number for number in range(20_000))
    sent = cli("produce", topic, *at, "-p", "0", "-z", "snappy", stdin=raw)
    assert sent == (0, b"", f"aiokafka08: 20000 {said}")
    assert cli("consume", topic, *at, "-p", "0", "--exit").out == raw
    last = cli("consume", topic, *at, "-p", "0", "--from=-2", "--exit", "-f", "%o ")
    assert last.out == b"19998 19999 "
    beyond = cli("consume", topic, *at, "-p", "0", "--from", "20001", "--exit")
    assert (beyond.code, "the log goes from 0 to 20000" in beyond.err) == (1, True)

    read = ("consume", topic, *at, "--group", group, "--exit", "-f", "%p/%o ")
    first = cli(*read, "-c", "15000")
    second = cli(*read)
    assert (first.code, second.code) == (0, 0), (first.err, second.err)
    seen = [*first.out.split(), *second.out.split()]
    assert len(seen) == len(set(seen)) == 20_005

    (row,) = cli("bench", "consume", topic, *at, "--format", "json").json
    assert row["messages"] == 20_005
    assert len(cli("bench", "latency", topic, *at, "-c", "3", "--format", "json").json) == 2
    kcat = ("kcat", "-b", cluster.bootstrap_servers, "-t", topic, "-p", "1")
    payloads = [json.loads(line)["payload"] for line in cli(*kcat, "-C", "-e", "-J").lines]
    assert payloads == VALUES
    for words in (
        ["consume", missing],
        ["consume", topic, "-p", "9"],
        ["bench", "consume", missing],
    ):
        assert cli(*words, *at).code == 1
    assert topics_of_kafka(cluster) == before
