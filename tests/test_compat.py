"""`aiokafka08.compat`: each test in a process of its own, since others import the real aiokafka."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, cwd: Path, **environment: str) -> str:
    """Run Python and return what it prints; its failure fails the test."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ALIAS = """
import sys
import aiokafka08.compat as compat
import aiokafka08, aiokafka08.errors
before = list(sys.meta_path)
assert "aiokafka" not in sys.modules
compat.install()
compat.install()
import aiokafka
import aiokafka.producer.producer
from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.producer.producer import _missing
assert aiokafka is aiokafka08
assert AIOKafkaConsumer is aiokafka08.AIOKafkaConsumer
assert errors is aiokafka08.errors
assert aiokafka.__name__ == aiokafka08.__spec__.name == "aiokafka08"
assert aiokafka08.producer.producer.__spec__.name == "aiokafka08.producer.producer"
for name in ("record", "nothing"):
    try:
        __import__(f"aiokafka.{name}")
    except ModuleNotFoundError as error:
        assert error.name == f"aiokafka.{name}"
    else:
        raise AssertionError(name)
compat.uninstall()
compat.uninstall()
assert sys.meta_path == before
assert not [name for name in sys.modules if name.partition(".")[0] == "aiokafka"]
import aiokafka
assert aiokafka.__name__ == "aiokafka"
assert aiokafka.AIOKafkaConsumer is not AIOKafkaConsumer
try:
    compat.install()
except errors.IllegalStateError as error:
    print(error)
assert sys.meta_path == before
"""


def test_alias_is_reversible_and_refused_after_the_real_one(tmp_path: Path) -> None:
    printed = run("-c", ALIAS, cwd=tmp_path)
    assert "aiokafka was imported before, from " in printed
    assert "before the first import of aiokafka" in printed


VERSION = """
import importlib.metadata as metadata, sys
import aiokafka08.compat as compat

def version():
    try:
        return metadata.version("aiokafka"), "aiokafka" in [
            one.metadata["Name"] for one in metadata.distributions() if one.version == "0.14.0"
        ]
    except metadata.PackageNotFoundError:
        return None

metadata.version("pytest")  # what it imports can't be imported after the next line
sys.meta_path[:] = [one for one in sys.meta_path if not hasattr(one, "find_distributions")]
print(version())
compat.install()
print(version())
print(metadata.distribution("aiokafka").metadata["Name"], metadata.files("aiokafka"))
compat.uninstall()
print(version())
"""


def test_installed_alias_has_a_version_without_the_distribution(tmp_path: Path) -> None:
    assert run("-c", VERSION, cwd=tmp_path).splitlines() == [
        "None",
        "('0.14.0', False)",
        "aiokafka None",
        "None",
    ]


def test_version_is_that_of_the_compared_release() -> None:
    from aiokafka08.compat import _VERSION

    assert importlib.metadata.version("aiokafka") == _VERSION


DEFAULTS = """
import aiokafka08.compat
from aiokafka08 import AIOKafkaConsumer
from aiokafka08.admin import AIOKafkaAdminClient

async def found(**options):
    consumer = AIOKafkaConsumer(**options)
    config, consumer = consumer._config, None
    return config.zookeeper_connect, config.zookeeper_check, config.offsets_storage

import asyncio, warnings
print(asyncio.run(found(group_id="g")))
aiokafka08.compat.install()
print(asyncio.run(found(group_id="g")))
print(asyncio.run(found()))
print(asyncio.run(found(group_id="g", zookeeper_connect="own", offsets_storage="kafka")))
print(AIOKafkaAdminClient()._connection.zookeeper.connect)
aiokafka08.compat.uninstall()
print(asyncio.run(found(group_id="g")))
"""


def test_defaults_from_the_environment_hold_while_installed(tmp_path: Path) -> None:
    environment = {
        "AIOKAFKA08_ZOOKEEPER_CONNECT": "zk:2181/c",
        "AIOKAFKA08_ZOOKEEPER_CHECK": "warn",
        "AIOKAFKA08_OFFSETS_STORAGE": "dual",
    }
    assert run("-c", DEFAULTS, cwd=tmp_path, **environment).splitlines() == [
        "(None, None, None)",
        "('zk:2181/c', 'warn', 'dual')",
        "('zk:2181/c', 'warn', None)",
        "('own', 'warn', 'kafka')",
        "zk:2181/c",
        "(None, None, None)",
    ]


def run_compat(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aiokafka08.compat", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
    )


PROGRAM = """
import sys
import aiokafka, helper
print(__name__, aiokafka.__name__, sys.argv[1:])
"""


@pytest.mark.parametrize("start", [["-m", "folder.program"], ["folder/program.py"]], ids=" ".join)
def test_program_runs_unmodified(tmp_path: Path, start: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    for home in (tmp_path, folder):
        (home / "helper.py").write_text("")
    printed = run("-m", "aiokafka08.compat", *start, "-x", "1", cwd=tmp_path)
    assert printed == "__main__ aiokafka08 ['-x', '1']\n"


BROKEN = "import missing_library\n"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (["-m", "nosuch"], "-m nosuch: no such module"),
        (["-m", "nosuch.app"], "-m nosuch.app: no such module"),
        (["-m", "folder.nosuch"], "-m folder.nosuch: no such module"),
        (["-m", "folder"], "-m folder.__main__: no such module"),
        (["nosuch.py"], "nosuch.py: no such file"),
        (["folder"], "folder: a folder without __main__.py"),
    ],
    ids=str,
)
def test_missing_program_is_one_line(tmp_path: Path, start: list[str], said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").write_text("")
    done = run_compat(*start, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"aiokafka08.compat: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("start", ["broken", "broken.app"])
def test_import_error_of_a_program_keeps_its_traceback(tmp_path: Path, start: str) -> None:
    (tmp_path / "broken").mkdir()
    for name in ("__init__.py", "__main__.py", "app.py"):
        (tmp_path / "broken" / name).write_text(BROKEN)
    done = run_compat("-m", start, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("No module named 'missing_library'\n")


def test_usage_is_shown_without_a_program(tmp_path: Path) -> None:
    done = run_compat("-m", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("usage: python -m aiokafka08.compat")
