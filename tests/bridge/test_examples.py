"""The files in examples/bridge/ fit the code."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from aiokafka08._tools.cli.main import FENCED, WRONG_USAGE
from aiokafka08.bridge.config import read_config
from tests.support.paths import ROOT

FOLDER = ROOT / "examples/bridge"


def test_example_file_is_valid() -> None:
    config = read_config(FOLDER / "bridge.toml")
    assert config.copy.producers == 2
    assert config.topics.includes("orders")
    assert not config.topics.includes("tmp-1")


def test_unit_does_not_restart_a_fenced_bridge() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(FOLDER / "aiokafka08-bridge.service")
    codes = unit["Service"]["RestartPreventExitStatus"].split()
    assert codes == [str(WRONG_USAGE), str(FENCED)]
    assert unit["Service"]["ExecStart"].split()[1:3] == ["bridge", "run"]


def test_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    """With a program that exists; where systemd isn't installed, only the keys are checked."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "aiokafka08-bridge.service")
    assert set(unit["Service"]) == {
        "User",
        "ExecStart",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
        "TimeoutStopSec",
        "MemoryMax",
    }
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    if (analyze := shutil.which("systemd-analyze")) is None:
        return
    program = unit["Service"]["ExecStart"].split()[0]
    text = (FOLDER / "aiokafka08-bridge.service").read_text()
    file = tmp_path / "aiokafka08-bridge.service"
    file.write_text(text.replace(program, sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_compose_file_runs_the_bridge_with_its_file() -> None:
    """`nox -s lint` checks the file against the schema of Compose."""
    document = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
    bridge = document["services"]["bridge"]
    settings, wheels = bridge["volumes"]
    source, path, _ = settings.split(":")
    assert (FOLDER / source).is_file()
    assert wheels == "./dist:/dist:ro"
    assert bridge["command"][-1].endswith(f"exec aiokafka08 bridge run {path}")
    assert bridge["restart"] == "no"
    port = (read_config(FOLDER / "bridge.toml").listen or "").removeprefix(":")
    assert bridge["ports"] == [f"{port}:{port}"]
    assert f":{port}/healthz" in bridge["healthcheck"]["test"][-1]
