"""`produce` and `consume` as processes: signals, pipes, terminals, a full disk, a deleted topic."""

from __future__ import annotations

import asyncio
import itertools
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import EmbeddedCluster, Silence
from tests._tools.cli.conftest import RunCommand, command_line
from tests.support.waiting import until

PIPE = subprocess.PIPE
pytestmark = pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})


class Started:
    """Starts commands, and ends what is left of them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        line = command_line(*words, "-b", self._bootstrap)
        # Without a buffer, `communicate` gets what `readline` leaves.
        process = subprocess.Popen(line, bufsize=0, **{"stdout": PIPE, "stderr": PIPE, **options})
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def start(kafka_cluster: EmbeddedCluster) -> Iterator[Started]:
    started = Started(kafka_cluster.bootstrap_servers)
    yield started
    started.end()


async def test_line_is_acknowledged_before_the_next_is_typed(
    start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    """Ctrl-C then tells how many were acknowledged; half a line isn't sent."""
    process = start("produce", "orders", stdin=PIPE)
    assert process.stdin is not None
    for count, text in enumerate((b"a\n", b"b\nc\nhal"), 1):
        process.stdin.write(text)
        process.stdin.flush()
        await until(
            lambda count=count: len(kafka_cluster.log("orders", 0)) >= 2 * count - 1,  # type: ignore[misc]
            "the messages are in the log",
            timeout_s=20,
        )
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert err == b"aiokafka08: interrupted: 3 of 3 messages were acknowledged\n"
    assert [one.value for one in kafka_cluster.log("orders", 0)] == [b"a", b"b", b"c"]


async def test_several_ctrl_c_at_once_leave_the_counts(
    start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.fault(ProduceRequest, nth=2, times=None, then=Silence())
    process = start("produce", "orders", "--timeout", "1", stdin=PIPE)
    assert process.stdin is not None
    for count, text in enumerate((b"a\n", b"b\n"), 1):
        process.stdin.write(text)
        process.stdin.flush()
        await until(
            lambda count=count: len(kafka_cluster.log("orders", 0)) == count,  # type: ignore[misc]
            "the message is in the log",
            timeout_s=20,
        )
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.004)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert err == b"aiokafka08: interrupted: 1 of 2 messages were acknowledged\n"


@pytest.mark.parametrize("more_signals", [False, True])
async def test_signal_ends_a_producer_whose_broker_hangs(
    more_signals: bool, start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    """It waits for the time of --timeout; a further Ctrl-C ends the wait."""
    kafka_cluster.fault(ProduceRequest, nth=2, times=None, then=Silence())
    timeout = ["--timeout", "100" if more_signals else "1"]
    process = start("produce", "orders", *timeout, stdin=PIPE)
    assert process.stdin is not None
    for count, text in enumerate((b"a\n", b"b\n"), 1):
        process.stdin.write(text)
        process.stdin.flush()
        await until(
            lambda count=count: len(kafka_cluster.log("orders", 0)) == count,  # type: ignore[misc]
            "the message is in the log",
            timeout_s=20,
        )
    process.send_signal(signal.SIGINT)
    if more_signals:
        # One at a time: of signals in quick succession the later ones end the process at once.
        pauses = itertools.count()

        def has_ended() -> bool:
            if next(pauses) and process.poll() is None:
                process.send_signal(signal.SIGINT)
            return process.poll() is not None

        await until(
            has_ended,
            "a further Ctrl-C ends the process",
            timeout_s=20,
            pause_s=1.5,
        )
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert err == b"aiokafka08: interrupted: 1 of 2 messages were acknowledged\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_signal_ends_a_reader_that_follows(
    number: int, code: int, start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, [b"tea"])
    process = start("consume", "orders")
    assert process.stdout is not None
    assert process.stdout.readline() == b"tea\n"
    process.send_signal(number)
    assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == code


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1})
@pytest.mark.parametrize("group", [(), pytest.param(("-g", "billing"), marks=pytest.mark.full)])
async def test_follower_says_once_per_outage_that_no_broker_responds(
    start: Started, kafka_cluster: EmbeddedCluster, tmp_path: Path, group: tuple[str, ...]
) -> None:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        process = start("consume", "orders", *group, stderr=stderr)
    assert process.stdout is not None
    for outage in (1, 2):
        kafka_cluster.append("orders", 0, [b"tea"])
        assert await asyncio.to_thread(process.stdout.readline) == b"tea\n"
        kafka_cluster.stop(0)
        await until(
            lambda outage=outage: len(log.read_text().splitlines()) >= outage,  # type: ignore[misc]
            "the outage is on stderr",
            timeout_s=20,
        )
        kafka_cluster.restart(0)
    lines = log.read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "no broker has responded for" in line
        assert "Reading goes on when one does" in line


