"""`produce` and `consume` on the embedded cluster: what goes in comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiokafka08._tools.cli.moving import consuming
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import Answer, EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.conformance.contract.wire.requests import nested

EACH_LINE = [
    pytest.param(line, marks=pytest.mark.kafka_cluster(version=line, topics={"orders": 2}))
    for line in ("0.8.0", "0.8.2", "0.9", "0.10")
]
VALUES = [b"tea", b"", None, b"\xff\xfe\0bin", 'ü\n"\\'.encode()]


@pytest.fixture
def at(kafka_cluster: EmbeddedCluster) -> tuple[str, str]:
    return "-b", kafka_cluster.bootstrap_servers


def values(
    cluster: EmbeddedCluster, topic: str = "orders", partition: int = 0
) -> list[bytes | None]:
    return [one.value for one in cluster.log(topic, partition)]


def acknowledged(number: int, topic: str, at: tuple[str, str]) -> str:
    """Return what `produce` says on stderr."""
    return f"aiokafka08: {number} messages were acknowledged: topic {topic!r}, cluster {at[1]}\n"


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("line", EACH_LINE)
def test_jsonl_is_read_back_byte_by_byte(
    line: str, cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.create_topic("copy", partitions=2)
    has_times = line == "0.10"
    for partition in (0, 1):
        kafka_cluster.append("orders", partition, VALUES, keys=VALUES[::-1])
        if has_times:
            text = json.dumps({"value": "tea", "timestamp": 1234, "partition": partition}).encode()
            flags = ["--format", "jsonl", "--keep-partition", "--keep-timestamp"]
            assert cli("produce", "orders", *at, *flags, stdin=text).code == 0
    read = cli("consume", "orders", *at, "--from", "beginning", "--exit", "--format", "jsonl")
    assert (read.code, read.err) == (0, "")
    assert len(read.lines) == (12 if has_times else 10)
    times = {json.loads(one)["timestamp"] for one in read.lines}
    assert times == ({None, 1234} if has_times else {None})
    flags = ["--keep-partition", *(["--keep-timestamp"] if has_times else [])]
    done = cli("produce", "copy", *at, "--format", "jsonl", *flags, stdin=read.out)
    number = len(read.lines)
    assert (done.code, done.out, done.err) == (0, b"", acknowledged(number, "copy", at))
    for partition in (0, 1):
        original, copy = (kafka_cluster.log(one, partition) for one in ("orders", "copy"))
        assert [(one.key, one.value) for one in copy] == [(one.key, one.value) for one in original]
        if has_times:
            assert (copy[-1].timestamp_ms, original[-1].timestamp_ms) == (1234, 1234)


@pytest.mark.kafka_cluster(brokers=2, topics={"orders": 3})
@pytest.mark.parametrize("command", ["consume", "kcat -C -t"])
def test_exit_at_end_names_partitions_without_leader(
    command: str,
    cli: RunCommand,
    kafka_cluster: EmbeddedCluster,
    at: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the others, and doesn't wait until a broker comes back."""
    monkeypatch.setattr(consuming, "_LEADER_S", 0.2)
    for partition in range(3):
        kafka_cluster.append("orders", partition, [b"%d" % partition])
    kafka_cluster.kill(1, then="leaderless")
    assert kafka_cluster.leader("orders", 1) == -1
    read = cli(*command.split(), "orders", *at, "-e")
    assert (read.code, sorted(read.lines)) == (1, ["0", "2"])
    assert "no leader within 0.2 s for orders/1: not read" in read.err


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_raw_lines_with_keys_go_there_and_back(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    text = b"k1=tea\n=milk\nk3=\n"
    done = cli("produce", "orders", *at, "-K", "=", "-Z", stdin=text)
    assert (done.code, done.err) == (0, acknowledged(3, "orders", at))
    assert [(one.key, one.value) for one in kafka_cluster.log("orders", 0)] == [
        (b"k1", b"tea"),
        (None, b"milk"),
        (b"k3", None),
    ]
    assert cli("consume", "orders", *at, "-e", "-K", "=").out == text
    assert (
        cli("consume", "orders", *at, "-e", "-K", "=", "-Z").out == b"k1=tea\nNULL=milk\nk3=NULL\n"
    )
    assert cli("consume", "orders", *at, "-e", "-c", "2", "-D", r"\0").out == b"tea\0milk\0"


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize("coding", ["hex", "base64"])
def test_coded_bytes_go_there_and_back(
    coding: str, cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.create_topic("copy")
    kafka_cluster.append("orders", 0, [b"\n\0\xff", b""], keys=[b"\n", b":"])
    text = cli("consume", "orders", *at, "-e", "--format", coding, "-K", " ").out
    assert cli("produce", "copy", *at, "--format", coding, "-K", " ", stdin=text).code == 0
    assert [(one.key, one.value) for one in kafka_cluster.log("copy", 0)] == [
        (b"\n", b"\n\0\xff"),
        (b":", b""),
    ]


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_files_are_messages_and_messages_files(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], tmp_path: Path
) -> None:
    kafka_cluster.append("orders", 0, [b"a\nb", None])
    folder = tmp_path / "records"
    flags = ["--format", "files", "--directory", str(folder)]
    done = cli("consume", "orders", *at, "-e", *flags)
    assert (done.code, done.out, done.err) == (0, b"", "")
    paths = sorted(folder.iterdir())
    assert [(path.name, path.read_bytes()) for path in paths] == [
        ("orders-0-00000000000000000000", b"a\nb"),
        ("orders-0-00000000000000000001.null", b""),
    ]
    again = cli("consume", "orders", *at, "-e", *flags)
    assert again.code == 1
    assert again.err == f"aiokafka08: {paths[0]}: File exists\n"
    done = cli("produce", "orders", *at, "--format", "files", *map(str, paths))
    assert (done.code, done.err) == (0, acknowledged(2, "orders", at))
    assert values(kafka_cluster) == [b"a\nb", None, b"a\nb", None]
    done = cli("produce", "orders", *at, *map(str, paths[:1]))
    assert values(kafka_cluster)[4:] == [b"a", b"b"]


@pytest.mark.kafka_cluster(topics={"orders": 2})
def test_key_partition_count_codec_and_tee_of_produce(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    flags = ["-k", "k", "-p", "1", "-c", "2", "-z", "gzip", "--tee", "--rate", "1MB/s"]
    done = cli("produce", "orders", *at, *flags, stdin=b"a\nb\nc\n")
    assert (done.code, done.out) == (0, b"a\nb\n")
    assert done.err == acknowledged(2, "orders", at)
    assert [(one.key, one.value) for one in kafka_cluster.log("orders", 1)] == [
        (b"k", b"a"),
        (b"k", b"b"),
    ]


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1})
def test_template_deserializers_and_rate_of_consume(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.append("orders", 0, [b"\0\0\0\7", b"\0\0\1\0"])
    flags = ["-e", "-s", "value=i", "--rate", "1MB/s"]
    assert cli("consume", "orders", *at, *flags, "-f", r"%o:%s ").out == b"0:7 1:256 "
    assert cli("consume", "orders", *at, *flags).out == b"7\n256\n"
    read = cli("consume", "orders", *at, *flags, "--format", "jsonl")
    assert [json.loads(one)["value"] for one in read.lines] == ["7", "256"]


# --- ranges ---------------------------------------------------------------------------------------


@pytest.mark.kafka_cluster(topics={"orders": 2})
@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["-e"], "0123456789"),
        (["-e", "--from", "7"], "789"),
        (["--from", "7", "--to", "9"], "78"),
        (["--from", "7:9"], "78"),
        (["-e", "--from", "-2"], "89"),
        (["-e", "--from", "+8"], "89"),
        (["-e", "--from", "end"], ""),
        (["--to", "end", "--from=-3"], "789"),
        (["-e", "--to", "99", "--from", "8"], "89"),
        (["--from", "5", "-c", "2"], "56"),
        (["-e", "--from", "-100000h"], "0123456789"),
    ],
)
def test_ranges_of_consume(
    flags: list[str],
    shown: str,
    cli: RunCommand,
    kafka_cluster: EmbeddedCluster,
    at: tuple[str, str],
) -> None:
    kafka_cluster.append("orders", 0, [b"%d" % number for number in range(10)])
    done = cli("consume", "orders", *at, "-p", "0", "-f", "%s", *flags)
    assert (done.code, done.out.decode()) == (0, shown)


