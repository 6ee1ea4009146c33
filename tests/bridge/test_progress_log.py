"""What a run says about its progress, and about a cluster that it doesn't reach."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.copy_rate import CopyRate, summary_text
from aiokafka08.bridge.copy.copy_starts import CopyStart
from aiokafka08.bridge.copy.progress_log import BEHIND_S, LINE_S, ProgressLog
from aiokafka08.bridge.copy.status import CopyStatus, PartitionStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.sink.events import RecordRefused, TransactionCommitted
from aiokafka08.bridge.source.addresses import named_addresses
from aiokafka08.bridge.source.source_clients import source_admin
from aiokafka08.bridge.target.librdkafka_log import LibrdkafkaLog, close_librdkafka_log
from aiokafka08.bridge.target.target_cluster import TargetWatch
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.errors import KafkaConfigurationError, KafkaConnectionError, NoBrokersAvailable
from aiokafka08.structs import TopicPartition
from tests.bridge.sessions import UnstartedSession, record
from tests.support.waiting import until

FILE = (
    'name="x"\n[source]\nbootstrap="127.0.0.1:1"\nzookeeper="zk:1"\n'
    '[target]\nbootstrap="127.0.0.1:1"\n[topics]\ninclude=["t"]\n'
)
CONFIG = parse_config(FILE)
TP = TopicPartition("t", 0)
LOG_LINE = r"aiokafka08: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4} [A-Z]+ "
PROGRAM = (
    "import signal, sys; from aiokafka08.cli.main import main; "
    "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main(sys.argv[1:]))"
)
"""The command line, in a process that takes Ctrl-C also as a job in a shell's background."""


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    # On a busy machine asyncio logs slow callbacks.
    records = [one for one in caplog.records if one.name.startswith("aiokafka08")]
    caplog.clear()
    return [one.getMessage().removeprefix("aiokafka08-bridge.x: ") for one in records]


def test_backlog_is_logged_each_minute_until_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = CopyStatus(problem=None)
    status.partitions[TP] = copied = PartitionStatus(0)
    log = ProgressLog(CONFIG, status)
    log.look(0.0)
    copied.observe(1000, 0.0)
    log.look(1.0)
    assert lines(caplog) == []
    copied.position = status.records = 600
    log.look(LINE_S)
    assert lines(caplog) == [
        "600 messages copied since the start, 400 behind, 10 messages/s, about 40 s left"
    ]
    copied.position = status.records = 990
    copied.observe(1010, LINE_S + 1)
    log.look(LINE_S + 1)
    copied.position = status.records = (
        1000  # the ends of the start are reached; ten have come since
    )
    copied.observe(1010, LINE_S + 2)
    log.look(LINE_S + 2)
    assert lines(caplog) == ["caught up: 1000 messages copied since the start"]
    copied.position = status.records = 1010
    copied.observe(1010, LINE_S + 3)
    log.look(LINE_S + 100)
    assert lines(caplog) == []


def test_rate_is_that_of_the_last_seconds_and_tells_the_time_left() -> None:
    status = CopyStatus(problem=None)
    status.partitions[TP] = copied = PartitionStatus(0, end=100_000)
    rate = CopyRate(status, 0.0)
    assert rate.text(0.0) == "0 messages copied (0 B), 100000 behind"
    for second in range(1, 31):
        done = 100 * second if second <= 10 else 1000 + 1000 * (second - 10)
        copied.position = status.records = done
        status.size = 250 * done
        text = rate.text(float(second))
    assert text == (
        "21000 messages copied (5.2 MB), 79000 behind, 1000/s (250.0 kB/s), about 1 min 19 s left"
    )
    status.partitions[TP._replace(partition=1)] = PartitionStatus(0)  # its end isn't known yet
    text = rate.text(30.5)
    assert "at least 79000 behind" in text
    assert "left" not in text
    del status.partitions[TP._replace(partition=1)]
    copied.position = status.records = 100_000
    assert "left" not in rate.text(31.0)


def test_summary_has_sizes_and_durations() -> None:
    status = CopyStatus(records=90_000, size=1_200_000_000, transactions=7, copying_s=3600.0)
    assert summary_text(status, 3725.0) == (
        "90000 messages in 7 transactions, 1.2 GB in 1 h 2 min, 25 messages/s while it copied"
    )
    assert summary_text(CopyStatus(), 0.0) == "0 messages in 0 transactions, 0 B in 0.0 s"


