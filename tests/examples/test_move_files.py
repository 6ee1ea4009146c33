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
BRIDGES = ("orders", "clicks")
AT = "-b 10.0.0.5:9092,10.0.0.6:9092 --zookeeper new-zk:2181"


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
    done, _ = run_step(tmp_path, "look", f"echo no broker responds >&2\nexit {code}")
    commands = [f"bridge plan {name}.toml" for name in BRIDGES]
    commands += [f"gateway check gateway-{number}.toml" for number in (1, 2)]
    assert done.stdout == "".join(f"== {one}\nno broker responds\n" for one in commands)
    assert done.returncode == code


@pytest.mark.parametrize("step", ["rehearse", "cut-over", "back"])
def test_gateways_that_are_away_end_a_step_before_it_changes_anything(
    tmp_path: Path, step: str
) -> None:
    done, called = run_step(tmp_path, step, '[ "$1" != group ]')
    assert done.returncode == 1
    assert called == [f"group list {AT} --format tsv"]
    assert done.stderr == f"error: {AT} (move.env): not reached. This step has changed nothing\n"


@pytest.mark.parametrize("step", ["rehearse", "cut-over", "back"])
def test_move_without_scala_groups_and_jobs_needs_no_gateway(tmp_path: Path, step: str) -> None:
    done, called = run_step(tmp_path, step, "", SCALA_GROUPS="", JOBS="")
    assert done.returncode == 0, done.stderr
    assert len(called) == len(BRIDGES)
    assert all(one.startswith("bridge ") for one in called)


def test_move_of_jobs_only_needs_no_zookeeper(tmp_path: Path) -> None:
    done, called = run_step(tmp_path, "cut-over", "", SCALA_GROUPS="")
    assert done.returncode == 0, done.stderr
    assert called[0] == "group list -b 10.0.0.5:9092,10.0.0.6:9092 --format tsv"
    assert not any("--zookeeper" in one for one in called)


def run_step(
    folder: Path, step: str, program: str, **names: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a step with a program in place of `aiokafka08`.

    Args:
        folder: gets a copy of the example.
        program: the program's lines for sh.
        names: values for move.env in place of its own.

    Returns:
        The ended script, and the arguments of each call of the program.
    """
    shutil.copytree(FOLDER, folder / "move")
    with (folder / "move/move.env").open("a") as settings:
        settings.writelines(f'{name}="{value}"\n' for name, value in names.items())
    calls = folder / "calls"
    calls.touch()
    stand_in = folder / "aiokafka08"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n{program}\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        [folder / "move/move.sh", step],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    return done, calls.read_text().splitlines()
