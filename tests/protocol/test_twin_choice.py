"""Which twins run: with AIOKAFKA08_IMPL, without the extension modules, and from a zip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import aiokafka08
from tests.protocol.twins import TWINS
from tests.support.paths import ROOT

PACKAGE = Path(aiokafka08.__file__).parent
"""Perhaps that of an installed wheel, without a checkout beside these tests."""

PROGRAM = """
import sys
from aiokafka08.producer import DeliveryFuture, fast_path
from aiokafka08.protocol import message_set
builder = message_set.MessageSetBuilder(0)
builder.append(b"key", b"value", -1)
assert bytes(builder.build()) == message_set.encode_entry(0, b"key", b"value")
print(message_set.IMPLEMENTATION)
for one in (message_set.MessageSetBuilder, DeliveryFuture, fast_path.Appender):
    print(one.__module__.rpartition(".")[2])
print("loaded:", *sorted(name for name in sys.modules if name.endswith("_c") and "aiok" in name))
print(message_set.__file__)
"""
START = """
import asyncio, logging, sys
from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster

async def main():
    async with EmbeddedCluster() as cluster:
        for client in (
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="billing-1"),
            AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, client_id="billing-2"),
        ):
            async with client:
                print(repr(client).rpartition("impl=")[2], client.metrics()["compiled"])

form = "%(name)s %(levelname)s %(message)s"
logging.basicConfig(level=logging.INFO, format=form, stream=sys.stdout)
asyncio.run(main())
print("the end")
"""
PURE = ["python", "_builder_py", "batch_delivery", "fast_path", "loaded:"]
WITHOUT = "import sys; sys.modules['aiokafka08.{}'] = None\n"
MESSAGE_SET, PRODUCER = "protocol._message_set_c", "producer._producer_c"

needs_compiled = pytest.mark.skipif("c" not in TWINS, reason="the extension modules aren't built")


def run(
    program: str, demand: str | None, *, path: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {name: one for name, one in os.environ.items() if name != "AIOKAFKA08_IMPL"}
    environment["PYTHONPATH"] = str(path or ROOT)
    if demand is not None:
        environment["AIOKAFKA08_IMPL"] = demand
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, cwd=cwd or ROOT, capture_output=True, text=True, check=False
    )


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """All lines but the last, which is the path of the package."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[:-1]


@needs_compiled
@pytest.mark.parametrize("demand", [None, "", "c"])
def test_compiled_twins_run_where_they_are_built(demand: str | None) -> None:
    assert printed(run(PROGRAM, demand)) == [
        "c", "_message_set_c", "_producer_c", "_producer_c",
        f"loaded: aiokafka08.{PRODUCER} aiokafka08.{MESSAGE_SET}",
    ]  # fmt: skip


@pytest.mark.parametrize("demand", [None, ""])
def test_missing_message_set_makes_both_twins_pure(demand: str | None) -> None:
    found = printed(run(WITHOUT.format(MESSAGE_SET) + PROGRAM, demand))
    assert found == [*PURE[:-1], f"loaded: aiokafka08.{MESSAGE_SET}"]  # present as None


@needs_compiled
def test_missing_producer_leaves_message_set_compiled() -> None:
    found = printed(run(WITHOUT.format(PRODUCER) + PROGRAM, None))
    assert found[:4] == ["c", "_message_set_c", *PURE[2:4]]


def test_python_demanded_imports_no_extension_module() -> None:
    assert printed(run(PROGRAM, "python")) == PURE


@pytest.mark.parametrize("name", [MESSAGE_SET, PRODUCER])
def test_c_demanded_but_missing_raises_import_error(name: str) -> None:
    if name == PRODUCER and "c" not in TWINS:
        pytest.skip("the extension modules aren't built")
    done = run(WITHOUT.format(name) + PROGRAM, "c")
    assert done.returncode != 0
    assert f"ImportError: AIOKAFKA08_IMPL=c: aiokafka08.{name} can't be imported" in done.stderr
    assert "C compiler" in done.stderr


