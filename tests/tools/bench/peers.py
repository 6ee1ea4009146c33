"""How each client of the benchmark is installed, and the command that runs one measurement of it.

Each peer has a venv of its own, so the benchmark's environment needs no peer, and no peer meets the
libraries of another one. The venvs are created once, below the environment that runs the benchmark,
from the requirements below. Java's classes are compiled at each run. With `--before`, both
checkouts of this repository are installed alike, each from a copy and in a venv of its own; the
floors run in the venv of this checkout.
A peer that can't be installed on this machine is left out; the report gives the reason.

Invariant: a client of one checkout never imports `aiokafka08` from the other one, and neither
checkout is modified.

Called by `tests.tools.bench.__main__`. `run` starts the processes, `worker` is the program inside
them.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.brokers.errors import MissingToolError
from tests.brokers.jars import find_java_tool, jar_folder, java_command
from tests.support.paths import ROOT
from tests.tools.bench.cases import BATCH_BYTES, BEFORE, Client
from tests.tools.bench.run import measure

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "confluent": ("confluent-kafka==2.16.*",),
    "kafka_python": ("kafka-python==3.*", "python-snappy"),
    "aiokafka": ("aiokafka[snappy]==0.14.*", "uvloop"),
}
"""Requirements of a peer's venv, by module of `clients`."""

SHARED = ("cramjam", "pyarrow", "python-snappy", "uvloop")
"""Libraries that both checkouts get in the versions that this environment has."""

INSTALLED = ("aiokafka08", "pyproject.toml", "README.md", "LICENSE")
"""The part of a checkout that pip needs."""

JAVA_VERSION = "0.8.2.2"
INSTALL_S = 300


class UnavailableError(Exception):
    """A peer that can't take part on this machine; the text is for the report."""


class Peers:
    """Installs the clients and runs their measurements.

    Args:
        folder: for compiled classes and copies; the caller removes it.
        before: the checkout that clients of the module `before` run, if there are any.
    """

    def __init__(self, folder: Path, before: Path | None = None) -> None:
        self._folder = folder
        self._checkouts = {"ours": ROOT, BEFORE: before} if before else {}
        self._pythons: dict[str, Path] = {}
        self._classes: Path | None = None

    def prepare(self, client: Client) -> None:
        """Install or compile a client that isn't ready yet.

        Raises:
            UnavailableError: the client can't take part.
        """
        module = _environment(client)
        if module == "java":
            self._classes = self._classes or self._compile()
        elif module in self._pythons:
            return
        elif module in self._checkouts:
            self._pythons[module] = self._install(module)
        elif module in REQUIREMENTS:
            requirements = REQUIREMENTS[module]
            self._pythons[module] = _venv(module, requirements, repr(requirements))

    def measure(self, client: Client, job: Mapping[str, object]) -> dict[str, float]:
        """Run one job (see `worker`) of a prepared client in a process of its own.

        Raises:
            FailedError: the process failed or passed its deadline.
        """
        if client.module == "java":
            return measure(self._java(job, client.linger_ms))
        module = _environment(client)
        python = str(self._pythons.get(module, Path(sys.executable)))
        worker = ("-m", "tests.tools.bench.worker", json.dumps(job))
        if module in self._checkouts:
            # -E: PYTHONPATH may lead to this checkout.
            return measure([python, "-E", *worker], client.implementation, self._folder / "run")
        return measure([python, *worker], client.implementation)

    def _java(self, job: Mapping[str, object], linger_ms: int) -> list[str]:
        assert self._classes is not None, "prepare() comes first"
        return [
            java_command(),
            "-Djava.net.preferIPv4Stack=true",
            f"-Djava.io.tmpdir={self._classes}",  # snappy unpacks its library there
            f"-Dlog4j.configuration=file:{self._classes / 'log4j.properties'}",
            *("-cp", f"{self._classes}:{jar_folder(JAVA_VERSION)}/*", "Java"),
            *(
                str(job[name])
                for name in ("call", "bootstrap", "zookeeper", "topic", "messages", "value_bytes")
            ),
            str(job["compression"] or "none"),
            *map(str, (BATCH_BYTES, linger_ms, job["partitions"])),
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
                "Java clients left out: no `javac` on this machine."
                " Install it (Debian/Ubuntu: apt-get install openjdk-17-jdk-headless)"
            ) from None
        _run("Java clients", [*command, "-cp", f"{jar_folder(JAVA_VERSION)}/*", str(source)])
        return classes

    def _install(self, module: str) -> Path:
        """Install a copy of a checkout, and return its Python.

        Both sides run this checkout's benchmark clients. The worker's working directory is a folder
        that has `tests` but no `aiokafka08`, so the worker imports the installed package.
        """
        checkout = self._checkouts[module]
        copy = self._folder / module
        copy.mkdir()
        ignore = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
        try:
            shutil.copytree(checkout / INSTALLED[0], copy / INSTALLED[0], ignore=ignore)
            for name in INSTALLED[1:]:
                shutil.copy(checkout / name, copy)
        except OSError as error:
            raise UnavailableError(f"--before {checkout}: not a checkout: {error}") from error
        workers = self._folder / "run"
        if not workers.exists():
            workers.mkdir()
            (workers / "tests").symlink_to(ROOT / "tests")
        shared = [f"{name}=={importlib.metadata.version(name)}" for name in SHARED]
        return _venv(module, (*shared, str(copy)), f"{shared} {_digest(copy)}")


def _environment(client: Client) -> str:
    """Return the module whose clients are installed in the same venv."""
    return "ours" if client.is_floor else client.module


def _digest(folder: Path) -> str:
    """Return a digest of the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _venv(name: str, requirements: tuple[str, ...], content: str) -> Path:
    """Return the Python of a venv with these requirements.

    Args:
        content: stands for what is installed; the venv is created again when it has changed.
    """
    folder = Path(sys.prefix) / "peers" / name
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists() or complete.read_text() != content:
        _run(f"venv of {name}", [sys.executable, "-m", "venv", "--clear", str(folder)])
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        _run(f"installation of {name}", [str(python), *install])
        complete.write_text(content)
    return python


def _run(what: str, command: list[str]) -> None:
    """Run a command to its end, outside the virtual environment that runs the benchmark."""
    unset = ("VIRTUAL_ENV", "PYTHONPATH")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
            env={name: value for name, value in os.environ.items() if name not in unset},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{what} failed: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["the command printed nothing"]
        raise UnavailableError(f"{what} failed: {lines[-1]}")
