"""A pytest plugin: under xdist, each process rewrites a part of the test files, not all of them.

pytest rewrites the asserts of a test file at its first import, and keeps the result beside the
file. Processes that begin without these results, as in a new clone, would each rewrite all files at
the same time: that takes twice as long as all the rest of the collection. So before it collects,
each process imports its share, which the others then find rewritten.

Invariant: an import that fails is repeated, and reported, by the collection.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest


def modules_of(arguments: Iterable[str], root: Path) -> list[str]:
    """Return the modules of the test files that the arguments of pytest name, in order."""
    found: set[Path] = set()
    for argument in arguments:
        path = root / argument.partition("::")[0]
        found.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return sorted(
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in found
        if path.is_relative_to(root)
    )


def import_share(modules: list[str], number: int, processes: int) -> None:
    """Import the modules that are for the process with this number."""
    for module in modules[number::processes]:
        with contextlib.suppress(Exception, pytest.skip.Exception, pytest.fail.Exception):
            importlib.import_module(module)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        modules = modules_of(session.config.args, session.config.rootpath)
        processes = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        import_share(modules, int(worker.removeprefix("gw")), processes)
    return (yield)
