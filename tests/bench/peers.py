"""The programs that do the work: each peer in a venv of its own, the Java one compiled.

Law: the benchmark needs no peer in its own environment, and no peer meets another one's libraries.
The venvs are made once, below the environment that runs the benchmark (`nox -s bench` has one of
its own), from the requirements below; Java's classes are compiled at each run. What can't be had on
this machine is left out, and the report says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.cases import BATCH_BYTES, LINGER_MS, PARTITIONS, Client
from tests.brokers.errors import MissingToolError
from tests.brokers.jars import find_java_tool, jar_folder, java_command

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "confluent": ("confluent-kafka==2.16.*",),
    "kafka_python": ("kafka-python==3.*", "python-snappy"),
    "aiokafka": ("aiokafka[snappy]==0.14.*", "uvloop"),
}
"""By module of `clients`."""

JAVA_VERSION = "0.8.2.2"
INSTALL_S = 300


class UnavailableError(Exception):
    """A peer that can't take part here; the text is for the report."""


class Peers:
    """Finds out how each client is run.

    Args:
        folder: for what is compiled; the caller removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pythons: dict[str, Path] = {}
        self._classes: Path | None = None

    def prepare(self, client: Client) -> None:
        """Install or compile it where that has to be done.

        Raises:
            UnavailableError: it can't take part.
        """
        if client.module == "java":
            self._classes = self._classes or self._compile()
        elif client.module in REQUIREMENTS and client.module not in self._pythons:
            self._pythons[client.module] = _venv(client.module, REQUIREMENTS[client.module])

    def command(self, client: Client, job: Mapping[str, object]) -> list[str]:
        """What does a job (see `worker`) in a process of its own."""
        if client.module == "java":
            return self._java(job)
        python = self._pythons.get(client.module, Path(sys.executable))
        return [str(python), "-m", "tests.bench.worker", json.dumps(job)]

    def _java(self, job: Mapping[str, object]) -> list[str]:
        assert self._classes is not None, "prepare() comes first"
        return [
            java_command(),
            "-Djava.net.preferIPv4Stack=true",
            f"-Djava.io.tmpdir={self._classes}",  # snappy's library is unpacked there
            f"-Dlog4j.configuration=file:{self._classes / 'log4j.properties'}",
            *("-cp", f"{self._classes}:{jar_folder(JAVA_VERSION)}/*", "Java"),
            *(
                str(job[name])
                for name in ("call", "bootstrap", "zookeeper", "topic", "messages", "value_bytes")
            ),
            str(job["compression"] or "none"),
            *map(str, (BATCH_BYTES, LINGER_MS, PARTITIONS)),
        ]

    def _compile(self) -> Path:
        source = Path(__file__).parent / "clients" / "Java.java"
        classes = self._folder / "java"
        classes.mkdir()
        (classes / "log4j.properties").write_text(
            "log4j.rootLogger=ERROR, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.target=System.err\n"
            "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
        )
        try:
            command = [find_java_tool("javac"), "-nowarn", "-d", str(classes)]
        except MissingToolError:
            raise UnavailableError(
                "Java's clients are left out: this machine has no `javac`"
                " (Debian/Ubuntu: apt-get install openjdk-17-jdk-headless)"
            ) from None
        _do([*command, "-cp", f"{jar_folder(JAVA_VERSION)}/*", str(source)], "compiled")
        return classes


def _venv(name: str, requirements: tuple[str, ...]) -> Path:
    """The Python of a venv with these requirements; complete or not there."""
    digest = hashlib.sha256(repr(requirements).encode()).hexdigest()[:8]
    folder = Path(sys.prefix) / "peers" / f"{name}-{digest}"
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        _do([sys.executable, "-m", "venv", "--clear", str(folder)], "given a venv")
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        _do([str(python), *install], "installed")
        whole.touch()
    return python


def _do(command: list[str], what: str) -> None:
    """Run a command to its end, without the variables of the environment that runs us."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"`{command[-1]}` could not be {what}: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it didn't say why"]
        raise UnavailableError(f"`{command[-1]}` could not be {what}: {lines[-1]}")
