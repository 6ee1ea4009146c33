"""The demo as a command: on embedded and real clusters, with and without Java, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from aiokafka08.testing import LINES, EmbeddedCluster
from examples.demo.command import run as run_command
from examples.demo.options import VERSIONS
from examples.demo.prerequisites import missing_for_spark
from examples.demo.run import on_loop
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.ports import free_port
from tests.support.full import in_full
from tests.support.paths import ROOT

DEMO = [sys.executable, "-m", "examples.demo"]
SPARK_S = 200


NO_JAVA = str(ROOT / "no such folder")


def environment(java: bool) -> dict[str, str]:
    """Return the variables of a user whose settings would break the demo, if it used them."""
    variables = {name: value for name, value in os.environ.items() if name != "AIOKAFKA08_CONFIG"}
    variables |= {
        "AIOKAFKA08_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "AIOKAFKA08_PROFILE": "nowhere",
        "AIOKAFKA08_HEADERS": "wrong",
    }
    return variables if java else variables | {"JAVA_HOME": NO_JAVA}


def demo(*arguments: str, java: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the demo, without Java unless a test is about Spark, which takes many seconds."""
    done = subprocess.run(
        [*DEMO, *arguments],
        capture_output=True,
        text=True,
        timeout=SPARK_S if java else 90,
        cwd=ROOT,
        env=environment(java),
    )
    assert "Traceback" not in done.stderr
    return done


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "error: " in line]
    assert line.startswith("error: ")
    return line


@contextmanager
def started(*arguments: str, java: bool = False) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the demo; yield it, with the port of its cluster, when the topic is ready."""
    process = subprocess.Popen(
        [*DEMO, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(java),
    )
    try:
        yield process, int(wait_for_line(process, r"^topic .* on 127\.0\.0\.1:(\d+)")[1])
    finally:
        process.kill()
        process.communicate()


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"the process ended without a line that matches {pattern!r}")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--version", "0.8.0", "--codec", "gzip", "--brokers", "1"),
        ("--version", "0.10", "--brokers", "3", "--partitions", "7", "--codec", "none"),
    ],
)
def test_demo_verifies_prints_and_draws(options: tuple[str, ...], tmp_path: Path) -> None:
    picture = tmp_path / "new" / "demo.png"
    done = demo("--messages", "3000", "--output", str(picture), *options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^3,[0-9]+ messages of \d+ modules were read: 0 lost, \d", done.stdout, re.M)
    killed = re.search(
        r"^broker \d, leader of (\d) of \d partitions, was killed", done.stdout, re.M
    )
    assert (killed is not None) == ("1" not in options)
    assert re.search(
        r"^300 messages were sent one at a time with acks=all: p50 ", done.stdout, re.M
    )
    assert "What the topic holds" in done.stdout
    for stage in ("one at a time", "ingest", "consume and verify"):
        assert re.search(rf"│ {stage} +│ +[\d,]+ │", done.stdout), stage
    assert ("│ ingest, leader killed " in done.stdout) == (killed is not None)
    assert_progress_agrees_with_table(done.stdout)
    assert "Spark found" not in done.stdout
    assert f"picture: {picture}" in done.stdout
    shown = done.stdout.partition(f"picture: {picture}")[2]
    assert re.search(r"^\$ aiokafka08 metadata demo -b 127", shown, re.M)
    assert ("group lag skipped" in shown) == ("0.8.0" in options)
    assert ("$ aiokafka08 group lag demo-" in shown) == ("0.8.0" not in options)
    assert ("the last 10 % are uncommitted on purpose" in shown) == ("0.8.0" not in options)
    assert "$ aiokafka08 doctor -b 127" in shown
    assert ("which the demo killed, stays down" in shown) == (killed is not None)
    from matplotlib.image import imread

    height, width, _ = imread(picture).shape
    assert height > 500
    assert width > 800


def assert_progress_agrees_with_table(text: str) -> None:
    """The rate in a stage's last line of progress is that in its row of the table."""
    rows = dict(re.findall(r"^│ (\S[^│]*?) +│ .* │ +([\d,]+) │ +[\d,.]+ │$", text, re.M))
    lines = dict(re.findall(r"^([^:\n]+): [\d,]+ of [\d,]+ messages, ([\d,]+)/s$", text, re.M))
    assert lines
    assert lines == {stage: rows[stage] for stage in lines}