@pytest.mark.parametrize("is_refused", [False, True])
async def test_rate_at_the_end_leaves_out_idle_time(is_refused: bool) -> None:
    """A run that follows its source mostly waits."""
    made = UnstartedSession(CONFIG)

    async def copied(seconds: float, first: int, count: int) -> None:
        await made.read({TP: [record(TP, first + number) for number in range(count)]})
        made.now += seconds
        positions = {TP: first + count}
        made.sink.events.append(TransactionCommitted(0, positions, {}, count, 10 * count))
        await made.session.step(None)

    await made.add({TP: CopyStart(0, False)})
    made.now += 100
    await copied(2.0, 0, 60)
    if is_refused:
        await made.read({TP: [record(TP, 60)]})
        made.now += 1.0
        made.sink.events.append(RecordRefused(0, 1, TP, 60, "INVALID_RECORD"))
        await made.session.step(None)
        made.now += 1000
    else:
        made.now += 1000
        await copied(1.0, 60, 30)
        made.now += 1000
    made.now += 7
    assert made.status.copying_s == 3.0
    assert summary_text(made.status, 2110.0).endswith(
        f"35 min 10 s, {20 if is_refused else 30} messages/s while it copied"
    )


def test_copy_that_falls_behind_says_so_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = CopyStatus(problem=None)
    status.partitions[TP] = copied = PartitionStatus(7, end=7)
    log = ProgressLog(CONFIG, status)
    log.look(0.0)
    assert lines(caplog) == ["caught up: 0 messages copied since the start"]
    copied.observe(17, 10.0)
    log.look(10.0 + BEHIND_S - 1)
    assert lines(caplog) == []
    log.look(10.0 + BEHIND_S)
    assert lines(caplog) == ["10 messages behind"]
    copied.position, status.records = 17, 10
    copied.observe(17, 80.0)
    log.look(80.0)
    assert lines(caplog) == ["caught up again: 10 messages copied since the start"]


def test_stopped_partition_is_named_in_place_of_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It keeps no copy behind: the line comes once, and "caught up" once it is copied again."""
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = CopyStatus(problem=None, records=1)
    status.partitions[TP] = stopped = PartitionStatus(0, end=9, stopped="t/0: no leader")
    status.partitions[TP._replace(partition=1)] = PartitionStatus(4, end=4)
    log = ProgressLog(CONFIG, status)
    log.look(0.0)
    log.look(1.0)
    [warning] = [one for one in caplog.records if one.name.startswith("aiokafka08")]
    assert warning.levelno == logging.WARNING
    assert lines(caplog) == [
        "not caught up: 1 message copied since the start, all but what is stopped: t/0: no leader"
    ]
    stopped.stopped = None
    log.look(2.0)
    assert lines(caplog) == []
    stopped.position, status.records = 9, 10
    log.look(3.0)
    assert lines(caplog) == ["caught up: 10 messages copied since the start"]
    status.refused_topics["u"] = "topic 'u': too few partitions"
    log.look(4.0)
    assert lines(caplog) == []  # it was logged when it was refused


def test_refused_topic_is_named_in_place_of_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = CopyStatus(problem=None, refused_topics={"u": "topic 'u': too few partitions"})
    ProgressLog(CONFIG, status).look(0.0)
    [line] = lines(caplog)
    assert line.startswith("not caught up: ")
    assert line.endswith("stopped: topic 'u': too few partitions")


def test_session_that_has_failed_logs_no_progress(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = CopyStatus(problem="the target is away")
    status.partitions[TP] = PartitionStatus(7, end=7)
    ProgressLog(CONFIG, status).look(0.0)
    assert lines(caplog) == []


def test_outage_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also while no session goes on."""
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = CopyStatus(problem="the target is away")
    log = ProgressLog(CONFIG, status)
    for cluster in ("target", "source"):
        for _ in range(3):
            status.note_away(cluster, "Connection refused")
            log.look(0.0)
        assert lines(caplog) == [f"the {cluster} is away, waiting for it: Connection refused"]
        for _ in range(3):
            status.note_away(cluster, None)
            log.look(0.0)
        assert lines(caplog) == [f"the {cluster} is back after 0.0 s"]
    status.note_away("target", "Connection refused")
    log.look(0.0)
    status.begin_session()
    log.look(0.0)
    assert lines(caplog)[1].startswith("the target is back after")


class LibrdkafkaError:
    def __init__(self, name: str, text: str) -> None:
        self.name, self.str = lambda: name, lambda: text


def test_target_is_away_if_nothing_is_connected_and_a_connection_fails() -> None:
    """Brokers close idle connections, and one of several may be away."""
    reports: list[str | None] = []
    watch = TargetWatch(CONFIG)
    watch.report = reports.append
    refused = LibrdkafkaError("_TRANSPORT", "b:1/1: Connect to b failed: Connection refused")
    down = LibrdkafkaError("_ALL_BROKERS_DOWN", "1/1 brokers are down")
    watch(LibrdkafkaError("_TRANSPORT", "b:1/1: Disconnected (after 9 ms in state UP)"))
    watch(down)
    assert reports == []
    watch(refused)
    assert reports == [refused.str()]
    watch.note_response()
    watch(refused)
    assert reports == [refused.str(), None]
    watch.take_late(lambda _: watch(down))
    assert reports == [refused.str(), None]
    watch(refused)
    assert reports[-1] == refused.str()


