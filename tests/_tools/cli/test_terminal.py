"""Commands on a terminal, and on streams that aren't UTF-8."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from typing import NamedTuple

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._tools.cli import terminal
from aiokafka08._tools.cli.main import INTERRUPTED, WRONG_USAGE, main
from aiokafka08._tools.cli.notes import erase_status, note, show_status
from aiokafka08._tools.cli.output import redraw
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand

TOPIC = "orders.customer-events.v2"
GROUP = "evil\x1b[31m\x9b\u202e-Kübel-≈"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
"""What no foreign name may bring to a terminal."""

PROGRAM = (
    "import signal, sys; from aiokafka08.cli.main import main; "
    "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main(sys.argv[1:]))"
)
"""The command line, in a process that takes Ctrl-C also as a job in a shell's background."""

TABLES = (
    ("metadata",),
    ("topics",),
    ("offsets", TOPIC, "--at", "-1h"),
    ("group", "list"),
    ("group", "describe", GROUP),
    ("group", "lag", "--all"),
    ("group", "reset", GROUP, "--to-latest"),
    ("group", "export", GROUP),
    ("group", "lag", f"{GROUP}, which isn't there"),
    ("bench", "produce", TOPIC, "-c", "10"),
    ("doctor",),
    ("kcat", "-L"),
)


class Shown(NamedTuple):
    """What a command has written to its terminal."""

    code: int
    out: str
    err: str


OnTerminal = Callable[..., Shown]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """A function that runs a command with a terminal of an encoding, without colours."""

    def run(*arguments: str, encoding: str = "utf-8") -> Shown:
        streams = [TextIOWrapper(BytesIO(), encoding=encoding) for _ in range(2)]
        with monkeypatch.context() as patch:
            for name, stream in zip(("stdout", "stderr"), streams, strict=True):
                patch.setattr(stream, "isatty", lambda: True, raising=False)
                patch.setattr(sys, name, stream)
            patch.setenv("COLUMNS", "80")
            patch.setenv("TERM", "dumb")
            code = main(list(arguments))
        texts = []
        for stream in streams:
            stream.flush()
            assert isinstance(stream.buffer, BytesIO)
            texts.append(stream.buffer.getvalue().decode(encoding))
        return Shown(code, *texts)

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A cluster with a group whose name has control characters."""

    async def commit(servers: str) -> None:
        async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
            partitions = [TopicPartition(TOPIC, number) for number in range(3)]
            consumer.assign(partitions)
            await consumer.commit(dict.fromkeys(partitions, 0))

    with EmbeddedCluster(1, "0.10", {TOPIC: 3}) as cluster:
        asyncio.run(commit(cluster.bootstrap_servers))
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("command", TABLES, ids=" ".join)
def test_foreign_names_reach_no_terminal_raw(
    on_terminal: OnTerminal, server: str, command: tuple[str, ...], encoding: str
) -> None:
    shown = on_terminal(*command, "-b", server, encoding=encoding)
    assert shown.code in (0, 1), shown.err
    assert shown.out or shown.err
    assert not RAW.search(shown.out + shown.err)


@pytest.mark.parametrize("format", ["tsv", "json", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_other_formats_are_escaped_on_a_terminal_only(
    on_terminal: OnTerminal, cli: RunCommand, server: str, format: str, encoding: str
) -> None:
    command = ("group", "list", "--format", format, "-b", server)
    shown, piped = on_terminal(*command, encoding=encoding), cli(*command)
    assert (shown.code, shown.err) == (piped.code, piped.err) == (0, "")
    assert not RAW.search(shown.out)
    if format == "tsv":
        assert GROUP in piped.out.decode()
    else:
        assert json.loads(shown.out) == piped.json


def test_help_is_printed_on_an_ascii_terminal(on_terminal: OnTerminal) -> None:
    shown = on_terminal("offsets", "--help", encoding="ascii")
    assert (shown.code, shown.err) == (0, "")
    assert '"~, by segment"' in " ".join(shown.out.split())


def test_error_of_a_foreign_name_breaks_no_line(on_terminal: OnTerminal, server: str) -> None:
    shown = on_terminal("offsets", "a\x1b[2J\nb", "-b", server, encoding="ascii")
    assert shown.code == 1
    first, *others = shown.err.splitlines()
    assert first.startswith("aiokafka08: ")
    assert all(line.startswith("  ") for line in others)
    assert not RAW.search(shown.err)


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, {"CLICOLOR": "0"}, {"TERM": "dumb"}, {"TERM": ""}, {}]
)
def test_colours_are_shown_where_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name in ("NO_COLOR", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    stream = TextIOWrapper(BytesIO(), encoding="utf-8")
    assert terminal.painter(stream)("bad", "no") == "no"
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    shown = terminal.painter(stream)("bad", "no")
    assert shown == ("no" if variables else "\x1b[31mno\x1b[0m")


def test_heading_of_wide_characters_fits_in_the_width(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("COLUMNS", "9")
    redraw("日本語日本語", "", is_first=False)
    assert capsysbinary.readouterr().out.decode() == "\x1b[H日本語日\x1b[K\n\x1b[J"


def test_note_replaces_the_status_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal nothing is shown; a note has its own line in any case."""
    show_status("copying")
    note("done")
    erase_status()
    assert capsys.readouterr().err == "aiokafka08: done\n"