@pytest.mark.spark
@pytest.mark.timeout(SPARK_S + 40)
def test_spark_counts_what_was_sent(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setenv("SPARK_HOME", NO_JAVA)  # settings of another Spark have no effect
        done = demo("--messages", "3000", "--output", str(tmp_path / "demo.png"), java=True)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr
    assert re.search(r"^3,\d+ messages of \d+ packages were counted by Spark", done.stdout, re.M)
    assert "What Spark found" in done.stdout
    assert re.search(r"│ all +│ +3,\d+ │ +[\d.]+ B │ +[\d,]+ │ +[\d.]+ % │", done.stdout)
    assert re.search(r"│ start Spark +│ +│ +│ +[\d.]+ │", done.stdout)
    assert re.search(r"│ aggregate in Spark +│ +3,\d+ │", done.stdout)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert not list(temporary.glob("aiokafka08*"))


def write_java(folder: Path, script: str) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (None, "there is no Java in JAVA_HOME="),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11, too old for Spark"),
        ("echo 'java version \"1.8.0_392\"' >&2", "is Java 8, too old for Spark"),
        ("echo 'The operation could not be completed.' >&2; exit 1", "has no version"),
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", None),
        ("echo 'openjdk version \"25-ea\"' >&2", None),
    ],
)
def test_java_version_is_checked_before_spark_starts(
    script: str | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script:
        write_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = missing_for_spark()
    if expected is None:
        assert missing is None
    else:
        assert missing is not None
        assert expected in missing
        assert "install Java 17 or newer" in missing
        assert "\n" not in missing


def test_java_that_fails_is_named_with_its_last_lines(tmp_path: Path) -> None:
    write_java(
        tmp_path / "java",
        '[ "$1" = -version ] && echo \'version "17.0.1"\' || { echo "no memory" >&2; exit 1; }',
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path / "java"))
        done = demo("--messages", "300", "--output", str(tmp_path / "demo.png"), java=True)
    assert re.match(
        "error: Spark failed: the process ended; its last lines: .*no memory", error_line(done)
    )


def test_demo_without_spark_doesnt_mention_it(tmp_path: Path) -> None:
    small = ("--messages", "3000", "--output", str(tmp_path / "demo.png"))
    done = demo("--no-spark", *small, java=True)
    assert done.returncode == 0, done.stderr
    assert "Spark" not in done.stdout
    assert (tmp_path / "demo.png").exists()


def test_demo_without_java_skips_only_spark(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PATH", str(tmp_path))
        picture = tmp_path / "demo.png"
        done = demo("--messages", "3000", "--output", str(picture), java=True)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if "Spark" in line]
    assert re.match("Spark skipped: there is no Java on PATH: install Java 17 or newer", line)
    assert picture.exists()