@pytest.mark.parametrize(("kind", "level"), [("TXNERR", "DEBUG"), ("FAIL", "WARNING")])
def test_librdkafka_lines_have_prefix_and_level(
    kind: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The bridge logs or raises errors of transactions itself."""
    caplog.set_level(logging.DEBUG, "aiokafka08.bridge")
    close_librdkafka_log()
    caplog.clear()  # of the lines that other tests have repeated
    LibrdkafkaLog("client").log(logging.CRITICAL, "%s [%s] %s", kind, "producer-1", "why")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        (level, f"client: librdkafka: {kind} [producer-1] why")
    ]


def test_lines_of_librdkafka_that_repeat_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """While the target is away each client of each session logs several lines in a second."""
    reason = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"
    for client in range(3):  # each session has new ones
        log = LibrdkafkaLog("client")
        for number in range(10):
            line = (
                f"[thrd:127.0.0.1:9092/{number}]: 127.0.0.1:9092/{number}: {reason} "
                f"(after {number}ms in state CONNECT, {number} identical error(s) suppressed)"
            )
            log.log(logging.ERROR, "%s [%s] %s", "FAIL", f"x#producer-{client}", line)
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "x#producer-9", "b: SSL handshake failed")
    close_librdkafka_log()
    first, other, counted = lines(caplog)
    assert reason in first
    assert "SSL handshake failed" in other
    assert counted == f"{first} (29 more times within 60 s)"


async def test_wrong_address_of_a_cluster_names_its_key() -> None:
    with pytest.raises(TargetUnavailableError, match=r"^TargetUn\w+: target\.bootstrap='127"):
        await refuse_old_target(CONFIG)
    with pytest.raises(NoBrokersAvailable, match=r": source\.bootstrap='127.0.0.1:1': no broker"):
        async with source_admin(CONFIG):
            pass


def test_wrong_address_of_zookeeper_names_its_key() -> None:
    error = KafkaConnectionError("ZooKeeper zk:1 can't be reached: time-out", 7)
    with pytest.raises(KafkaConnectionError), named_addresses(CONFIG.source):
        raise error
    assert error.text == "source.zookeeper: ZooKeeper zk:1 can't be reached: time-out"
    assert error.args[1] == 7


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "ZooKeeper names no live broker. Check that zookeeper_connect is the ZooKeeper",
            "ZooKeeper names no live broker. Check that source.zookeeper is the ZooKeeper",
        ),
        (
            "ZooKeeper zk:1 isn't that of the brokers: it registers none. Check zookeeper_connect, "
            "its chroot, and bootstrap_servers. Set zookeeper_check='warn'",
            "source.zookeeper: ZooKeeper zk:1 isn't that of the brokers: it registers none. Check "
            "source.zookeeper, its chroot, and source.bootstrap. Set source.zookeeper_check = "
            '"warn"',
        ),
        (
            "to read the node itself, give zookeeper_connect='host:2181/chroot'",
            'to read the node itself, give source.zookeeper = "host:2181/chroot"',
        ),
        (
            "zookeeper_connect: kazoo isn't installed",
            "source.zookeeper: kazoo isn't installed",
        ),
    ],
)
def test_errors_of_the_source_name_keys_of_the_file(text: str, named: str) -> None:
    error = KafkaConfigurationError(text)
    with pytest.raises(KafkaConfigurationError), named_addresses(CONFIG.source):
        raise error
    assert error.text == named


async def test_run_that_never_started_says_so_each_time(caplog: pytest.LogCaptureFixture) -> None:
    status = CopyStatus()
    running = asyncio.create_task(run_bridge(CONFIG, status))
    try:
        await until(lambda: status.sessions >= 3, "two sessions have failed", 30)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    found = lines(caplog)
    [away] = [one for one in found if one.startswith("the target is away, waiting for it")]
    found.remove(away)
    assert len(found) >= 2
    assert all(one.startswith("not started yet (see bridge.toml), next") for one in found)
    assert all("target.bootstrap='127.0.0.1:1'" in one for one in found)


@pytest.mark.parametrize(
    ("command", "last"),
    [
        (
            "run",
            "stopped; not started",
        ),
        ("verify", "stopped; --resume goes on where it ended"),
    ],
)
def test_ctrl_c_says_what_it_has_left(command: str, last: str, tmp_path: Path) -> None:
    """The target accepts a connection and doesn't respond."""
    file = tmp_path / "bridge.toml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(FILE.replace("127.0.0.1:1", address))
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "bridge", command, str(file)],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=60)[1]
            connection.close()
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith(f"aiokafka08: {last}")
    assert all(re.match(LOG_LINE, line) for line in errors.splitlines()[:-1])
