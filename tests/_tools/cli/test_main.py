"""The entry point: exit codes, errors as one line, streams that end, and the time of `--help`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import click
import pytest

import aiokafka08
from aiokafka08._tools.cli.connection import run
from aiokafka08._tools.cli.declare import DeclaredCommand
from aiokafka08._tools.cli.main import error_text, main
from aiokafka08._tools.cli.root import COMMANDS, root
from aiokafka08._tools.cli.signals import Terminated
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.__main__ import parser
from tests._tools.cli.conftest import RunCommand, command_line
from tests._tools.cli.document import commands, examples
from tests.brokers.ports import free_port
from tests.support.environments import as_users
from tests.test_package import modules_after

NAMES = [name for _, name, _ in commands()]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 2000}) as running:
        yield running


# --- help -----------------------------------------------------------------------------------------


def test_root_help_lists_each_command(cli: RunCommand) -> None:
    done = cli("--help")
    assert (done.code, done.err) == (0, "")
    for name, entry in COMMANDS.items():
        assert any(line.split() == [name, *entry.short_help.split()] for line in done.lines)


@pytest.mark.parametrize("name", NAMES)
def test_help_of_each_command_has_an_example(cli: RunCommand, name: str) -> None:
    done = cli(*name.split(), "--help")
    assert (done.code, done.err) == (0, "")
    shown = b" ".join(done.out.split())
    for command, example in examples():
        if command == name:
            assert b" ".join(example.command.encode().split()) in shown
    is_group = {one: isinstance(command, click.Group) for _, one, command in commands()}
    assert is_group[name] or name in {command for command, _ in examples()}


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_that_of_the_command(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert COMMANDS[name].short_help == command.get_short_help_str(limit=200)


def test_declared_fields_and_examples_have_meanings() -> None:
    for _, name, command in commands():
        if isinstance(command, DeclaredCommand):
            for fields in (command.fields, *command.fields_with.values()):
                assert all(text[0].islower() for text in fields.values()), name
            assert all(not one.text.endswith(".") for one in command.examples), name


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_imports_neither_client_nor_asyncio(name: str) -> None:
    """`--help` takes 0.1 s; a module more than these would add to it."""
    words = [*name.split(), "--help"]
    code = (
        "import contextlib, io\nfrom aiokafka08.cli.main import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n assert main({words!r}) == 0"
    )
    loaded = modules_after(code) - modules_after("import click, tempfile")
    assert not loaded & {"asyncio", "ssl", "rich", "json", "prometheus_client", "logging"}
    loaded = {name.removeprefix("aiokafka08.") for name in loaded if "aiokafka08." in name}
    allowed = (
        "cli",
        "_tools.cli",
        "_tools.text_columns",
        "_wording",
        "_core.lazy",
        *(
            ("_tools.gateway", "_core.config_file", "_core.concurrency")
            if name == "gateway"
            else ()
        ),
        "_core.names",
        "_core.properties",
        "_core.sasl",
        "_core.zookeeper.security",
        "errors",
        "structs",
    )
    assert {name for name in loaded if not name.startswith(allowed)} <= {
        "_core",
        "_core.concurrency",
        "_core.zookeeper",
        "_tools",
        "_tools.gateway",
    }


def test_version_is_printed(cli: RunCommand) -> None:
    assert cli("--version").out.decode() == f"aiokafka08 {aiokafka08.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_completes_commands(cli: RunCommand, shell: str) -> None:
    script = cli("completion", shell)
    assert (script.code, script.err) == (0, "")
    assert b"_AIOKAFKA08_COMPLETE" in script.out
    environment = {
        **os.environ,
        "_AIOKAFKA08_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "aiokafka08 top",
        "COMP_CWORD": "top" if shell == "fish" else "1",
    }
    done = subprocess.run(command_line(), env=environment, capture_output=True, text=True)
    assert "topics" in done.stdout
    assert "metadata" not in done.stdout


def test_cluster_has_the_options_of_the_testing_module() -> None:
    command = root.get_command(click.Context(root), "cluster")
    assert command is not None
    defaults = command.make_context("cluster", []).params
    assert {**defaults, "topic": list(defaults["topic"])} == vars(parser().parse_args([]))
    flags = {flag for one in command.params for flag in one.opts}
    assert flags | {"-h", "--help"} == {*parser()._option_string_actions}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cluster_runs_until_a_signal(cli: RunCommand, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command_line("cluster", "--port", "0", "--topic", "orders:2"),
        stderr=subprocess.PIPE,
        env=as_users(),
    )
    assert process.stderr is not None
    address = re.search(rb"in memory on (\S+)", process.stderr.readline())
    assert address is not None
    assert cli("topics", "-q", "-b", address[1].decode()).lines == ["orders"]
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 0


# --- wrong usage ----------------------------------------------------------------------------------


def assert_one_line(err: str, *parts: str) -> None:
    assert err.startswith("aiokafka08: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    for part in parts:
        assert part in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope"], "no such command 'nope'"),
        (["topics", "--qq", "-b", "x"], "no such option '--qq'. See 'aiokafka08 topics --help'"),
        (["topics", "--format", "xml", "-b", "x"], "'xml' is not one of"),
        (["topics", "--timeout", "0", "-b", "x"], "--timeout=0.0: expected seconds from 0.001 on"),
        (["topics", "--timeout", "nan", "-b", "x"], "--timeout=nan: expected seconds"),
        (["topics", "--timeout", "1e9", "-b", "x"], "--timeout=1000000000.0: expected seconds"),
        (["topics", "extra", "-b", "x"], "unexpected extra argument (extra)"),
        (["topics", "--zookeeper", "", "-b", "x"], "zookeeper.connect='': empty"),
        (["topics", "--log-level", "loud", "-b", "x"], "'loud' is not one of"),
        (["topics"], "no address of a broker: expected -b HOST:PORT"),
        (["topics", "-b", "kafka 1"], "' ' in the host name"),
        (["topics", "-b", "http://x"], "is a URL"),
        (["topics", "-b", "x:70000"], "'70000'; expected 1 to 65535"),
        (["topics", "-X", "linger", "-b", "x"], "-X linger: expected NAME=VALUE"),
        (["topics", "-X", "bootstrap.server=x"], "similar: bootstrap.servers"),
        (["topics", "-X", "acks=2", "-b", "x"], "acks='2': expected one of"),
        (["topics", "-X", "ssl.key.password=x", "-b", "x"], "other users see secrets"),
        (["topics", "-F", "/nowhere/kcat.conf"], "/nowhere/kcat.conf: No such file"),
        (["topics", "-F", "/"], "Is a directory"),
        (["topics", "--profile", "x"], "config.toml: No such file"),
        (["topics", "-X", "security.protocol=ssl", "-X", "ssl.ca.location=/x", "-b", "x"], "PEM"),
        (["offsets", "-b", "x"], "missing argument 'TOPIC'"),
        (["offsets", "t", "-p", "x", "-b", "x"], "'x' is not a valid integer"),
        (["offsets", "t", "--at", "soon", "-b", "x"], "--at='soon': expected a time"),
        (["topic", "create", "t", "-b", "x", "--set", "a"], "--set a: expected NAME=VALUE"),
        (["topic", "create", "t", "-b", "x", "--assignment", "a"], "--assignment='a'"),
        (["topic", "delete", "t", "-b", "x"], "needs --yes"),
        (["topic", "grow", "t", "many", "-b", "x"], "'many' is not a valid integer"),
        (["cluster", "--host", "0.0.0.0"], "--allow-remote"),
        (["cluster", "--version", "0.7"], "'0.7' is not one of"),
        (["completion", "csh"], "'csh' is not one of"),
    ],
)
def test_wrong_usage_is_one_line(cli: RunCommand, arguments: list[str], part: str) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, b"")
    assert_one_line(done.err, part)


def test_cluster_on_a_used_port_is_one_line(cli: RunCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = cli("cluster", "--port", str(server.getsockname()[1]))
    assert (done.code, done.out) == (1, b"")
    assert_one_line(done.err, "aiokafka08: broker 0 can't listen on 127.0.0.1:")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("topic 't': total_count=3; expected", "topic 't': partitions=3; expected"),
        ("replication_factor=5; expected 1 to 3", "replicas=5; expected 1 to 3"),
        ("topic 'total_count'", "topic 'total_count'"),
    ],
)
def test_errors_of_topics_have_no_arguments_of_the_admin_client(
    text: str, shown: str, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> NoReturn:
        raise IllegalArgumentError(text)

    monkeypatch.setattr(AIOKafkaAdminClient, "create_partitions", refuse)
    with EmbeddedCluster() as cluster:
        done = cli("topic", "grow", "t", "3", "-b", cluster.bootstrap_servers)
    assert (done.code, done.err) == (2, f"aiokafka08: {shown}\n")


def test_errors_of_a_bridge_name_the_keys_of_its_file(cli: RunCommand, tmp_path: Path) -> None:
    """Some of them are also arguments of the admin client."""
    path = tmp_path / "bridge.toml"
    clusters = "[source]\nbootstrap = 'x:1'\n[target]\nbootstrap = 'y:1'"
    path.write_text(f"name = 'b'\n{clusters}\nreplication_facto = 3")
    done = cli("bridge", "plan", str(path))
    assert done.code == 2
    assert_one_line(done.err, "replication_facto=…: unknown key; similar: replication_factor")


@pytest.mark.parametrize("arguments", [[], ["topic"]])
def test_command_without_subcommand_shows_help_on_stderr(
    cli: RunCommand, arguments: list[str]
) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("Usage: aiokafka08")


def test_command_line_without_click_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; from aiokafka08.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert_one_line(done.stderr, "pip install 'aiokafka08[cli]'")


# --- errors ---------------------------------------------------------------------------------------


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def run_command(arguments: Any) -> int:
        raise error

    monkeypatch.setattr("aiokafka08._tools.cli.root.run_command", run_command)
    return main([])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KafkaTimeoutError("no response\nin time"), 1, "no response in time"),
        (NotLeaderForPartitionError(), 1, NotLeaderForPartitionError.description),
        (OSError(28, "No space left on device", "stdout"), 1, "stdout: No space left on device"),
        (ExceptionGroup("", [ExceptionGroup("", [KafkaTimeoutError("a")])]), 1, "a"),
        (KeyboardInterrupt(), 130, None),
        (Terminated(), 143, None),
        (BrokenPipeError(), 141, None),
    ],
)
def test_exception_becomes_exit_code_and_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str | None,
) -> None:
    assert raising(monkeypatch, error) == code
    assert capsys.readouterr().err == ("" if text is None else f"aiokafka08: {text}\n")


def test_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        raising(monkeypatch, ZeroDivisionError())


def test_closed_port_is_one_line(cli: RunCommand) -> None:
    port = free_port()
    done = cli("topics", "-b", f"127.0.0.1:{port}", "--timeout", "2")
    assert (done.code, done.out) == (1, b"")
    assert_one_line(done.err, f"127.0.0.1:{port}: ", "refused")


@pytest.mark.parametrize(
    "response", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\0"]
)
def test_other_server_than_kafka_is_one_line(cli: RunCommand, response: bytes | None) -> None:
    """A server that is silent, one that closes, one of HTTP, one with an empty response."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener was closed
                while response is not None:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(100)
                        connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        done = cli("topics", "-b", f"127.0.0.1:{port}", "--timeout", "0.3")
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert (done.code, done.out) == (1, b"")
    assert_one_line(done.err, f"127.0.0.1:{port}")


