"""How much of an output its reader has taken."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from aiokafka08._tools.cli.moving.pipes import OutputPipe


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="others don't tell how much a pipe holds")
async def test_what_is_in_a_pipe_is_not_taken() -> None:
    reader, writer = os.pipe()
    output = OutputPipe(writer, enlarge=False)
    await output.write(b"x" * 1000)
    await output.write(b"y" * 500)
    assert (output.written_bytes, output.taken_bytes()) == (1500, 0)
    os.read(reader, 1200)
    assert output.taken_bytes() == 1200
    os.close(reader)
    assert output.taken_bytes() == 1200, "the reader left the rest"
    os.close(writer)


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="others have other counts")
async def test_what_is_in_a_socket_is_not_taken() -> None:
    reader, writer = socket.socketpair()
    output = OutputPipe(writer.fileno())
    await output.write(b"x" * 1000)
    assert output.taken_bytes() == 0
    reader.recv(1000)
    assert output.taken_bytes() == 1000
    await output.write(b"y" * 500)
    reader.close()  # its bytes go with it
    assert output.taken_bytes() == 1000
    writer.close()


async def test_all_in_a_file_is_taken(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        output = OutputPipe(file.fileno())
        await output.write(b"x" * 1000)
        assert output.taken_bytes() == output.written_bytes == 1000


@pytest.mark.parametrize("enlarge", [False, True])
async def test_a_pipe_is_enlarged_only_if_wanted(enlarge: bool) -> None:
    fcntl = pytest.importorskip("fcntl")
    if not hasattr(fcntl, "F_GETPIPE_SZ"):
        pytest.skip("the system has pipes of one size")
    reader, writer = os.pipe()
    before = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    OutputPipe(writer, enlarge=enlarge)
    assert (fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) > before) == enlarge
    os.close(reader)
    os.close(writer)