@pytest.mark.kafka_cluster(topics={"orders": 3})
def test_positions_for_single_partitions(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    for partition in range(3):
        kafka_cluster.append("orders", partition, [b"%d" % number for number in range(4)])
    flags = ["-e", "--from", "end", "--from", "1=2", "--from", "2=1:3", "-f", "%p:%s "]
    done = cli("consume", "orders", *at, *flags)
    assert sorted(done.out.split()) == [b"1:2", b"1:3", b"2:1", b"2:2"]


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
def test_time_is_by_segment_and_says_so(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.append("orders", 0, [b"a"])
    done = cli("consume", "orders", *at, "-e", "--from=-1h")
    assert (done.code, done.out) == (0, b"a\n")
    assert "≈ by segment" in done.err
    assert done.err.endswith("orders/0 at 0\n")


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
@pytest.mark.parametrize(
    "words", [("consume", "orders", "--to=-1h"), ("kcat", "-C", "-t", "orders", "-o", "e@0")]
)
def test_end_by_time_is_refused_where_the_broker_knows_segments_only(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], words: tuple[str, ...]
) -> None:
    """The begin of a segment would leave out messages of before that time."""
    kafka_cluster.append("orders", 0, [b"a"])
    done = cli(*words, *at)
    assert (done.code, done.out) == (2, b"")
    assert "topic 'orders', partition 0" in done.err
    assert "stop at an offset" in done.err


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_end_after_the_log_is_waited_for(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    """The last offsets come while the command waits for them."""
    from aiokafka08.protocol.requests.fetch import FetchRequest

    kafka_cluster.append("orders", 0, [b"a"])
    waits = kafka_cluster.next_request(
        FetchRequest,
        where=lambda one: any(
            part.fetch_offset == 1 for topic in one.topics for part in topic.partitions
        ),
    )
    waits.add_done_callback(lambda _: kafka_cluster.append("orders", 0, [b"b", b"c"]))
    done = cli("consume", "orders", *at, "--to", "2")
    assert (done.code, done.out) == (0, b"a\nb\n")


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
def test_group_continues_where_it_stopped(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    for partition in (0, 1):
        kafka_cluster.append("orders", partition, [b"%d" % number for number in range(4)])
    read = ["consume", "orders", *at, "--group", "billing", "-e", "-f", "%p%s "]
    first = cli(*read, "-c", "3")
    moved = f"group 'billing' has committed what was written, cluster {at[1]}"
    assert (first.code, first.err) == (0, f"aiokafka08: {moved}\n")
    assert len(first.out.split()) == 3
    second = cli(*read)
    assert len(second.out.split()) == 5
    assert {*first.out.split(), *second.out.split()} == {
        b"%d%d" % (partition, number) for partition in (0, 1) for number in range(4)
    }
    for partition in (0, 1):
        commit = kafka_cluster.committed("billing", "orders", partition)
        assert commit is not None
        assert commit.offset == 4
    assert cli(*read).out == b""
    assert len(cli(*read, "--from", "1=2", "--from", "end").out.split()) == 2


@pytest.mark.parametrize(("count", "first"), [(10, b"0"), (12, b"0"), (13, b"after")])
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_group_continues_with_all_messages_of_an_offset(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], count: int, first: bytes
) -> None:
    """At least once: a count may end between messages that share an offset."""
    kafka_cluster.append("orders", 0, [b"before"] * 8)
    kafka_cluster.append_raw("orders", 0, nested(8, 5), next_offset=9)
    kafka_cluster.append("orders", 0, [b"after"])
    read = ["consume", "orders", *at, "--group", "billing", "-e"]
    assert len(cli(*read, "-c", str(count)).out.split()) == count
    assert cli(*read).out.split()[0] == first


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_message_above_the_limit_names_the_property(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.append("orders", 0, [bytes(200_000)])
    limit = "max.partition.fetch.bytes=50000"
    read = cli("consume", "orders", *at, "-e", "-X", "fetch.max.bytes=90000", "-X", limit)
    assert read.code == 1
    assert "Raise fetch.max.bytes, or begin behind it" in read.err


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.kafka_cluster(topics={"orders": 2})
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["consume", "nothing", "-e"], 1, "topic 'nothing' doesn't exist"),
        (["consume", "^no", "-e"], 1, "no topic matches '^no'"),
        (["consume", "^(", "-e"], 2, "expected a regular expression"),
        (["consume", "orders", "-e", "-p", "7"], 1, "no partition 7; it has 0, 1"),
        (["consume", "orders", "-e", "--from", "5"], 1, "offset 5 is out of range"),
        (["consume", "orders", "-e", "--from", "7=1"], 2, "partition 7 isn't read"),
        (["consume", "orders", "-e", "--from", "soon"], 2, "--from='soon': expected"),
        (["consume", "orders", "-e", "--from", "stored"], 2, "expected --group too"),
        (["consume", "orders", "-g", "g", "-p", "0"], 2, "expected one of them"),
        (["consume", "orders", "-f", "%x"], 2, "'%x' has no meaning"),
        (["consume", "orders", "-f", "%s", "--format", "jsonl"], 2, "expected one of them"),
        (["consume", "orders", "-s", "z"], 2, "expected a pack string"),
        (["consume", "orders", "-s", "avro"], 2, "expected the URL of a schema registry"),
        (["consume", "orders", "--format", "files"], 2, "expected --directory too"),
        (["consume", "orders", "--directory", "x"], 2, "expected --format files too"),
        (["consume", "orders", "-D", r"\q"], 2, "has no meaning"),
        (["consume", "orders", "-K", ""], 2, "expected at least one byte"),
        (["consume", "orders", "--rate", "fast"], 2, "expected bytes per second"),
        (["consume"], 2, "missing argument"),
        (["consume", "orders", "-c", "0"], 2, "0 is not in the range"),
        (["produce", "orders", "-D", ""], 2, "expected at least one byte"),
        (["produce", "orders", "--keep-partition"], 2, "expected --format jsonl"),
        (
            ["produce", "orders", "--format", "jsonl", "-p", "1", "--keep-partition"],
            2,
            "expected one",
        ),
        (["produce", "orders", "-p", "9"], 1, "has no partition 9"),
        (["produce", "orders", "no such file"], 2, "does not exist"),
        (["produce", "a b"], 1, "a b"),
    ],
)
def test_wrong_call_is_one_line(
    words: list[str],
    code: int,
    text: str,
    cli: RunCommand,
    kafka_cluster: EmbeddedCluster,
    at: tuple[str, str],
) -> None:
    kafka_cluster.append("orders", 0, [b"a"])
    done = cli(*words, *at, "-X", "request.timeout.ms=2000", stdin=b"a\n")
    assert (done.code, done.out) == (code, b""), done.err
    assert done.err.startswith("aiokafka08: ")
    assert done.err.count("\n") == 1
    assert text in done.err


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
def test_producing_says_that_the_topic_is_new(version: str, cli: RunCommand) -> None:
    """Brokers create a misspelt topic, too."""
    with EmbeddedCluster(version=version, topics={"orders": 1}) as cluster:
        at = ("-b", cluster.bootstrap_servers)
        done = cli("produce", "ordres", *at, stdin=b"tea\n")
        text = "topic 'ordres' was unknown at first; it has 1 partition now"
        assert (done.code, done.err.splitlines()[0]) == (0, f"aiokafka08: {text}")
        for topic in ("orders", "ordres"):
            done = cli("produce", topic, *at, stdin=b"tea\n")
            assert (done.code, "unknown" in done.err) == (0, False)


