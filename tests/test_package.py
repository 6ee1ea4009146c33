"""The package as a whole: what an import of it loads, and what its distributions hold."""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import pickle
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import aiokafka08
from aiokafka08.telemetry import GroupJoinFailed
from tests.support.paths import ROOT
from tests.tools.distribution import LINK, absolute_links, check_sdist, check_wheel, copy_project

pytestmark = pytest.mark.heavy

EXTRAS = {
    *("click", "kazoo", "opentelemetry", "prometheus_client", "pyarrow", "pyspark", "rich"),
    *("jinja2", "starlette", "uvicorn", "uvloop"),
}
LAZY = ["aiokafka08", "aiokafka08.testing"]
FIRST_CHOICE = {"asyncio", "logging", "socket", "ssl"}
"""Modules of the standard library that are imported only when the client is used."""


def modules_after(code: str) -> set[str]:
    """Return `sys.modules` of a new process after it has run this code."""
    command = [sys.executable, "-W", "error", "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_import_loads_only_the_package_itself() -> None:
    new = modules_after("import aiokafka08") - modules_after("import importlib, typing")
    assert {name for name in new if name.startswith("aiokafka08")} == {
        "aiokafka08",
        "aiokafka08._core",
        "aiokafka08._core.lazy",
    }
    assert not new & FIRST_CHOICE


def test_importing_the_producer_loads_few_modules() -> None:
    """An import takes about a millisecond for each module, and more for generated code."""
    before = modules_after("import asyncio, dataclasses, logging, ssl")
    new = modules_after("import aiokafka08\naiokafka08.AIOKafkaProducer") - before
    ours = {name for name in new if name.startswith("aiokafka08")}
    parts = {name.removeprefix("aiokafka08.").removeprefix("_core.") for name in ours}
    assert not {part.partition(".")[0] for part in parts} & {
        *("admin", "consumer", "coordinator", "offset_store", "spark", "testing", "zookeeper"),
    }
    assert not parts & {"protocol._record_batch_py", "protocol.batch_format"}
    others = {name.partition(".")[0] for name in new - ours}
    assert not others & {
        *("concurrent", "email", "http", "importlib", "inspect", "ipaddress", "multiprocessing"),
        *("queue", "typing_extensions", "unittest", "urllib", "uuid", "xml"),
        *("cramjam", "snappy"),
    }
    assert len(others) < 20
    assert len(ours) <= 84
    requests = {name.rpartition(".")[2] for name in ours if ".protocol.requests." in name}
    assert requests == {"api_versions", "fetch", "list_offsets", "metadata", "produce"}


def test_importing_the_consumer_loads_nothing_of_groups() -> None:
    """A consumer without a group needs no coordinator, no stored offsets and no ZooKeeper."""
    ours = modules_after("from aiokafka08 import AIOKafkaConsumer\nAIOKafkaConsumer()")
    groups = ("coordinator.", "_core.offset_store.", "_core.zookeeper.")
    assert not {name for name in ours if name.removeprefix("aiokafka08.").startswith(groups)} - {
        "aiokafka08._core.offset_store.choose",
        "aiokafka08._core.offset_store.no_store",
    }
    assert not ours & {
        "aiokafka08._core.net.coordinator_lookup",
        "aiokafka08.protocol.requests.committed_offsets",
        "aiokafka08.protocol.requests.groups",
        "importlib.metadata",
        "json",
        "runpy",
    }


def test_names_are_found_without_the_sources(tmp_path: Path) -> None:
    """As in a frozen program: the names come from the compiled code."""
    folder = tmp_path / "aiokafka08"
    (folder / "_core").mkdir(parents=True)
    for name in ("__init__", "_core/__init__", "_core/lazy", "structs"):
        compiled = folder / f"{name}.pyc"
        py_compile.compile(str(ROOT / "aiokafka08" / f"{name}.py"), str(compiled), doraise=True)
    code = f"sys.path.insert(0, {str(tmp_path)!r})\nfrom aiokafka08 import TopicPartition\n"
    assert "aiokafka08.structs" in modules_after(code)
    path = modules_after(f"{code}import aiokafka08\nprint(aiokafka08.__file__)")
    assert str(folder / "__init__.pyc") in path


def test_fields_of_an_event_are_set_once() -> None:
    event: Any = GroupJoinFailed("g", "why", client_id="c")
    for name in ("group", "client_id"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(event, name, "other")
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(event, name)
    for name in ("name", "amount", "unknown"):  # `dataclass` with slots raises a TypeError
        with pytest.raises((AttributeError, TypeError)):
            setattr(event, name, "other")
    for same in (copy.copy(event), pickle.loads(pickle.dumps(event)), dataclasses.replace(event)):
        assert same == event
        assert same.client_id == "c"
    assert dataclasses.replace(event, group="h").group == "h"


def test_using_the_package_imports_no_extra() -> None:
    imported = modules_after("from aiokafka08 import *\nAIOKafkaConsumer, TopicPartition")
    assert {"aiokafka08.producer.producer", "asyncio"} <= imported
    assert not {name.partition(".")[0] for name in imported} & EXTRAS


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_names_that_python_sees(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(name for name, home in seen.items() if home != package) == module.__all__
    for name, home in seen.items():
        if home == package:
            assert getattr(module, name) is importlib.import_module(f"{package}.{name}")
        else:
            assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)
    assert {*seen, "__all__", "__name__"} <= set(dir(module))


@pytest.mark.parametrize("package", LAZY)
def test_misspelt_name_raises_attribute_and_import_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Kafka'"):
        _ = importlib.import_module(package).Kafka
    with pytest.raises(ImportError, match="Kafka"):
        exec(f"from {package} import Kafka")


@pytest.mark.parametrize(
    ("attribute", "home"),
    [
        ("AIOKafkaProducer", "aiokafka08.producer"),
        ("errors.KafkaError", "aiokafka08.errors"),
        ("admin.AIOKafkaAdminClient", "aiokafka08.admin"),
        ("testing.EmbeddedCluster", "aiokafka08.testing.cluster"),
        ("testing.faults.Close", "aiokafka08.testing.faults"),
    ],
)
def test_one_import_reaches_all_public_names(attribute: str, home: str) -> None:
    """As `import aiokafka` is enough for `aiokafka.errors.KafkaError`."""
    assert home in modules_after(f"import aiokafka08\naiokafka08.{attribute}")


def test_public_names_can_be_pickled() -> None:
    partition = aiokafka08.TopicPartition("orders", 3)
    assert pickle.loads(pickle.dumps(partition)) == partition
    assert pickle.loads(pickle.dumps(aiokafka08.AIOKafkaProducer)) is aiokafka08.AIOKafkaProducer


# --- sdist and wheel ------------------------------------------------------------------------------


def test_sdist_has_all_to_build_and_read_and_no_tests(tmp_path: Path) -> None:
    copy_project(tmp_path / "copy")
    code = f"from setuptools.build_meta import build_sdist\nbuild_sdist({str(tmp_path)!r})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path / "copy", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [sdist] = tmp_path.glob("*.tar.gz")
    assert check_sdist(sdist) == []


def test_links_of_readme_are_absolute_with_a_repository() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = [target for _, target in LINK.findall(readme)]
    assert "docs/groups.md" in targets
    assert all((ROOT / target.partition("#")[0]).exists() for target in targets)
    text = absolute_links(readme, "https://example.org/aiokafka08/")
    assert not LINK.findall(text)
    assert "[Groups](https://example.org/aiokafka08/blob/HEAD/docs/groups.md)" in text
    assert "https://github.com/aio-libs/aiokafka)" in text


def test_links_of_readme_are_names_without_a_repository() -> None:
    text = absolute_links("See [the page](docs/a.md#b) and [x](https://y).\n", None)
    assert text == (
        "See `docs/a.md#b` and [x](https://y).\n\n"
        "The files named here are in the source distribution.\n"
    )
    assert absolute_links("[x](#top)\n", None) == "[x](#top)\n"


def test_picture_of_readme_is_raw_or_described() -> None:
    text = "![A screenshot](docs/a.svg)\n"
    assert absolute_links(text, "https://example.org/a") == (
        "![A screenshot](https://example.org/a/raw/HEAD/docs/a.svg)\n"
    )
    assert absolute_links(text, None).startswith("`docs/a.svg`: A screenshot.\n")


def test_wheel_with_debug_information_or_links_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a-1.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/_c.so", bytes(1_000_000))
        archive.writestr("a-1.dist-info/METADATA", "Name: a\n\nSee [docs](docs/a.md).\n")
    assert check_wheel(path) == [
        "a-1.whl: a/_c.so has 1,000,000 bytes; expected a stripped one",
        "a-1.whl: relative link to docs/a.md",
    ]
