"""The same seed gives the same run, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka08.testing import LINES
from tests.support.paths import ROOT
from tests.testing.simulation.round_trip import MESSAGES, run


@pytest.mark.parametrize("version", LINES)
def test_a_seed_gives_the_same_trace_again(version: str) -> None:
    values, trace_hash = run(3, version)
    assert sorted(values, key=int) == [b"%d" % number for number in range(MESSAGES)]
    assert run(3, version)[1] == trace_hash
    assert run(4, version)[1] != trace_hash


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
def test_the_trace_is_the_same_in_other_processes(version: str, tmp_path: Path) -> None:
    """With other hashes of strings, and from another working directory."""
    command = [sys.executable, "-m", "tests.testing.simulation.round_trip", "5", version]
    hashes = {
        subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed, cwd in (("0", ROOT), ("1", tmp_path), ("2", tmp_path))
    }
    assert hashes == {run(5, version)[1]}


def test_the_import_of_pyarrow_changes_no_trace() -> None:
    command = [sys.executable, "-m", "tests.testing.simulation.arrow_runs"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("False [b'tea'] ")
    assert second == first.replace("False", "True")
