"""Reading the output of processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import rest_of_output


def started(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_lines_that_came_with_the_first_one_are_not_lost() -> None:
    program = "import os, sys; os.write(2, b'one\\ntwo\\n'); sys.stdin.read(); print('three')"
    with started(program) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "one\n"
        assert rest_of_output(process, 20) == ("three\n", "two\n")


def test_process_can_be_left_by_communicate_afterwards() -> None:
    process = started("pass")
    assert rest_of_output(process, 20) == ("", "")
    assert process.communicate() == ("", "")


def test_output_larger_than_both_pipes_is_read() -> None:
    program = "import sys; print('o' * 1_000_000); print('e' * 1_000_000, file=sys.stderr)"
    with started(program) as process:
        assert list(map(len, rest_of_output(process, 20))) == [1_000_001, 1_000_001]


def test_process_that_does_not_end_is_killed() -> None:
    with started("import time; time.sleep(600)") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            rest_of_output(process, 0.1)
        assert process.wait(20) != 0