async def test_closed_pipe_ends_a_reader_silently(
    start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    """No further message comes that it could fail to write."""
    kafka_cluster.append("orders", 0, [b"tea"])
    process = start("consume", "orders")
    assert process.stdout is not None
    assert process.stdout.readline() == b"tea\n"
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=20)[1] == b""
    assert process.returncode == 141


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
@pytest.mark.parametrize(
    "words",
    [
        ("consume", "orders", "-g", "billing"),
        ("kcat", "-o", "beginning", "-G", "billing", "orders"),
    ],
)
def test_group_commits_no_more_than_the_reader_of_the_pipe_took(
    start: Started, kafka_cluster: EmbeddedCluster, words: tuple[str, ...]
) -> None:
    """What is unread in the pipe comes again, instead of being lost with the reader."""
    line = b"%099d\n"
    kafka_cluster.append("orders", 0, [line[:-1] % number for number in range(30_000)])
    process = start(*words)
    assert process.stdout is not None
    taken = 0
    while taken < 300_000:
        taken += len(os.read(process.stdout.fileno(), 10_000))
    process.stdout.close()
    process.stdout = None
    err = process.communicate(timeout=20)[1].decode()
    assert process.returncode == 141
    assert "group 'billing': the reader of stdout has ended" in err
    committed = kafka_cluster.committed("billing", "orders", 0)
    assert committed is not None
    assert f"{committed.offset} messages committed: the blocks that it took" in err
    assert err.endswith("give -c 1\n" if words[0] == "kcat" else "give --count 1\n")
    # A member writes 16 KiB at a time.
    assert taken // 100 - 200 < committed.offset <= taken // 100


def test_closed_pipe_behind_tee_loses_no_message(
    start: Started, kafka_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """What was read when the write fails is sent and acknowledged."""
    path = tmp_path / "input"
    path.write_bytes(b"0123456789\n" * 100_000)
    with path.open("rb") as source:
        process = start("produce", "orders", "--tee", stdin=source)
    assert process.stdout is not None
    assert process.stdout.readline() == b"0123456789\n"
    process.stdout.close()
    process.stdout = None
    err = process.communicate(timeout=20)[1].decode()
    assert process.returncode == 141
    sent = len(kafka_cluster.log("orders", 0))
    assert sent > 0
    assert err == f"aiokafka08: interrupted: {sent} of {sent} messages were acknowledged\n"


def test_slow_reader_gets_everything_in_order(
    start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    values = [b"%07d" % number * 20 for number in range(20_000)]
    kafka_cluster.append("orders", 0, values)
    process = start("consume", "orders", "--exit")
    assert process.stdout is not None
    out = bytearray()
    while block := process.stdout.read(50_000):
        out += block
    assert out.split() == values
    assert process.wait(20) == 0


def test_full_disk_is_one_line_of_consume(start: Started, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.append("orders", 0, [b"tea"])
    with open("/dev/full", "wb") as full:
        process = start("consume", "orders", "--exit", stdout=full)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (1, b"aiokafka08: stdout: No space left on device\n")


@pytest.mark.parametrize(
    ("value", "code"), [("tea ü\x1b[0m".encode(), 0), (b"\xff", 1), (b"a\0b", 1)]
)
def test_terminal_gets_text_only(
    value: bytes, code: int, start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, [value])
    ours, its = pty.openpty()
    process = start("consume", "orders", "--exit", stdout=its)
    os.close(its)
    _, err = process.communicate(timeout=20)
    shown = os.read(ours, 1000) if code == 0 else b""
    os.close(ours)
    assert process.returncode == code
    if code == 0:
        assert shown == value + b"\r\n"
    else:
        assert b"not text, and stdout is a terminal" in err
        assert b"use --format jsonl, hex or base64" in err
        assert err.count(b"\n") == 1


@pytest.mark.parametrize(
    ("key", "options", "code"),
    [
        (b"\x1b[2J", ["--key-delimiter", "="], 1),
        (b"\x1b[2J", ["--format", "jsonl"], 0),
        (b"\x1b[2J", [], 0),
        ("\x9b2J".encode(), ["--key-delimiter", "="], 1),
        ("\x9b2J".encode(), ["--format", "jsonl"], 1),
    ],
)
def test_terminal_gets_no_key_with_escape_sequences(
    key: bytes, options: list[str], code: int, start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    """JSON has escapes for those of ASCII; without an option the key isn't printed."""
    kafka_cluster.append("orders", 0, [b"tea"], [key])
    ours, its = pty.openpty()
    process = start("consume", "orders", "--exit", *options, stdout=its)
    os.close(its)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code, err
    shown = os.read(ours, 1000) if code == 0 else b""
    os.close(ours)
    assert key not in shown
    assert (b"the key has control characters" in err) == bool(code)


def test_binary_advice_of_kcat_is_a_flag_of_kcat(
    start: Started, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, [b"\xff"])
    ours, its = pty.openpty()
    process = start("kcat", "-C", "-q", "-e", "-t", "orders", stdout=its)
    os.close(its)
    _, err = process.communicate(timeout=20)
    os.close(ours)
    assert process.returncode == 1
    assert err.endswith(b"not text, and stdout is a terminal. Redirect stdout, or use -J\n")


@pytest.mark.parametrize("group", [[], ["--group", "billing"]])
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_deleted_topic_ends_a_reader_and_stays_deleted(
    group: list[str], cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    kafka_cluster.append("orders", 0, [b"tea"])
    waits = kafka_cluster.next_request(
        FetchRequest,
        where=lambda one: any(
            part.fetch_offset == 1 for topic in one.topics for part in topic.partitions
        ),
    )
    waits.add_done_callback(lambda _: kafka_cluster.delete_topic("orders"))
    done = cli("consume", "orders", "-b", kafka_cluster.bootstrap_servers, *group)
    assert (done.code, done.out) == (1, b"tea\n")
    assert done.err == (
        "aiokafka08: topic 'orders': deleted while it was read; brokers don't list it any more\n"
    )
    assert not any(one.topics for one in kafka_cluster.requests(MetadataRequest))
