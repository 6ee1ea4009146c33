"""docs/guides/migrating.md: the programs before and after do the same, and its names exist.

The programs of kafka-python and confluent-kafka run on the embedded cluster, and this package's
goes on in their group. aiokafka doesn't produce to brokers as old as these: of its program the
names are compared.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import warnings
from types import ModuleType

import aiokafka
import confluent_kafka
import pytest

import aiokafka08
from aiokafka08.testing import EmbeddedCluster
from tests.examples.test_documents import blocks
from tests.support.paths import ROOT

with warnings.catch_warnings():  # of importlib.resources, in the import
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PAGE = "docs/guides/migrating.md"
FOLDER = ROOT / "examples/guides"
PROGRAMS = {block.name: block.text for block in blocks(PAGE)} | {
    path.name: path.read_text() for path in FOLDER.glob("before_*.py")
}
CLASSES: dict[str, tuple[type, type]] = {
    "aiokafka08": (aiokafka08.AIOKafkaProducer, aiokafka08.AIOKafkaConsumer),
    "kafka-python": (kafka.KafkaProducer, kafka.KafkaConsumer),
    "confluent-kafka": (confluent_kafka.Producer, confluent_kafka.Consumer),
}
"""Producer and consumer of each package whose names in the tables are compared."""


def program(name: str) -> ModuleType:
    """Return a program of the page, or one that it links to, as a module."""
    module = ModuleType(name)
    exec(compile(PROGRAMS[f"{name}.py"], name, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("before", ["before_kafka_python", "before_confluent_kafka"])
def test_program_goes_on_where_the_one_before_ended(before: str) -> None:
    old, new = program(before), program("orders")
    with EmbeddedCluster(1, "0.10", {"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        assert old.send(servers, [b"1", b"2"]) == [(0, 0), (0, 1)]
        assert old.read(servers, 2) == [b"1", b"2"]
        assert asyncio.run(new.send(servers, [b"3", b"4"])) == [(0, 2), (0, 3)]
        assert asyncio.run(new.read(servers, 2)) == [b"3", b"4"]
        assert cluster.committed("billing", "orders", 0) == (4, "")


def test_program_of_aiokafka_differs_by_its_import() -> None:
    old, new = PROGRAMS["before_aiokafka.py"], PROGRAMS["orders.py"]
    [line] = re.findall(r"^from aiokafka import .*$", old, re.M)
    assert line.replace("aiokafka ", "aiokafka08 ") in new
    known = {
        name
        for function in (
            aiokafka.AIOKafkaProducer,
            aiokafka.AIOKafkaConsumer,
            aiokafka.AIOKafkaConsumer.getmany,
        )
        for name in inspect.signature(function).parameters
    }
    used = {word.arg for one in calls_in(new) for word in one.keywords}
    assert used <= known


def calls_in(code: str) -> list[ast.Call]:
    """Return the calls in code that may await at its top level."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(code, PAGE, "exec", flags)
    return [one for one in ast.walk(tree) if isinstance(one, ast.Call)]


def test_methods_and_arguments_in_the_tables_exist() -> None:
    checked = 0
    for package, call in calls_in_tables():
        if package not in CLASSES:
            continue
        by_variable = dict(zip(("producer", "consumer"), CLASSES[package], strict=True))
        by_name = {cls.__name__: cls for cls in CLASSES[package]}
        function: object
        match call.func:
            case ast.Name(id=name) if name in by_name:
                function = by_name[name]
            case ast.Attribute(value=ast.Name(id="producer" | "consumer" as name), attr=method):
                function = getattr(by_variable[name], method)
            case _:
                continue  # of what a call returns
        if package != "confluent-kafka":  # compiled functions have no signature
            assert {word.arg for word in call.keywords} <= arguments(function), ast.unparse(call)
        checked += 1
    assert checked > 20


def calls_in_tables() -> list[tuple[str, ast.Call]]:
    """Return the calls in both columns of the tables, each with the name of its package."""
    found = []
    for section in re.split(r"^## ", (ROOT / PAGE).read_text(), flags=re.M)[1:]:
        for cells in re.findall(r"^\| (.*?) \| (.*) \|$", section, re.M):
            for package, cell in zip((section.split()[0], "aiokafka08"), cells, strict=True):
                for code in re.findall(r"`([^`]*\([^`]*)`", cell):
                    found += [(package, one) for one in calls_in(code)]
    return found


def arguments(function: object) -> set[str]:
    """Return the names that a function, or a client of kafka-python, takes as keywords."""
    assert callable(function)
    return {*inspect.signature(function).parameters, *getattr(function, "DEFAULT_CONFIG", ())}
