"""AIOKAFKA08_IMPL: what it chooses, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = "from aiokafka08.protocol import message_set; print(message_set.IMPLEMENTATION)"
WITHOUT = "import sys; sys.modules['aiokafka08.protocol._message_set_c'] = None; "


def run(program: str, wanted: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: one for name, one in os.environ.items() if name != "AIOKAFKA08_IMPL"}
    if wanted is not None:
        environment["AIOKAFKA08_IMPL"] = wanted
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("wanted", [None, ""])
def test_without_the_compiled_twin_the_pure_one_is_taken(wanted: str | None) -> None:
    assert run(WITHOUT + PROGRAM, wanted).stdout == "python\n"


def test_the_pure_twin_can_be_demanded() -> None:
    assert run(PROGRAM, "python").stdout == "python\n"


def test_a_demand_that_can_t_be_met_fails_and_says_what_is_missing() -> None:
    done = run(WITHOUT + PROGRAM, "c")
    assert done.returncode != 0
    assert "ImportError: AIOKAFKA08_IMPL=c, but aiokafka08.protocol._message_set_c" in done.stderr
    assert "C compiler" in done.stderr


def test_an_unknown_demand_names_what_is_allowed() -> None:
    done = run(PROGRAM, "rust")
    assert done.returncode != 0
    assert "AIOKAFKA08_IMPL='rust': allowed are 'c' and 'python'" in done.stderr