def test_unknown_topic_is_named_and_not_created(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", cluster.bootstrap_servers)
    for arguments in (["metadata", "nope"], ["offsets", "nope"], ["metadata", "nope", "orders"]):
        done = cli(*arguments, *server)
        assert (done.code, done.out) == (1, b"")
        assert_one_line(done.err, "topic 'nope' doesn't exist")
    assert cli("topics", "-q", *server).lines == ["orders"]


def test_log_level_logs_to_stderr(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    done = cli(
        *("topics", "-q", "-b", cluster.bootstrap_servers, "--log-level", "info"),
        *("-X", "api.version.request=false"),
    )
    assert done.lines == ["orders"]
    assert "api.version.request='false' has no effect: the version" in done.err
    assert "connected to" in done.err


# --- streams and signals --------------------------------------------------------------------------


def test_closed_pipe_ends_the_command_silently(cluster: EmbeddedCluster) -> None:
    line = " ".join(command_line("metadata", "-b", cluster.bootstrap_servers, "--format", "jsonl"))
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    first, code = done.stdout.splitlines()
    assert '"topic":"orders"' in first
    assert (code, done.stderr) == ("141", "")


@pytest.mark.parametrize("format", ["tsv", "json", "jsonl", "table"])
def test_full_disk_is_one_line(cluster: EmbeddedCluster, format: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command_line("metadata", "-b", cluster.bootstrap_servers, "--format", format),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
        )
    assert done.returncode == 1
    assert done.stderr == "aiokafka08: stdout: No space left on device\n"


@pytest.mark.parametrize("words", ["--help", "--version", "topics --help", "topic create --help"])
def test_full_disk_is_named_by_help(words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command_line(*words.split()), stdout=full, stderr=subprocess.PIPE, text=True, timeout=20
        )
    assert done.returncode == 1
    assert done.stderr == "aiokafka08: stdout: No space left on device\n"


def test_errors_of_the_clients_name_the_flag() -> None:
    error = UnsupportedVersionError(
        "describe: Give zookeeper_connect='host:2181/chroot' (pip install 'aiokafka08[zookeeper]')"
    )
    assert error_text(error) == (
        "describe: Give --zookeeper host:2181/chroot (pip install 'aiokafka08[cli,zookeeper]')"
    )


def test_closed_stdout_is_one_line(cluster: EmbeddedCluster) -> None:
    line = " ".join(command_line("topics", "-b", cluster.bootstrap_servers))
    done = subprocess.run(["bash", "-c", f"{line} >&-"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert_one_line(done.stderr, "stdout: Bad file descriptor")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_a_waiting_command(number: signal.Signals, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            command_line("topics", "-b", address), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        connection, _ = silent.accept()  # it waits for a response now
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        connection.close()
    assert (process.returncode, out, err.strip()) == (code, b"", b"")


def test_interrupt_does_not_wait_for_zookeeper(cluster: EmbeddedCluster) -> None:
    """A session that doesn't open takes 30 s until its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        create = ("topic", "create", "t", "-b", cluster.bootstrap_servers, "--zookeeper", address)
        process = subprocess.Popen(
            command_line(*create), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
        connection.close()
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def test_error_does_not_wait_for_a_thread() -> None:
    """A call of kazoo may take until its timeout, and would hide the error until then."""
    code = """if True:
        import asyncio, sys, time
        from aiokafka08._tools.cli import connection, main
        from aiokafka08.errors import KafkaError

        async def work():
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
            raise KafkaError("the reason")

        def fail(arguments):
            try:
                connection.run(work())
            except KafkaError as error:
                return main.fail(error.text, main.FAILED)

        main._run = fail
        main.run_process()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (1, "aiokafka08: the reason\n")


@pytest.mark.parametrize("moment", ["open", "close"])
def test_ctrl_c_waits_while_the_loop_opens_or_closes(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop can't be closed after an exception in its own code."""
    import asyncio

    done: list[str] = []

    class Loop(asyncio.SelectorEventLoop):
        def __init__(self) -> None:
            super().__init__()
            if moment == "open":
                signal.raise_signal(signal.SIGINT)
            done.append("open")

        def close(self) -> None:
            if moment == "close":
                signal.raise_signal(signal.SIGINT)
            super().close()
            done.append("close")

    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=Loop))
    with pytest.raises(KeyboardInterrupt):
        run(asyncio.sleep(30 if moment == "open" else 0))
    assert done == ["open", "close"]


def test_run_ends_when_stdout_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`consume --follow | head -1` would otherwise wait for the next message."""
    import asyncio

    reader, writer = os.pipe()
    closed: list[Callable[[], None]] = [lambda: os.close(reader)]

    async def wait_for_ever() -> None:
        asyncio.get_running_loop().call_soon(closed.pop())
        await asyncio.get_running_loop().create_future()

    with open(writer, "w") as stdout, contextlib.suppress(BrokenPipeError):
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(BrokenPipeError):
            run(wait_for_ever(), end_with_stdout=True)


def test_run_returns_the_result() -> None:
    async def work() -> int:
        return 5

    assert run(work(), end_with_stdout=True) == 5


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("at most 9 bytes. Raise fetch_max_bytes, or seek() past it", "fetch.max.bytes, or begin"),
        ("request_timeout_ms=5: expected more", "request.timeout.ms=5: expected more"),
        ("Set security_protocol='SSL' and ssl_context.", "security.protocol=SSL and ssl.ca.locat"),
        ("topic 'group_id', partition 0: gone", "topic 'group_id', partition 0: gone"),
        ("client_id.log: no file", "client_id.log: no file"),
        ("a (ssl_context.x; for commands ssl.key.location)", "a (ssl.key.location)"),
        ("in zookeeper_connect (for commands zookeeper.connect)", "in zookeeper.connect"),
    ],
)
def test_error_names_properties_for_arguments(text: str, printed: str) -> None:
    assert printed in error_text(KafkaError(text))
