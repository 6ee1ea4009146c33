"""`aiokafka08 kcat`, beside Debian's kcat 1.7.1: the same bytes in both directions.

kcat gets the version of a cluster as an option, since it can't detect one below 0.10.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._tools.cli.kcat.listing import kcat_json, kcat_text
from aiokafka08.protocol.requests.metadata import Broker
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.brokers.fixtures import BrokerClusters

RunKcat = Callable[..., bytes]
TEXT = 'k1:tea\n:milk\nk3:\n\nü:"q\\u\tx\nnokey\n'.encode()


def run_kcat(bootstrap: str, version: str | None) -> RunKcat:
    """Return Debian's kcat, connected to brokers of a version; None: it detects the version."""
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat isn't installed: apt-get install kcat")
    words = [program, "-b", bootstrap]
    if version is not None:
        words += ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]

    def run(*arguments: str, stdin: bytes = b"") -> bytes:
        command = [*words, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=30, check=True)
        return done.stdout

    return run


def run_ours(cli: RunCommand, bootstrap: str) -> RunKcat:
    """Return `aiokafka08 kcat`, connected to brokers."""

    def run(*arguments: str, stdin: bytes = b"") -> bytes:
        done = cli("kcat", "-b", bootstrap, *arguments, stdin=stdin)
        assert done.code == 0, done.err
        return done.out

    return run


@pytest.fixture
def kcat(kafka_cluster: EmbeddedCluster) -> RunKcat:
    """Debian's kcat, connected to the embedded cluster."""
    version = {"0.8.2": "0.8.2", "0.10": None}[kafka_cluster.version]
    return run_kcat(kafka_cluster.bootstrap_servers, version)


@pytest.fixture
def ours(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> RunKcat:
    """`aiokafka08 kcat`, connected to the embedded cluster."""
    return run_ours(cli, kafka_cluster.bootstrap_servers)


OUTPUTS = [
    [],
    ["-Z"],
    ["-K", ":"],
    ["-K", ";", "-D", "::", "-Z"],
    ["-D", ""],
    ["-J"],
    ["-J", "-K", ":", "-D", ","],
    ["-f", r"%t [%p] at %o: key %k (%K): %s (%S) %T%%\n"],
    ["-f", r"%k|%s\x41\t%R", "-Z"],
    ["-o", "2"],
    ["-o", "-2"],
    ["-o", "end"],
    ["-c", "2", "-o", "beginning"],
    ["-f", "%s,", "-O"],
]


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1, "other": 1})
def test_same_bytes_in_both_directions(
    kcat: RunKcat, ours: RunKcat, kafka_cluster: EmbeddedCluster
) -> None:
    for flags in (["-K", ":"], ["-K", ":", "-Z"], ["-D", "e"], ["-k", "all", "-z", "snappy"]):
        produce = ["-P", "-p", "0", *flags]
        kcat(*produce, "-t", "orders", stdin=TEXT)
        ours(*produce, "-t", "other", stdin=TEXT)
    pairs = [
        [(one.key, one.value) for one in kafka_cluster.log(topic, 0)]
        for topic in ("orders", "other")
    ]
    assert pairs[0] == pairs[1]
    for flags in OUTPUTS:
        consume = ["-C", "-t", "orders", "-p", "0", "-e", "-q", *flags]
        assert ours(*consume) == kcat(*consume), flags