@pytest.mark.parametrize(
    ("installed", "expected"),
    [("4.1.3", "pyspark 4.1.3 is too old"), (None, "pyspark isn't installed")],
)
def test_missing_or_old_pyspark_is_named(
    installed: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    missing = missing_for_spark()
    assert missing is not None
    assert missing.startswith(expected)
    assert "pip install 'pyspark>=4.2' pyarrow" in missing


@pytest.mark.spark
@pytest.mark.real
@pytest.mark.timeout(SPARK_S + 120)
@pytest.mark.parametrize("java", [False, True])
@pytest.mark.full
def test_demo_runs_on_a_real_broker(
    java: bool, broker_clusters: BrokerClusters, tmp_path: Path
) -> None:
    where = ("--bootstrap", broker_clusters.get("0.8.2.2").bootstrap_servers)
    small = ("--messages", "5000", "--output", str(tmp_path / "demo.png"))
    done = demo(*where, *small, java=java)
    assert done.returncode == 0, done.stderr
    if java:
        counted = r"^5,000 messages of \d+ packages were counted by Spark"
        assert re.search(counted, done.stdout, re.M)
    named = re.search(r"^topic (demo-\S+), 3 partitions", done.stdout, re.M)
    assert named is not None
    assert re.search(r"^5,000 messages of \d+ modules were read: 0 lost, \d", done.stdout, re.M)
    assert re.search(r"^topic demo-\S+ stays on the brokers", done.stdout, re.M)
    assert f"\nthe offsets of group {named[1]}-reader stay there" in done.stdout
    again = demo(*where, *small, "--topic", named[1])
    assert "has 5,000 messages; expected an empty topic" in error_line(again)


def check_options(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Check the options as `nox -s demo` does before it installs anything."""
    command = [sys.executable, "-S", "-m", "examples.demo.options", *arguments]  # -S: no packages
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_wrong_port_is_an_error_before_the_installation(tmp_path: Path) -> None:
    port = free_port()
    wrong = ("--bootstrap", f"127.0.0.1:{port}", "--output", str(tmp_path / "demo.png"))
    assert f"127.0.0.1:{port}: Connection refused" in error_line(check_options(*wrong))
    done = demo(*wrong)
    assert f"127.0.0.1:{port}: Connection refused" in error_line(done)
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output", ["demo.pdf", "folder.png", "file/demo.png"])
def test_unwritable_output_is_an_error_before_the_installation(output: str, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    done = check_options("--output", str(tmp_path / output))
    assert str(tmp_path / output.partition("/")[0]) in error_line(done)


def test_right_options_pass_the_check_silently(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        servers = f"no-such-host.invalid:9092,{cluster.bootstrap_servers}"
        done = check_options("--bootstrap", servers, "--output", str(tmp_path / "new" / "demo.png"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert tuple(LINES) == VERSIONS


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--bootstrap", "localhost", "--brokers", "1"],
            "--brokers: only for the embedded",
        ),
        (
            ["--bootstrap", "localhost", "--version", "0.9"],
            "--version: only for the embedded",
        ),
        (["--topic", "lines"], "--topic: needs --bootstrap"),
        (["--bootstrap", "localhost:kafka"], "'localhost:kafka': expected HOST:PORT"),
        (["--messages", "0"], "'0': expected an integer >= 1"),
        (["--messages", "many"], "'many': expected an integer >= 1"),
        (["--codec", "zstd"], "snappy"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_ctrl_c_before_the_loop_runs_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    async def work() -> None: ...

    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=interrupted))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            on_loop(work())
    assert not said


def test_ctrl_c_while_uvloop_ends_is_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop(asyncio.SelectorEventLoop):
        """Fails as uvloop does if Ctrl-C comes while it is started for the last time."""

        async def shutdown_default_executor(self, timeout: float | None = None) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            super().close()
            raise RuntimeError("Cannot close a running event loop")

    async def work() -> None: ...

    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=Loop))
    with pytest.raises(KeyboardInterrupt):
        on_loop(work())


@pytest.mark.parametrize("stage", ["ingest", "verify"])
def test_ctrl_c_ends_the_demo_and_its_cluster(stage: str, tmp_path: Path) -> None:
    arguments = ("--messages", "400000", "--output", str(tmp_path / "demo.png"))
    with started(*arguments) as (process, port):
        read = (
            "^ingest, .*: 199,000 of 199,000 " if stage == "verify" else "^for 400,000| lines in "
        )
        wait_for_line(process, read)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 130, errors
        assert errors.splitlines()[-1] == "interrupted"
        assert "Traceback" not in errors
        assert not is_open(port)
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
@pytest.mark.timeout(SPARK_S + 40)
@pytest.mark.parametrize(
    ("moment", "sent"),
    [
        ("^Spark starts", signal.SIGINT),
        *in_full(("^Spark .* started", signal.SIGINT), ("^Spark .* started", signal.SIGKILL)),
    ],
)
def test_spark_ends_with_the_demo(
    moment: str, sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    arguments = ("--messages", "20000", "--output", str(tmp_path / "demo.png"))
    with started(*arguments, java=True) as (process, port):
        wait_for_line(process, moment)
        wait_until(lambda: with_java(process.pid), "there is no JVM", 60)
        children = with_java(process.pid)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=40)
        if sent == signal.SIGINT:
            assert process.returncode == 130, errors
            assert errors.splitlines()[-1] == "interrupted"
            assert "Traceback" not in errors
        wait_until(lambda: not any(map(runs, children)), "a child of the demo still runs", 30)
        wait_until(lambda: not list(tmp_path.glob("aiokafka08-demo-*")), "a folder is left", 30)
        assert not is_open(port)


def wait_until(condition: Callable[[], object], otherwise: str, timeout_s: float) -> None:
    """Wait for a condition on other processes, with a deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def with_java(pid: int) -> list[psutil.Process]:
    """Return all children of a process if there is a JVM among them, else none."""
    found = psutil.Process(pid).children(recursive=True)
    with contextlib.suppress(psutil.NoSuchProcess):
        if any(one.name() == "java" for one in found):
            return found
    return []


def test_the_cluster_ends_when_the_demo_is_killed(tmp_path: Path) -> None:
    arguments = ("--messages", "400000", "--output", str(tmp_path / "demo.png"))
    with started(*arguments) as (process, port):
        assert is_open(port)
        process.kill()
        process.wait()
        wait_until(lambda: not is_open(port), "the cluster still runs", 30)
