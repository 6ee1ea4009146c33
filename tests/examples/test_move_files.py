"""The files of examples/move_cluster/ fit each other, the code and docs/guides/moving.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aiokafka08._tools.gateway.config import read_settings
from aiokafka08.bridge.config import read_config
from tests.support.paths import ROOT

FOLDER = ROOT / "examples/move_cluster"
GUIDE = (ROOT / "docs/guides/moving.md").read_text()
SCRIPT = (FOLDER / "move.sh").read_text()


def test_bridges_read_their_files() -> None:
    orders, clicks, nightly = (
        read_config(FOLDER / f"{name}.toml") for name in ("orders", "clicks", "nightly")
    )
    assert orders.name != clicks.name
    assert orders.target.bootstrap == clicks.target.bootstrap
    # By this copy the offsets of the job's file are translated.
    assert (nightly.name, nightly.topics, nightly.target) == (
        orders.name,
        orders.topics,
        orders.target,
    )
    assert nightly.groups.store == "file"


def test_gateways_differ_in_their_addresses_only() -> None:
    first, second = ((FOLDER / f"gateway-{n}.toml").read_text() for n in (1, 2))
    changed = first.replace("gateway-1", "gateway-2")
    assert changed.replace('listen = "10.0.0.5', 'listen = "10.0.0.6') == second
    options = read_settings(FOLDER / "gateway-1.toml", {}).options
    assert options.is_read_committed
    peers = ",".join(f"{host}:{port}" for host, port in options.peers)
    assert f'BOOTSTRAP="{peers}"' in (FOLDER / "move.env").read_text()


def test_guide_names_each_step_and_file() -> None:
    steps = re.findall(r"^  ([\w-]+)\)$", SCRIPT, re.MULTILINE)
    assert set(re.findall(r"^ +\./move\.sh ([\w-]+)$", GUIDE, re.MULTILINE)) == set(steps)
    usage = subprocess.run([FOLDER / "move.sh"], capture_output=True, text=True, timeout=60)
    assert usage.returncode == 2
    assert re.findall(r"^  \./move\.sh ([\w-]+) ", usage.stderr, re.MULTILINE) == steps
    linked = set(re.findall(r"examples/move_cluster/([\w.-]+)\)", GUIDE))
    assert linked == {file.name for file in FOLDER.iterdir()}


@pytest.mark.parametrize("code", [0, 1])
def test_look_names_each_file_and_says_whether_all_is_ready(tmp_path: Path, code: int) -> None:
    """The commands are called with each file; here a program stands in for them."""
    shutil.copytree(FOLDER, tmp_path / "move")
    program = tmp_path / "aiokafka08"
    program.write_text(f"#!/bin/sh\necho no broker responds >&2\nexit {code}\n")
    program.chmod(0o755)
    done = subprocess.run(
        [tmp_path / "move/move.sh", "look"],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    commands = [f"bridge plan {name}.toml" for name in ("orders", "clicks")]
    commands += [f"gateway check gateway-{number}.toml" for number in (1, 2)]
    assert done.stdout == "".join(f"== {one}\nno broker responds\n" for one in commands)
    assert done.returncode == code