@pytest.mark.parametrize("is_source_tree", [True, False])
def test_missing_module_in_a_source_tree_names_the_tree(
    is_source_tree: bool, tmp_path: Path
) -> None:
    """As when Python runs in the folder of a clone, where nothing is compiled."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "aiokafka08", ignore=ignored)
    if is_source_tree:
        (tmp_path / "pyproject.toml").touch()
    done = run(PROGRAM, "c", path=tmp_path, cwd=tmp_path)
    assert done.returncode != 0
    assert (f"imported from the source tree {tmp_path}" in done.stderr) is is_source_tree
    assert "aiokafka08 aiokafka08" not in done.stderr  # no package index has it
    pure = "from aiokafka08.protocol import twins; print(twins.explain_pure(twins.CONSUMER_TWINS))"
    found = run(pure, None, path=tmp_path, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (f"the source tree {tmp_path}" in found.stdout) is is_source_tree


def started(without: str, demand: str | None) -> tuple[list[str], list[str]]:
    """Start both clients; return what they say of their twins, and their log lines about it."""
    lines = printed(run(without + START, demand))
    logged = [line for line in lines if "pure Python" in line]
    return [line for line in lines if line.endswith((" 0", " 1"))], logged


@needs_compiled
def test_compiled_clients_name_their_twin_without_a_log() -> None:
    assert started("", None) == (["c> 1", "c> 1"], [])


def test_demanded_pure_clients_log_the_reason_once() -> None:
    said, logged = started("", "python")
    assert said == ["python> 0", "python> 0"]
    slow = "in pure Python, which is slower than the compiled twin: AIOKAFKA08_IMPL=python"
    assert logged == [
        f"aiokafka08 INFO billing-1: running message set and producer {slow}",
        f"aiokafka08 INFO billing-2: running message set {slow}",
    ]


def test_missing_module_is_the_reason_in_the_start_log() -> None:
    said, logged = started(WITHOUT.format(MESSAGE_SET), None)
    assert said == ["python> 0", "python> 0"]
    assert len(logged) == 2
    assert all(f": aiokafka08.{MESSAGE_SET} can't be imported (" in line for line in logged)


@needs_compiled
def test_clients_with_different_twins_name_both() -> None:
    said, logged = started(WITHOUT.format(PRODUCER), None)
    assert said == ["message_set:c,producer:python> 0", "c> 1"]
    [line] = logged
    assert line.startswith("aiokafka08 INFO billing-1: running producer in pure Python")
    assert f"aiokafka08.{PRODUCER} can't be imported (" in line


def test_unknown_demand_names_the_allowed_values() -> None:
    done = run(PROGRAM, "rust")
    assert done.returncode != 0
    assert "AIOKAFKA08_IMPL='rust': expected 'c' or 'python'" in done.stderr


@needs_compiled
def test_module_of_other_sources_is_one_that_is_missing() -> None:
    """The classes in the sources lack slots that the extension module was built for."""
    program = "from aiokafka08.protocol import twins\n"
    program += "print(twins.load_compiled_producer(*[object] * 6))\nprint(twins.__file__)"
    assert printed(run(program, None)) == ["None"]
    done = run(program, "c")
    assert "ImportError: AIOKAFKA08_IMPL=c: aiokafka08.producer._producer_c can't" in done.stderr
    assert "<class 'object'> has no slot builder" in done.stderr


@pytest.mark.parametrize("demand", [None, "python"])
def test_zip_on_the_path_runs_the_pure_twins(demand: str | None, tmp_path: Path) -> None:
    """As on Spark executors that get the sources with `addPyFile`."""
    package = tmp_path / "aiokafka08.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in PACKAGE.rglob("*"):
            if path.suffix in {".py", ".so"}:  # Python imports no .so out of a zip
                archive.write(path, path.relative_to(PACKAGE.parent))
    done = run(PROGRAM, demand, path=package, cwd=tmp_path)
    assert printed(done) == PURE
    assert done.stdout.splitlines()[-1].startswith(str(package))
