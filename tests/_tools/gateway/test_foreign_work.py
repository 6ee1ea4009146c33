"""What a program of another client says of its end."""

from __future__ import annotations

from pathlib import Path

from tests._tools.gateway.foreign_work import Program
from tests.support.waiting import until


async def test_errors_have_exit_code_and_exception(tmp_path: Path) -> None:
    program = Program(tmp_path / "member.out", "consume", "a-client", "1", "servers", "g", "t")
    try:
        await until(lambda: not program.running, timeout_s=60)
    finally:
        program.stop()
    with (tmp_path / "member.err").open("a") as errors:
        errors.write("a line of another thread\n" * 1000)
    head = program.errors().partition("the end of stderr:")[0]
    assert head.startswith("exit code 1\n")
    assert "in consume" in head
    assert "KeyError: 'a-client'\n" in head
