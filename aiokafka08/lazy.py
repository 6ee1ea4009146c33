"""Packages whose names are imported when they are first used (PEP 562).

Law: importing such a package imports nothing else. pytest imports `aiokafka08` and
`aiokafka08.testing` in every session where they are installed, because of
`testing.pytest_plugin`; most sessions need neither.

A package that uses this imports the same names under `if TYPE_CHECKING`, for type checkers and
import-linter, and calls this in the `else`, so that a misspelt name is an error to them;
tests/test_package.py sees to it that both say the same.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def import_when_used(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        modules: the modules in it that can be used as its attributes → the names that the package
            takes from each.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def getattribute(name: str) -> object:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # from now on without this function
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return getattribute, directory
