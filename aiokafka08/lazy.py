"""Import the public names of a package on first use (PEP 562).

`aiokafka08` and `aiokafka08.testing` use it. pytest imports both in every session of an environment
where they are installed, because of `testing.pytest_plugin`; most sessions need neither.

Invariant: after `import aiokafka08`, the only modules of `aiokafka08` in `sys.modules` are
`aiokafka08`, `aiokafka08.internals` and this one; after `import aiokafka08.testing`, also that one.

Each of the two packages lists its public names twice. Under `if TYPE_CHECKING` it imports them, for
type checkers and import-linter. In the `else` it passes them to `import_when_used()`. Type checkers
skip the `else`: if they saw a `__getattr__`, they would accept misspelt names.
tests/test_package.py checks that both lists agree.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def import_when_used(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Args:
        package: Its `__name__`.
        modules: The modules that are attributes of the package, each with the names that the
            package takes from it.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def getattribute(name: str) -> object:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # later accesses don't call this function
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return getattribute, directory
