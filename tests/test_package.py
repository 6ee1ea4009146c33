"""The package as a whole: what an import of it loads."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import aiokafka08

PROJECT = Path(__file__).resolve().parent.parent
EXTRAS = {"kazoo", "pyarrow", "pyspark", "uvloop"}
LAZY = ["aiokafka08", "aiokafka08.testing"]
FIRST_CHOICE = {"asyncio", "logging", "socket", "ssl"}
"""Modules of the standard library that are imported only when the client is used."""


def modules_after(code: str) -> set[str]:
    """Return `sys.modules` of a new process after it has run this code."""
    command = [sys.executable, "-W", "error", "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_import_loads_only_the_package_itself() -> None:
    new = modules_after("import aiokafka08") - modules_after("import importlib, typing")
    assert {name for name in new if name.startswith("aiokafka08")} == {
        "aiokafka08",
        "aiokafka08.internals",
        "aiokafka08.lazy",
    }
    assert not new & FIRST_CHOICE


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
    assert sorted(seen) == sorted(module.__all__)
    for name, home in seen.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)
    assert set(module.__all__) <= set(dir(module))


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
