"""Make `import aiokafka` mean this package, for frameworks that import aiokafka by its name.

    import aiokafka08.compat
    aiokafka08.compat.install()      # before the first import of the framework
    from faststream.kafka import KafkaBroker

or, for a program that stays as it is: `python -m aiokafka08.compat -m faststream run app:app`.

Invariant: importing this module changes nothing, and `uninstall()` restores what `install()` has
changed. Modules that were imported in between keep the classes that they have.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from aiokafka08.errors import IllegalStateError

if TYPE_CHECKING:  # clients import this module for `default_of`, and shouldn't load these
    from importlib.metadata import Distribution, DistributionFinder
    from pathlib import Path

_REAL: Final = "aiokafka"
_OURS: Final = "aiokafka08"
# The release of aiokafka whose names and signatures this package has
_VERSION: Final = "0.14.0"
# The environment variables with defaults for options that a framework doesn't pass.
# AIOKAFKA08_HEADERS, the default of `headers`, isn't here, since it needs no `install()`.
_VARIABLES: Final = {
    "zookeeper_connect": "AIOKAFKA08_ZOOKEEPER_CONNECT",
    "zookeeper_check": "AIOKAFKA08_ZOOKEEPER_CHECK",
    "offsets_storage": "AIOKAFKA08_OFFSETS_STORAGE",
}
# The defaults by option, while this is installed
_defaults: dict[str, str] = {}


def default_of(option: str, given: str | None) -> str | None:
    """Return `given`, or the option's default if `given` is None."""
    return _defaults.get(option) if given is None else given


class AliasFinder:
    """A finder and loader for `sys.meta_path`: aiokafka's modules are those of this package."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of aiokafka, or of a module of it that this package has; else None."""
        if not _is_alias(name) or find_spec(_own_name(name)) is None:
            return None
        return ModuleSpec(name, cls(), origin=_own_name(name))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: let Python make a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Put this package's module in the place of the new one."""
        sys.modules[module.__name__] = importlib.import_module(_own_name(module.__name__))

    @staticmethod
    def find_distributions(
        context: DistributionFinder.Context | None = None,
    ) -> Iterator[Distribution]:
        """Yield the distribution aiokafka if that name is looked for; it precedes one on disk."""
        if context is not None and context.name is not None and context.name.lower() == _REAL:
            # Programs ask for aiokafka's version (FastStream, OpenTelemetry's instrumentor). It may
            # not be installed.
            yield _alias_distribution()


def _alias_distribution() -> Distribution:
    """Return aiokafka as `importlib.metadata` shows a distribution: name and version, no files."""
    from importlib.metadata import Distribution
    from pathlib import Path

    class AliasDistribution(Distribution):
        def read_text(self, filename: str) -> str | None:
            if filename != "METADATA":
                return None
            return f"Metadata-Version: 2.1\nName: {_REAL}\nVersion: {_VERSION}\n"

        def locate_file(self, path: str | os.PathLike[str]) -> Path:
            return Path(__file__).parent.parent / path

    return AliasDistribution()


def install() -> None:
    """Make `import aiokafka` mean this package, until `uninstall()`. The second call does nothing.

    Options that a framework doesn't pass then get defaults from environment variables:
    AIOKAFKA08_ZOOKEEPER_CONNECT is `zookeeper_connect` of consumers and admin clients,
    AIOKAFKA08_ZOOKEEPER_CHECK their `zookeeper_check`, and AIOKAFKA08_OFFSETS_STORAGE
    `offsets_storage` of consumers with a group.

    Raises:
        IllegalStateError: aiokafka itself was imported before, so that some modules would have its
            classes and others those of this package.
    """
    if AliasFinder in sys.meta_path:
        return
    imported = sys.modules.get(_REAL)
    if imported is not None:
        raise IllegalStateError(
            f"aiokafka was imported before, from {getattr(imported, '__file__', None)}. Call "
            "aiokafka08.compat.install() before the first import of aiokafka, or of a framework "
            "that imports it"
        )
    _defaults.update(
        {name: os.environ[key] for name, key in _VARIABLES.items() if os.environ.get(key)}
    )
    # `aiokafka` and its modules become other names of this package's modules, so classes are the
    # same objects under both names. Nothing is written to disk.
    sys.meta_path.insert(0, AliasFinder)


def uninstall() -> None:
    """Make `import aiokafka` mean aiokafka again. Does nothing without `install()`."""
    if AliasFinder not in sys.meta_path:
        return
    sys.meta_path.remove(AliasFinder)
    for name in [name for name in sys.modules if _is_alias(name)]:
        del sys.modules[name]
    _defaults.clear()


def _is_alias(name: str) -> bool:
    return name.partition(".")[0] == _REAL


def _own_name(name: str) -> str:
    return _OURS + name.removeprefix(_REAL)


def main(arguments: Sequence[str]) -> None:
    """Call `install()`, and run a module (`-m name`) or a script with the rest of the arguments.

    Raises SystemExit if there is no such module or script, else what the program raises.
    """
    is_module = arguments[:1] == ["-m"]
    program = arguments[is_module:][:1]
    if not program or program[0].startswith("-"):
        raise SystemExit(
            "usage: python -m aiokafka08.compat (-m module | script.py) [argument ...]"
        )
    import runpy
    from pathlib import Path

    install()
    sys.argv = list(arguments[is_module:])
    problem = _module_problem(program[0]) if is_module else _script_problem(Path(program[0]))
    if problem is not None:
        raise SystemExit(f"aiokafka08.compat: {problem}")
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


def _module_problem(name: str) -> str | None:
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a package of the program lacks a module
        spec = None
    if spec is None:
        return f"-m {name}: no such module, expected one that python -m finds from {os.getcwd()}"
    return None


def _script_problem(path: Path) -> str | None:
    """Return why this file can't be run; None if it can."""
    if not path.exists():
        return f"{path}: no such file, expected a script of Python. Run a module with -m"
    if path.is_dir() and not (path / "__main__.py").exists():
        return f"{path}: a folder without __main__.py, expected a script of Python"
    return None


if __name__ == "__main__":
    # Clients read `_defaults` of `aiokafka08.compat`; this module object, `__main__`, has its own.
    importlib.import_module("aiokafka08.compat").main(sys.argv[1:])
