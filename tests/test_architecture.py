"""Rules of the package's structure that no linter checks: class names, error codes, cycles, map."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import PACKAGE, ROOT
from tests.tools.shape import parse, sources


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- class names ----------------------------------------------------------------------------------


def test_class_names_are_unique() -> None:
    """A reader who searches for a class finds one."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sources(PACKAGE):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(relative(path))
    assert not {name: found for name, found in homes.items() if len(found) > 1}


# --- documents ------------------------------------------------------------------------------------


def test_design_names_existing_files() -> None:
    """`docs/design.md` is the map: what it names in backticks as a path exists."""
    text = (ROOT / "docs/design.md").read_text()
    named = set(re.findall(r"`([\w/.]+\.(?:py|pyx|toml|md))`", text))
    assert named
    missing = {name for name in named if not ((ROOT / name).exists() or (PACKAGE / name).exists())}
    assert not missing


_NAMED = re.compile(r"`(_core|_tools|[a-z]+)((?:\.[a-z_]+)+)")
_ATTRIBUTES = {"producer.client", "consumer._client"}  # of a client, not modules


def test_modules_that_docstrings_name_exist() -> None:
    """`bridge.sink.worker` or `bridge.sink.worker.X` in a docstring: the module is there."""
    missing = []
    for path in sources(PACKAGE):
        for folder, names in _NAMED.findall(ast.get_docstring(parse(path)) or ""):
            place, parts = PACKAGE / folder, names[1:].split(".")
            while parts and (place / parts[0]).is_dir():
                place /= parts.pop(0)
            modules = [place / f"{parts[0]}{suffix}" for suffix in (".py", ".pyx")] if parts else []
            is_known = f"{folder}{names}" in _ATTRIBUTES or not (PACKAGE / folder).is_dir()
            if modules and not is_known and not any(module.exists() for module in modules):
                missing.append((relative(path), folder + names))
    assert missing == []


# --- error codes ----------------------------------------------------------------------------------

_CODE_NAME = re.compile(r"(^|_)(?<!size_)(code|errno)$", re.I)  # `size_code` is one of lz4's


def is_code(node: ast.expr) -> bool:
    """Return whether an expression is a name or attribute for an error code."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return bool(_CODE_NAME.search(name))


def is_number(node: ast.expr | None) -> bool:
    """Return whether an expression is an integer literal other than 0, "no error"."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return any(map(is_number, node.elts))
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0


def literal_codes(tree: ast.Module) -> Iterator[int]:
    """Iterate over the lines that compare, assign or pass a literal number as an error code."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                found = any(map(is_code, sides)) and any(map(is_number, sides))
            case ast.Assign():
                found = any(map(is_code, node.targets)) and is_number(node.value)
            case ast.AnnAssign():
                found = is_code(node.target) and is_number(node.value)
            case ast.keyword():
                found = bool(_CODE_NAME.search(node.arg or "")) and is_number(node.value)
            case _:
                continue
        if found:
            yield node.lineno


def test_error_codes_are_literals_in_errors_only() -> None:
    found = {
        f"{relative(path)}:{line}"
        for path in sources(PACKAGE)
        if path.name != "errors.py"
        for line in literal_codes(parse(path))
    }
    assert not found


# --- imports --------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, known: set[str]) -> set[str]:
    """Return the modules of the package that a module imports anywhere, also for types only."""
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in known else node.module)
    return found & known - {module_name(path)}


def cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Iterate over the strongly connected components of several modules (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                yield from visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                yield component

    for name in sorted(graph):
        if name not in index:
            yield from visit(name)


def test_modules_have_no_import_cycles() -> None:
    """Neither at import time, nor by imports inside functions or for type checkers."""
    paths = {module_name(path): path for path in sources(PACKAGE)}
    graph = {name: imported_modules(path, set(paths)) for name, path in paths.items()}
    assert list(cycles(graph)) == []
