"""The paths by which other programs' files name this package: docs/design.md lists them.

A unit of systemd, a job of Spark or a test suite isn't changed together with the package.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import re
import subprocess
import sys
import tomllib

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.spark]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = {
    "aiokafka08.environment": ["replace", "wall_time", "wall_time_ms"],
    "aiokafka08.embedded_headers": ["embed", "extract"],
    "aiokafka08.bridge.config": ["parse_config", "read_config"],
    "aiokafka08.bridge.spark_copy": ["copy_with_spark"],
    "aiokafka08.cli.main": ["main", "run_process"],
    "aiokafka08.testing": ["EmbeddedCluster"],
    "aiokafka08.testing.pytest_plugin": ["kafka_bootstrap_servers", "kafka_cluster"],
    "pyspark_kafka08": ["DefaultSource"],
}
"""Module → names that programs import from it."""
COMPILED = {"aiokafka08.protocol._message_set_c", "aiokafka08.producer._producer_c"}


@pytest.mark.parametrize("module", NAMES)
def test_path_that_other_programs_name_stays(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(found, name)] == []


def test_documented_paths_are_those_that_are_tested() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    paragraph = re.search(r"^These paths are .*?(?=\n\n)", page, re.M | re.S)
    assert paragraph is not None
    named = re.findall(r"`(?:python -m )?([\w.]+)`", paragraph[0])
    assert set(named) == NAMES.keys() | COMPILED


def test_compiled_modules_have_their_names() -> None:
    modules = {one["name"] for one in PROJECT["tool"]["setuptools"]["ext-modules"]}
    assert modules == COMPILED


def test_entry_points_are_found() -> None:
    project = PROJECT["project"]
    assert project["scripts"] == {"aiokafka08": "aiokafka08.cli.main:run_process"}
    assert project["entry-points"] == {
        "pytest11": {"aiokafka08": "aiokafka08.testing.pytest_plugin"}
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "aiokafka08.testing", "--help"],
        ["-m", "aiokafka08", "--help"],
        ["-c", "from aiokafka08.cli.main import run_process; run_process()", "--help"],
    ],
)
def test_process_of_a_path_starts(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage" in done.stdout.lower()
