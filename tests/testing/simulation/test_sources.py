"""No module that may run in a simulation takes time or randomness from elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import aiokafka08

PACKAGE = Path(aiokafka08.__file__).parent
REAL = {
    "environment.py",  # the one place
    "testing/__main__.py",
    "testing/simulation/guard.py",
}
OUTSIDE = ("_core/metrics/", "_tools/", "bridge/", "spark/")
"""Programs and servers: they use threads and clocks of their own."""
REFUSED = {
    "date": {"today"},
    "datetime": {"now", "today", "utcnow"},
    "os": {"getrandom", "urandom"},
    "random": None,
    "secrets": None,
    "time": None,
    "uuid": {"uuid1", "uuid4"},
}
"""By module or class: the names that may not be used; None: all but classes."""


def modules() -> list[Path]:
    found = (path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))
    return [path for path in found if str(path) not in REAL and not str(path).startswith(OUTSIDE)]


def refused_uses(source: str) -> list[str]:
    """Return "module.name" for each use of a refused name of an imported module."""
    nodes = list(ast.walk(ast.parse(source)))
    imported = {
        one.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
        if one.name != "environment"
    }
    used = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            used += [(node.module, one.name) for one in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = ast.unparse(node.value)
            if owner.partition(".")[0] in imported:
                used.append((owner.rpartition(".")[2], node.attr))
    return [f"{module}.{name}" for module, name in used if _is_refused(module, name)]


def _is_refused(module: str, name: str) -> bool:
    names = REFUSED.get(module, set())
    return not name[0].isupper() if names is None else name in names


def test_modules_take_time_and_chance_from_environment() -> None:
    used = {str(path): refused_uses((PACKAGE / path).read_text()) for path in modules()}
    assert len(used) > 150
    assert {path: names for path, names in used.items() if names} == {}


def test_a_use_of_the_real_clock_is_found() -> None:
    source = (
        "import os, time, datetime\nfrom random import Random, choice\n"
        "x = time.monotonic, os.urandom(1), datetime.datetime.now(), random.random()\n"
    )
    used = ["datetime.now", "os.urandom", "random.choice", "time.monotonic"]
    assert sorted(refused_uses(source)) == used
