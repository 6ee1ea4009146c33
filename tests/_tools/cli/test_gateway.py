"""The command `gateway`: its errors, and a process that serves and ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, command_line
from tests.brokers.ports import free_port
from tests.brokers.wire import metadata


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "kafka:9092", "--listen", "0.0.0.0:9092"], "--allow, or say --open"),
        (["--to", "kafka:9092", "--listen", "0.0.0.0:9092", "--open"], "--advertise"),
        (["--to", "kafka:9092", "--listen", "here"], "--listen here: expected ADDRESS:PORT"),
        (["--to", "kafka:9092", "--allow", "10.0.0.1/8"], "--allow 10.0.0.1/8: "),
        (["--to", "kafka:9092", "--metrics", "9094"], "--metrics 9094: expected [HOST]:PORT"),
        (["--to", "http://kafka"], "http://kafka"),
        ([], "--to"),
    ],
)
def test_wrong_options_are_wrong_usage(cli: RunCommand, arguments: list[str], text: str) -> None:
    done = cli("gateway", *arguments)
    assert done.code == 2
    assert text in done.err


def test_damaged_state_is_wrong_usage(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "listeners.json"
    path.write_text("{")
    done = cli("gateway", "--to", "kafka:9092", "--state", str(path))
    assert done.code == 2
    assert "listeners.json: not a table of listeners" in done.err


def test_target_that_cannot_be_reached_is_a_failure(cli: RunCommand) -> None:
    done = cli("gateway", "--to", f"127.0.0.1:{free_port()}")
    assert done.code == 1
    assert "the target can't be reached: 127.0.0.1:" in done.err


def test_process_serves_until_sigterm_and_ends_with_0(tmp_path: Path) -> None:
    port, state = free_port(), tmp_path / "listeners.json"
    with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        metrics_port = free_port()
        options = ["--listen", f"127.0.0.1:{port}", "--state", str(state)]
        options += ["--metrics", f":{metrics_port}"]
        command = command_line("gateway", "--to", cluster.bootstrap_servers, *options)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            lines: list[str] = []
            while not re.search(r"gateway: listening on port \d+ for node 0", "".join(lines)):
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            assert metadata(port, ["t"]).brokers == {0: ("127.0.0.1", port)}
            address = f"http://127.0.0.1:{metrics_port}"
            with urllib.request.urlopen(f"{address}/clients") as page:
                (client,) = json.load(page)
            assert client["client_id"] == "harness"
            with urllib.request.urlopen(f"{address}/metrics") as page:
                text = page.read().decode()
            assert 'api="Metadata",version="0",fate="passed"} 1' in text
            process.send_signal(signal.SIGTERM)
            rest = process.communicate(timeout=30)[1]
        assert process.returncode == 0
        assert "Traceback" not in "".join(lines) + rest
        assert rest.endswith("aiokafka08: stopped\n")
    assert '"0": 0' in state.read_text()
