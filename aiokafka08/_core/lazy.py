"""Import the public names of a package on first use (PEP 562).

pytest loads this package's plugin, and so `aiokafka08.testing`, in every session of an environment
that has the package, and most sessions need nothing from it.

Invariant: after `import aiokafka08`, the only modules of `aiokafka08` in `sys.modules` are
`aiokafka08`, `_core` and this one; after `import aiokafka08.testing`, also that one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache


def import_when_used(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of the package `package`, which calls this.

    The package lists its public names once, as imports under `if TYPE_CHECKING`. Call this in the
    `else` of that block: a type checker that saw a `__getattr__` would accept misspelt names.
    """
    # Python compiles the block of imports and doesn't run it. The compiled code has the names and
    # their modules, also where the source is missing.
    code = sys._getframe(1).f_code

    @cache
    def homes() -> dict[str, str]:
        """Return the module of each name that the package's code imports from its own modules."""
        from dis import get_instructions  # slow to import, but asyncio imports it anyway

        modules, module = {}, ""
        for step in get_instructions(code):
            if step.opname == "IMPORT_NAME":
                module = step.argval
            elif step.opname == "IMPORT_FROM" and _is_in(module, package):
                modules[step.argval] = module
        return modules

    def getattribute(name: str) -> object:
        if name == "__all__":
            return sorted(name for name, home in homes().items() if home != package)
        home = None if name.startswith("__") else homes().get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return importlib.import_module(f"{package}.{name}")
        value: object = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)  # later accesses don't call this function
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes(), "__all__"})

    return getattribute, directory


def _is_in(module: str, package: str) -> bool:
    """Return whether the module is in the package, and isn't this one."""
    return f"{module}.".startswith(f"{package}.") and module != __name__