@pytest.mark.kafka_cluster(version="0.8.0")
def test_reading_creates_no_topic(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.create_topic("orders")
    kafka_cluster.append("orders", 0, [b"a"])
    assert cli("consume", "nothing", *at, "-e").code == 1
    assert cli("consume", "orders", *at, "-c", "1").out == b"a\n"
    assert cli("kcat", "-C", *at, "-t", "nothing", "-e").code == 1
    assert cli("kcat", "-Q", *at, "-t", "nothing:0:1").code == 1
    assert not any(one.topics for one in kafka_cluster.requests(MetadataRequest))
    assert cli("topics", "-q", *at).out == b"orders\n"


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_wrong_input_sends_what_came_before(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], tmp_path: Path
) -> None:
    good = tmp_path / "good"
    good.write_bytes(b'{"value": "a"}\n')
    done = cli("produce", "orders", *at, "--format", "jsonl", str(good), "-", stdin=b"tea\n")
    assert done.code == 1
    assert "line 2 of the input" in done.err
    assert "1 of 1 message was acknowledged" in done.err
    assert values(kafka_cluster) == [b"a"]


@pytest.mark.kafka_cluster(topics={"orders": 2})
@pytest.mark.parametrize(
    ("flags", "text", "wrong"),
    [
        (
            ["--format", "jsonl"],
            '{"value":"a"}\n{"value":"b"}\n{"value":5}\n{"value":"d"}',
            "line 3",
        ),
        (
            ["--format", "jsonl"],
            '{"value":"a"}\n{"value":"b"}\n{"value":"c","value":"d"}',
            "'value' is given twice",
        ),
        (["--format", "hex"], "61\n62\nzz\n64\n", "message 3 of the input: b'zz'"),
        ([], f"a\nb\n{'c' * 2000}\nd\n", "message 3 of the input has 2000 bytes"),
        ([], f"a\nb\n{'c' * 2000}", "message 3 of the input: more than 1000 bytes without"),
        (
            ["--format", "jsonl", "--keep-partition"],
            '{"value":"a","partition":0}\n{"value":"b","partition":0}\n{"value":"c","partition":9}',
            "message 3 of the input: topic 'orders' has no partition 9",
        ),
    ],
)
def test_messages_before_a_wrong_one_are_sent(
    flags: list[str],
    text: str,
    wrong: str,
    cli: RunCommand,
    kafka_cluster: EmbeddedCluster,
    at: tuple[str, str],
) -> None:
    """All of the input comes in one block, and the user learns where to go on."""
    where = [] if "--keep-partition" in flags else ["-p", "0"]
    options = ["-X", "max.request.size=1000", *where, *flags]
    done = cli("produce", "orders", *at, *options, stdin=text.encode())
    assert done.code == 1
    assert wrong in done.err
    assert ". 2 of " in done.err
    assert "messages were acknowledged" in done.err
    assert done.err.count("\n") == 1
    assert values(kafka_cluster) == [b"a", b"b"]


