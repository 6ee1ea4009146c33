"""Import the public names of a package on first use (PEP 562).

`aiokafka08` and `aiokafka08.testing` use it. pytest imports both in every session of an environment
where they are installed, because of `testing.pytest_plugin`; most sessions need neither.

Invariant: after `import aiokafka08`, the only modules of `aiokafka08` in `sys.modules` are
`aiokafka08`, `_core` and this one; after `import aiokafka08.testing`, also that one.

Each of the two packages lists its public names once, as imports under `if TYPE_CHECKING`. Type
checkers, editors and import-linter read them there. Python compiles the block and doesn't run it:
`import_when_used()` reads the names and their modules from the compiled code, which is there
without the source too. Python 3.15's `lazy from` can replace this module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache


def import_when_used(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of the package that calls this.

    Type checkers must not see the call: with a `__getattr__` they would accept misspelt names. So
    it stands in the `else` of the block with the imports. `__all__` has the names that the package
    imports from its modules; what it imports from itself are public modules.

    Args:
        package: Its `__name__`.
    """
    code = sys._getframe(1).f_code

    @cache
    def homes() -> dict[str, str]:
        """Return the module of each name that the package's code imports from its own modules."""
        from dis import get_instructions  # slow, and asyncio imports it too

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
    """Return whether the module is the package or in it; not for this module, a mere tool."""
    return f"{module}.".startswith(f"{package}.") and module != __name__
