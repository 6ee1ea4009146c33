"""`python -m aiokafka08.testing` as a process."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from aiokafka08._tools.cli.connection import _loop_factory
from aiokafka08.testing.__main__ import _runner, main
from tests.conformance.contract.wire.requests import metadata
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.environments import as_users
from tests.support.processes import rest_of_output


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "aiokafka08.testing", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=as_users())
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> tuple[str, list[int]]:
    assert process.stderr is not None
    line = process.stderr.readline()
    return line, [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", line)]


def test_folder_named_uvloop_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python makes a namespace package of a folder in the working directory."""
    monkeypatch.setitem(sys.modules, "uvloop", ModuleType("uvloop"))
    assert _runner() is asyncio.run
    assert _loop_factory() is None


@pytest.mark.parametrize(("version", "has_groups"), [("0.8.2", False), ("0.10", True)])
def test_start_says_where_groups_are(version: str, has_groups: bool) -> None:
    with running("--port", "0", "--version", version) as process:
        line, ports = first_line(process)
        assert (f"Kafka {version} in memory on" in line, len(ports)) == (True, 1)
        process.terminate()
        _, rest = rest_of_output(process, 10)
        assert ("for groups: --version 0.10" in rest) is not has_groups


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_runs_until_signal(number: signal.Signals) -> None:
    arguments = ("--brokers", "2", "--port", "0", "--version", "0.8.1", "--topic", "orders:4")
    with running(*arguments, "--topic", "single") as process:
        line, ports = first_line(process)
        assert "Kafka 0.8.1 in memory" in line
        assert len(ports) == 2
        with WireClient(("127.0.0.1", ports[1])) as wire:
            topics = {one.topic: len(one.partitions) for one in metadata(wire).topics}
            assert topics == {"orders": 4, "single": 1}
            process.send_signal(number)
            assert wire.is_closed()
        _, errors = rest_of_output(process, 10)
        assert process.returncode == 0
        assert "node 1: connection 1 from 127.0.0.1" in errors
        assert "Traceback" not in errors
        assert errors.splitlines()[-1].endswith("connection 1 ended")


def test_brokers_get_consecutive_ports() -> None:
    with running("--port", "0", "--quiet") as process:
        _, [free] = first_line(process)
        process.terminate()
        process.wait(10)
    with running("--brokers", "1", "--port", str(free)) as process:
        assert first_line(process)[1] == [free]
        with running("--port", str(free)) as second:
            _, errors = second.communicate(timeout=10)
            assert second.returncode == 1
            assert "in use" in errors
            assert "Traceback" not in errors


def test_advertised_port_is_named_to_clients() -> None:
    arguments = ("--brokers", "2", "--port", "0", "--version", "0.10", "--advertised-port", "19092")
    with running(*arguments) as process:
        _, ports = first_line(process)
        with WireClient(("127.0.0.1", ports[1])) as wire:
            assert [broker.port for broker in metadata(wire).brokers] == [19092, 19093]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--host", "192.0.2.1"], "--allow-remote"),
        (["--host", "0.0.0.0", "--allow-remote"], "--advertised-host"),
        (["--version", "0.7"], "0.8.0"),
        (["--topic", "t:many"], "--topic t:many: expected NAME or NAME:PARTITIONS"),
        (["--topic", "t:0"], "--topic t:0: expected NAME or NAME:PARTITIONS"),
    ],
)
def test_invalid_arguments_exit_with_message(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_zero_brokers_exit_with_message(caplog: pytest.LogCaptureFixture) -> None:
    assert main(["--brokers", "0"]) == 1
    assert "brokers=0" in caplog.text