@pytest.mark.real
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("version", "told"), [("0.8.2.2", "0.8.2.2"), ("0.9.0.1", "0.9.0.1"), ("0.10.2.2", None)]
)
def test_same_bytes_on_real_brokers(
    version: str,
    told: str | None,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    cli: RunCommand,
) -> None:
    """Each reads what the other one has written, and all it prints is the same."""
    cluster = broker_clusters.get(version)
    kcat = run_kcat(cluster.bootstrap_servers, told)
    ours = run_ours(cli, cluster.bootstrap_servers)
    topics = unique_topic("kcat"), unique_topic("ours")
    for topic, write in zip(topics, (kcat, ours), strict=True):
        cluster.create_topic(topic, 1)
        for flags in (["-K", ":", "-Z"], ["-k", "all", "-z", "snappy"]):
            write("-P", "-t", topic, *flags, stdin=TEXT)
        for flags in (["-J"], ["-f", r"%t [%p] at %o: %k (%K): %s (%S) %T %R\n"]):
            consume = ["-C", "-t", topic, "-p", "0", "-e", "-q", *flags]
            assert ours(*consume) == kcat(*consume), (topic, flags)
    written = [kcat("-C", "-t", topic, "-e", "-q", "-f", "%K %k %S %s;") for topic in topics]
    assert written[0] == written[1]
    assert written[0].count(b";") == 2 * (TEXT.count(b"\n") - 1), "kcat leaves out the empty line"


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1})
def test_same_timestamps_as_kcat(
    kcat: RunKcat, ours: RunKcat, kafka_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    ours("-P", "-t", "orders", stdin=b"tea\nmilk\n")
    paths = [tmp_path / name for name in ("one", "two", "empty")]
    for path, data in zip(paths, (b"a\nb", b"c", b""), strict=True):
        path.write_bytes(data)
    kcat("-P", "-t", "orders", *map(str, paths[:2]))
    ours("-P", "-t", "orders", *map(str, paths[:2]))
    ours("-P", "-t", "orders", "-l", str(paths[0]))
    for flags in (
        ["-J"],
        ["-f", r"%T %s\n"],
        ["-o", "s@1"],
        ["-o", "e@1"],
        ["-s", "value=c", "-f", "%s;"],
    ):
        consume = ["-C", "-t", "orders", "-e", "-q", *flags]
        assert ours(*consume) == kcat(*consume), flags
    assert ours("-L") == kcat("-L")
    assert json.loads(ours("-L", "-J", "-t", "orders")) == json.loads(
        kcat("-L", "-J", "-t", "orders")
    )
    assert ours("-Q", "-t", "orders:0:-1", "-t", "orders:0:-2").count(b"orders [0]") == 1


def test_ipv6_addresses_are_listed_in_brackets() -> None:
    brokers = {
        0: Broker(0, "::1", 9092, None),
        1: Broker(1, "[::2]", 9092, None),
    }
    snapshot = ClusterSnapshot(brokers=brokers)
    text = kcat_text(snapshot, [], None, "[::1]:9092")
    assert "(from broker 0: [::1]:9092/0)" in text
    assert "broker 0 at [::1]:9092\n" in text
    assert "broker 1 at [::2]:9092\n" in text
    listed = json.loads(kcat_json(snapshot, [], None, "[::1]:9092"))
    assert [one["name"] for one in listed["brokers"]] == ["[::1]:9092", "[::2]:9092"]


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_binary_is_json_in_our_envelope(ours: RunKcat, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 0, [b"\xff\xfe\0bin"])
    fields = json.loads(ours("-C", "-t", "orders", "-e", "-J"))
    assert fields["payload"] == {"base64": "//4AYmlu"}


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 2})
def test_query_by_time_prints_the_offset(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 0, [b"a"])
    at = ["-b", kafka_cluster.bootstrap_servers]
    done = cli(
        "kcat", "-Q", *at, "-t", "orders:0:1", "-t", "orders:1:-1", "-t", "orders:0:99999999999999"
    )
    assert (done.code, done.out) == (0, b"orders [0] offset -1\norders [1] offset 0\n")
    done = cli("kcat", "-Q", *at, "-t", "orders:0:1", "-J")
    assert json.loads(done.out) == {
        "orders": {"topic": "orders", "0": {"partition": 0, "offset": 0}}
    }
    assert "by segment" in done.err


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
def test_group_mode_ends_at_the_end(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 1, [b"a", b"b"])
    at = ["-b", kafka_cluster.bootstrap_servers]
    done = cli("kcat", *at, "-G", "billing", "-o", "beginning", "-e", "orders")
    assert (done.code, done.out) == (0, b"a\nb\n")
    assert "% Reached end of topic orders [1] at offset 2" in done.err
    assert cli("kcat", *at, "-G", "new", "-e", "^ord").out == b"", "a new group begins at the end"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["-C", "-P", "-t", "orders"], 2, "-C is given too"),
        (["-C"], 2, "expected -t TOPIC"),
        (["-C", "-t", "orders", "-o", "x"], 2, "expected beginning, end"),
        (["-C", "-t", "orders", "-f", "%z"], 2, "'%z' has no meaning"),
        (["-C", "-t", "orders", "-s", "zz"], 2, "expected a pack string"),
        (["-C", "-t", "orders", "-s", "avro"], 2, "expected the URL"),
        (["-C", "-t", "orders", "-r", "http://x"], 2, "expected -s avro too"),
        (["-C", "-t", "orders", "-r", "http://x", "-s", "i"], 2, "expected -s avro too"),
        (["-C", "-t", "orders", "more"], 2, "files belong to -P"),
        (["-P", "-t", "orders", "-s", "i"], 2, "expected -C or -G"),
        (["-P", "-t", "orders", "-H", "a=b"], 2, "-X headers=embedded"),
        (["-P", "-t", "orders", "-D", ""], 2, "at least one byte"),
        (["-P", "-t", "orders", "-l"], 2, "expected one file"),
        (["-P", "-t", "orders", "/no/such/file"], 1, "/no/such/file: No such file"),
        (["-P", "-t", "orders", "-z", "zip"], 2, "zip"),
        (["-G", "g"], 2, "expected the topics"),
        (["-G", "g", "-o", "s@1", "orders"], 2, "expected another position"),
        (["-Q", "-t", "orders"], 2, "expected TOPIC:PARTITION:TIMESTAMP"),
        (["-Q"], 2, "expected -t"),
        (["-M", "3"], 2, "aiokafka08 cluster"),
        (["-y"], 2, "option -y not recognized"),
        (["-p", "x", "-t", "orders"], 2, "expected an integer"),
        (["-X", "no.such=1", "-C", "-t", "orders"], 2, "unknown property"),
        (["-F", "/no/such/file", "-C", "-t", "orders"], 2, "/no/such/file"),
    ],
)
@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_wrong_flags_are_one_line(
    words: list[str], code: int, text: str, cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    done = cli("kcat", "-b", kafka_cluster.bootstrap_servers, *words, stdin=b"a\n")
    assert (done.code, done.out) == (code, b""), done.err
    assert text in done.err
    assert done.err.splitlines()[-1].startswith("aiokafka08: ")
    assert len([one for one in done.err.splitlines() if not one.startswith("% ")]) == 1


def test_help_version_and_properties_are_printed(cli: RunCommand) -> None:
    assert b"-G GROUP TOPIC" in cli("kcat", "-h").out
    assert cli("kcat", "-V").out.startswith(b"aiokafka08 ")
    assert b"linger.ms\n" in cli("kcat", "-X", "list").out
    dump = cli("kcat", "-b", "kafka1:9092", "-X", "linger.ms=5", "-X", "dump")
    assert b"queue.buffering.max.ms = 5\n" in dump.out
    assert b"metadata.broker.list = kafka1:9092\n" in dump.out


def test_dump_has_the_names_that_kcat_reads(cli: RunCommand, tmp_path: Path) -> None:
    given = {
        "acks": "all",
        "compression.codec": "none",
        "check.crcs": "true",
        "partitioner": "consistent_random",
        "zookeeper.connect": "zoo1:2181/kafka",
    }
    flags = [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
    dump = cli("kcat", "-b", "kafka1:9092", *flags, "-X", "dump").out.decode()
    assert "request.required.acks = all\n" in dump
    for name in ("compression.codec", "check.crcs", "partitioner", "zookeeper.connect"):
        assert f"{name} = {given[name]}\n" in dump
    again = tmp_path / "again.conf"
    again.write_text(dump)
    assert cli("kcat", "-F", str(again), "-X", "dump").out.decode() == dump


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_flags_without_effect_are_noted(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 0, [b"a"])
    consume = ["kcat", "-C", "-b", kafka_cluster.bootstrap_servers, "-t", "orders", "-e"]
    with_template = cli(*consume, "-f", "%s!", "-D", ";", "-K", ":")
    assert with_template.out == b"a!"
    assert "% No effect beside -f: -D and -K\n" in with_template.err
    assert "% No effect beside -J: -K\n" in cli(*consume, "-J", "-D", ";", "-K", ":").err
    assert cli(*consume, "-q", "-f", "%s!", "-D", ";").err == ""
    assert "No effect" not in cli(*consume, "-D", ";", "-K", ":").err


def test_configuration_of_kcat_is_read(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / ".config" / "kcat.conf"
    home.parent.mkdir(exist_ok=True)
    home.write_text("metadata.broker.list=home:1\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KCAT_CONFIG")
    assert b"= home:1\n" in cli("kcat", "-X", "dump").out
    named = tmp_path / "named.conf"
    named.write_text("# comment\nbootstrap.servers=named:1\nclient.id=me\n")
    monkeypatch.setenv("KCAT_CONFIG", str(named))
    dump = cli("kcat", "-X", "dump").out
    assert b"= named:1\n" in dump
    assert b"client.id = me\n" in dump
    assert cli("kcat", "-F", "none", "-C", "-t", "x").code == 2
    assert b"= flag:1\n" in cli("kcat", "-b", "flag:1", "-X", "dump").out


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 7})
def test_keys_are_in_the_partitions_of_kcat(
    cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    """The partitions are those that Debian's kcat 1.7.1 chose."""
    flags = ["kcat", "-P", "-b", kafka_cluster.bootstrap_servers, "-t", "orders", "-K", ":"]
    keys = [b"a", b"b", b"key", "ü".encode(), b"\xff"]
    assert cli(*flags, stdin=b"".join(key + b":x\n" for key in keys)).code == 0
    found = {
        one.key: partition
        for partition in range(7)
        for one in kafka_cluster.log("orders", partition)
    }
    assert [found[key] for key in keys] == [4, 4, 5, 4, 3]