NOTE = f"{'a word ' * 20}and the way back: aiokafka08 group import {'path/' * 20} --execute"


def test_note_is_wrapped_on_a_terminal_but_for_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the command can be copied."""
    stream = TextIOWrapper(BytesIO(), encoding="utf-8")
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "40")
    note(NOTE)
    note("short")
    assert isinstance(stream.buffer, BytesIO)
    *prose, command, short = stream.buffer.getvalue().decode().splitlines()
    assert short == "aiokafka08: short"
    assert command == NOTE[NOTE.index("aiokafka08") :]
    assert max(map(len, prose)) <= 40
    assert " ".join(line.strip() for line in prose) == f"aiokafka08: {NOTE.partition(' aio')[0]}"


def test_note_is_one_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note(NOTE)
    assert capsys.readouterr().err == f"aiokafka08: {NOTE}\n"


def test_watch_needs_a_terminal_and_a_duration(cli: RunCommand, server: str) -> None:
    done = cli("group", "lag", "--all", "--watch", "1s", "-b", server)
    assert (done.code, done.out) == (WRONG_USAGE, b"")
    assert "stdout must be a terminal" in done.err
    done = cli("group", "lag", "--all", "--watch", "0s", "-b", server)
    assert "--watch='0s': expected a duration > 0" in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="pseudoterminals are POSIX")
@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("nosuch",), "'nosuch' has no members and no committed offsets"),
        (("--all", "--topic", "nosuch"), "no committed offsets, and no members, of 'nosuch'"),
    ],
)
def test_watch_of_what_does_not_exist_is_one_line(
    server: str, names: tuple[str, ...], text: str
) -> None:
    ours, its = pty.openpty()
    watch = ("group", "lag", *names, "--watch", "1s", "-b", server)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *watch],
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1"},
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(its)
        os.close(ours)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert text in line


@pytest.mark.skipif(sys.platform == "win32", reason="pseudoterminals are POSIX")
def test_watch_redraws_until_interrupted(server: str) -> None:
    import fcntl
    import termios

    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 60, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "CLICOLOR")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "group", "lag", "--all", "--watch", "100ms", "-b", server],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        env={**inherited, "TERM": "xterm", "PYTHONUTF8": "1"},
    )
    os.close(its)
    data = b""
    try:
        while data.count(b"\x1b[H") < 3:
            data += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == INTERRUPTED
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert data.startswith(b"\x1b[2J\x1b[H")
    screen = data.decode().split("\x1b[H")[1]
    lines = re.sub(r"\x1b\[[0-9;]*[mKJ]", "", screen).replace("\r", "").splitlines()
    assert len(lines) <= 4
    assert "every 0.1 s" in lines[0]
    assert "more lines)" in lines[-2]
    assert re.match(r"(total|all): lag \d+", lines[-1])
