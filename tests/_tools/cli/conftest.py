"""Run commands in this process: the fixture `cli`.

    def test_something(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
        done = cli("topics", "-b", kafka_cluster.bootstrap_servers)
        assert (done.code, done.out, done.err) == (0, b"", "")

An asynchronous test calls it in a thread: `await asyncio.to_thread(cli, …)`. What needs a process
of its own, such as signals and closed pipes, runs `command_line()` as a subprocess.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokafka08._tools.cli.main import main


class Done(NamedTuple):
    """What a command has done."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.out.decode().splitlines()


RunCommand = Callable[..., Done]


def command_line(*arguments: str) -> list[str]:
    """Return the command line of a subprocess."""
    return [sys.executable, "-m", "aiokafka08", *arguments]


@pytest.fixture(autouse=True)
def folder_of_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let tests have profiles of their own; `tests/conftest.py` hides those of the user."""
    monkeypatch.delenv("AIOKAFKA08_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """A function that runs a command line and returns exit code, stdout and stderr.

    Its keyword argument `stdin` is what the command can read, from a real file.
    """

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        path = tmp_path / "stdin"
        path.write_bytes(stdin)
        with monkeypatch.context() as patch, path.open() as source:
            patch.setattr(sys, "stdin", source)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(list(arguments))
            out.flush()
            data = out.buffer.getvalue()
        return Done(code, data, err.getvalue())

    return run
