"""The end of the ingestion daemon while clients send: in a process, on an embedded cluster."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Delay, EmbeddedCluster
from tests.support.environments import as_users
from tests.support.paths import ROOT
from tests.support.processes import rest_of_output

pytest.importorskip("uvloop")


@contextmanager
def running_daemon(cluster: EmbeddedCluster, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the daemon until the block has ended."""
    arguments = ["--bootstrap", cluster.bootstrap_servers, "--topic", "t", *options]
    process = subprocess.Popen(
        [sys.executable, "examples/ingest_daemon.py", *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=as_users(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("clients", [1, 5])
def test_each_line_read_before_the_end_is_sent_and_counted(clients: int) -> None:
    """The brokers are slow, so clients send on while the daemon waits for its last responses."""
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        with running_daemon(cluster, "--listen", "127.0.0.1:0") as process:
            assert process.stderr is not None
            log: list[str] = []
            while not (found := re.search(r"listening on (.*):(\d+)$", "".join(log).rstrip())):
                log.append(process.stderr.readline())
                assert log[-1], log
            address = (found[1], int(found[2]))
            cluster.fault(ProduceRequest, then=Delay(0.3), times=None)
            senders = [threading.Thread(target=send_lines, args=[address]) for _ in range(clients)]
            for sender in senders:
                sender.start()
            cluster.next_request(ProduceRequest, nth=2).result(20)
            process.send_signal(signal.SIGTERM)
            for sender in senders:
                sender.join(20)
                assert not sender.is_alive(), "its connection is open"
            log += rest_of_output(process, 20)[1].splitlines()
        stored = [message.value for message in cluster.log("t", 0)]
    assert log[-1].endswith(f" {len(stored)} lines acknowledged, 0 failed")
    for line in log:
        assert re.match(rf"\d{{4}}-\d\d-\d\d [\d:,]+ {process.pid} [A-Z]+ ", line), line
    assert any(f" ingest-{process.pid}: " in line for line in log), log
    assert process.returncode == 0
    assert {len(line or b"") for line in stored} == {LINE_BYTES}, "no line is cut"


@pytest.mark.parametrize("source", ["connection", "pipe"])
def test_the_end_sends_what_this_machine_has_received(source: str) -> None:
    """The daemon is stopped by a signal, so that it reads nothing while the lines arrive."""
    line = b"x" * 99 + b"\n"
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        with running_daemon(
            cluster, *(["--listen", "127.0.0.1:0"] if source == "connection" else [])
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            with contextlib.ExitStack() as stack:
                file, count = process.stdin.fileno(), 400  # a socket takes these at once
                if source == "pipe":
                    fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, 1024 * 1024)
                    count = 10_000
                else:
                    log = ""
                    while not (found := re.search(r"listening on (.*):(\d+)\n", log)):
                        log += process.stderr.readline()
                    address = (found[1], int(found[2]))
                    peer = stack.enter_context(socket.create_connection(address))
                    file = peer.fileno()
                os.write(file, line)
                while not cluster.log("t", 0):
                    time.sleep(0.01)
                process.send_signal(signal.SIGSTOP)
                os.set_blocking(file, False)
                sent = 1 + os.write(file, line * count) // len(line)
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
                assert process.wait(20) == 0
            log = process.stderr.read()
        stored = [message.value for message in cluster.log("t", 0)]
    assert stored == [line[:-1]] * sent
    assert log.endswith(f" {sent} lines acknowledged, 0 failed\n")


def test_the_end_of_a_pipe_leaves_a_writer_that_goes_on() -> None:
    """The pipe holds more than the reader's buffer takes without a pause."""
    line = b"x" * 99 + b"\n"
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        with running_daemon(cluster) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            file = process.stdin.fileno()
            fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, 1024 * 1024)
            os.write(file, line)
            while not cluster.log("t", 0):
                time.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            os.set_blocking(file, False)
            written = os.write(file, line * 10_000)
            os.set_blocking(file, True)
            writer = threading.Thread(target=write_lines, args=[file, line, written])
            writer.start()
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            process.wait(20)
            log = process.stderr.read()
            writer.join(20)
        stored = [message.value for message in cluster.log("t", 0)]
    assert "Traceback" not in log
    assert set(stored) == {line[:-1]}, "no line is cut"
    assert len(stored) > written // len(line)
    assert log.endswith(f" {len(stored)} lines acknowledged, 0 failed\n")
    assert process.returncode == 0


def test_lines_that_are_not_sent_are_counted_and_named() -> None:
    """A line that is too long fails alone; the end says how many lines it waits for."""
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        with running_daemon(cluster) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("one\n" + "x" * 900_001 + "\ntwo\n")
            process.stdin.flush()
            while len(cluster.log("t", 0)) < 2:
                time.sleep(0.01)
            cluster.fault(ProduceRequest, then=Delay(2))
            held = cluster.next_request(ProduceRequest)
            process.stdin.write("three\nfour\n")
            process.stdin.flush()
            held.result(20)
            process.send_signal(signal.SIGTERM)
            log = rest_of_output(process, 20)[1]
        stored = [message.value for message in cluster.log("t", 0)]
    assert stored == [b"one", b"two", b"three", b"four"]
    assert " a line exceeds 900000 bytes" in log
    assert " stopping, 2 lines unsent\n" in log
    assert log.endswith(" 4 lines acknowledged, 1 failed\n")
    assert process.returncode == 1


def test_closed_standard_input_is_an_error_of_one_line() -> None:
    daemon = [sys.executable, "examples/ingest_daemon.py", "--topic", "t"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *daemon],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=ROOT,
        env=as_users(),
    )
    assert done.returncode == 2
    assert " error: standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr


def write_lines(file: int, line: bytes, written: int) -> None:
    """Write lines behind so many bytes, until the reader ends."""
    with contextlib.suppress(BrokenPipeError):
        os.write(file, line[written % len(line) :])
        while True:
            os.write(file, line * 1000)


LINE_BYTES = 700


def send_lines(address: tuple[str, int]) -> None:
    """Send lines until the daemon ends the connection."""
    with socket.create_connection(address) as connection:
        try:
            while True:
                connection.sendall((b"x" * LINE_BYTES + b"\n") * 3)
                time.sleep(0.002)
        except OSError:
            return