@pytest.mark.kafka_cluster(topics={"orders": 1}, message_max_bytes=1000)
def test_messages_of_acks_0_that_may_be_lost_are_noted(
    cli: RunCommand, at: tuple[str, str]
) -> None:
    large = b"x" * 2000
    done = cli("produce", "orders", *at, "-X", "acks=0", stdin=large + b"\n")
    assert done.code == 0
    assert "acks=0: a broker closed the connection after 1 message," in done.err


@pytest.mark.kafka_cluster(brokers=2, topics={"orders": 1})
def test_message_of_acks_0_that_is_never_written_fails(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.kill(kafka_cluster.leader("orders", 0), then="unnoticed")
    options = ("-p", "0", "-X", "acks=0", "-X", "delivery.timeout.ms=2000")
    done = cli("produce", "orders", *at, *options, stdin=b"a\n")
    assert done.code == 1
    assert "message 1 of the input wasn't written: orders/0: not written within 2000 ms" in done.err
    assert "0 of 1 message was written" in done.err
    assert "acknowledged" not in done.err


@pytest.mark.kafka_cluster(topics={"orders": 1}, message_max_bytes=1000)
def test_refused_message_is_named(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    done = cli("produce", "orders", *at, stdin=b"a\n" + b"b" * 2000 + b"\nc\n")
    assert done.code == 1
    assert "message 2 of the input wasn't acknowledged" in done.err
    assert "2 of 3 messages were acknowledged" in done.err
    assert done.err.count("\n") == 1
    assert values(kafka_cluster) == [b"a", b"c"]


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize(
    "flags", [[], ["--format", "files"], ["--format", "jsonl"], ["--format", "hex"]]
)
def test_too_large_message_is_named(flags: list[str], cli: RunCommand, at: tuple[str, str]) -> None:
    value = {"jsonl": json.dumps({"value": "b" * 2000}).encode(), "hex": b"aa" * 2000}
    text = value.get(flags[-1], b"b" * 2000) if flags else b"b" * 2000
    done = cli("produce", "orders", *at, *flags, "-X", "max.request.size=1000", stdin=text + b"\n")
    assert done.code == 1
    assert "1000" in done.err or "2000" in done.err, done.err
    assert "aiokafka08: " in done.err


@pytest.mark.kafka_cluster(topics={"orders": 1, "other": 1})
def test_several_topics_and_patterns(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.append("orders", 0, [b"a"])
    kafka_cluster.append("other", 0, [b"b"])
    for words in (["orders", "other"], ["^o"]):
        done = cli("consume", *words, *at, "-e", "-f", "%t=%s ")
        assert sorted(done.out.split()) == [b"orders=a", b"other=b"]


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
def test_group_of_0_8_names_the_option_for_zookeeper(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    what = "aiokafka08: group 'g': brokers before 0.9 don't coordinate groups. Give "
    how = " to join the group in ZooKeeper\n"
    done = cli("consume", "orders", *at, "--group", "g", "-e")
    assert (done.code, done.err) == (1, f"{what}--zookeeper host:2181/chroot{how}")
    done = cli("kcat", *at, "-G", "g", "orders", "-e")
    assert done.code == 1
    assert done.err.endswith(f"{what}-X zookeeper.connect=host:2181/chroot{how}")


@pytest.mark.parametrize("flags", [["--exit"], [], ["--group", "g"]])
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
def test_cut_off_set_in_a_wrapper_ends_consume(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], flags: list[str]
) -> None:
    inside = encode_entry(0, None, b"0") + encode_entry(1, None, b"cut off")[:-1]
    value = compress(Codec.GZIP, inside)
    wrapper = encode_entry(1, None, value, attributes=Codec.GZIP)
    kafka_cluster.append_raw("orders", 1, wrapper, next_offset=2)
    read = cli("consume", "orders", *at, "--from", "beginning", *flags)
    assert (read.code, read.out) == (1, b"0\n")
    assert "partition 1, offset 1: it is cut off within its wrapper" in read.err


@pytest.mark.parametrize("flags", [["--exit"], [], ["--group", "g"]])
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
def test_damaged_log_names_the_next_readable_offset(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], flags: list[str]
) -> None:
    """A size field of 0; what came before is written."""
    kafka_cluster.append("orders", 1, [b"0", b"1"])
    kafka_cluster.append_raw("orders", 1, bytes(400), next_offset=7)
    kafka_cluster.append("orders", 1, [b"7"])
    read = cli("consume", "orders", *at, "--from", "beginning", *flags)
    assert (read.code, read.out) == (1, b"0\n1\n")
    assert "partition 1, offset 2" in read.err
    assert "The next offset that can be read is 7: go on there with --from 1=7" in read.err
    assert "seek()" not in read.err
    read = cli("consume", "orders", *at, "--from", "1=7", "--count", "1", *flags)
    assert (read.code, read.out) == (0, b"7\n")


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
def test_kcat_names_its_own_options_behind_damage(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.append_raw("orders", 1, bytes(400), next_offset=7)
    kafka_cluster.append("orders", 1, [b"7"])
    read = cli("kcat", *at, "-C", "-t", "orders", "-e")
    options = ["-C", "-t", "orders", "-p", "1", "-o", "7"]
    assert read.err.endswith(f"can be read is 7: go on there with {' '.join(options)}\n")
    assert "seek()" not in read.err
    read = cli("kcat", *at, *options, "-e")
    assert (read.code, read.out) == (0, b"7\n")


@pytest.mark.parametrize("flags", [["--exit"], []])
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_message_with_a_wrong_crc_is_skipped_by_an_option(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str], flags: list[str]
) -> None:
    entry = bytearray(encode_entry(0, None, b"0"))
    entry[-1] ^= 1
    kafka_cluster.append_raw("orders", 0, bytes(entry), next_offset=1)
    kafka_cluster.append("orders", 0, [b"1"])
    read = cli("consume", "orders", *at, "--from", "beginning", *flags)
    assert read.err.endswith(". Skip it with --from 0=1\n")
    read = cli("consume", "orders", *at, "--from", "0=1", "--count", "1", *flags)
    assert (read.code, read.out) == (0, b"1\n")


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_damage_is_named_though_the_search_behind_it_fails(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, at: tuple[str, str]
) -> None:
    kafka_cluster.append_raw("orders", 0, bytes(400), next_offset=7)
    kafka_cluster.append("orders", 0, [b"7"])

    def is_of_the_search(request: FetchRequest) -> bool:
        return any(one.fetch_offset > 0 for topic in request.topics for one in topic.partitions)

    kafka_cluster.fault(FetchRequest, then=Answer(29), where=is_of_the_search, times=None)
    read = cli("consume", "orders", *at, "--from", "beginning", "--exit")
    assert read.code == 1
    assert "partition 0, offset 0: its offset or size field is impossible" in read.err
    assert "begin at a clearly later offset" in read.err
    assert "The search for the next offset that can be read failed: " in read.err
    assert "seek()" not in read.err
