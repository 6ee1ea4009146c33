"""The files in examples/bridge/ fit the code."""

from __future__ import annotations

import configparser
from pathlib import Path

from aiokafka08.bridge.config import read_config
from aiokafka08.cli.main import FENCED, WRONG_USAGE

FOLDER = Path(__file__).parents[2] / "examples/bridge"


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
