"""Print the shape of a checkout: sizes, text beside code, names used twice, what tests reach into.

    python -m tests.tools.shape                   this checkout
    python -m tests.tools.shape DIR --json        another one, to compare
    python -m tests.tools.shape --since v0.1.0    also the commit subjects that are too long

- A line of code is one that isn't blank, a comment or part of a docstring.
- A docstring is a string that is a statement: of modules, classes, functions, and of attributes.
  All its lines count.
- A comment line has a comment, alone or behind code. `noqa`, `type:` and other comments for tools
  don't count.
- Class names are those of Python files: a compiled twin has the name of the pure one on purpose.
- A private access is `x._name` where x is neither `self` nor `cls`.

It reads files only, so it also runs on checkouts older than itself, and imports nothing of theirs.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import io
import json
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = "aiokafka08"
CYTHON = ("*.pyx", "*.pxi", "*.pxd")
LONG_MODULE = 500
LONG_SUBJECT = 72
WORST = 10

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_FOR_TOOLS = re.compile(r"#+\s*(noqa|type:|pragma|fmt:|ruff:|mypy:|cython:|distutils:)")
_CYTHON_DOCSTRING = re.compile(r'^[ \t]*"""(?:.|\n)*?"""', re.M)
_CYTHON_COMMENT = re.compile(r"(?:^[ \t]*|  )(#.*)$", re.M)


def sources(folder: Path, pattern: str = "*.py") -> list[Path]:
    """Return the files below a folder, without those that a build made."""
    return sorted(path for path in folder.rglob(pattern) if "build" not in path.parts)


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


# --- lines ----------------------------------------------------------------------------------------


def docstring_lines(path: Path) -> set[int]:
    """Return the numbers of the lines of docstrings, those of attributes included."""
    return {
        line
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(path: Path, *, signatures: bool = True) -> set[int]:
    """Return the numbers of the lines with code; `signatures`: with those of public functions."""
    skipped = docstring_lines(path)
    for node in () if signatures else ast.walk(parse(path)):
        if isinstance(node, Function) and (node.name == "__init__" or node.name[0] != "_"):
            skipped.update(range(node.lineno, node.body[0].lineno))
    lines: set[int] = set()
    for token in _tokens(path):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - skipped


def cython_code_lines(path: Path) -> int:
    """Count the lines of a Cython file that aren't blank, comment-only or in a docstring."""
    text = _CYTHON_DOCSTRING.sub("", path.read_text())
    return sum(1 for line in text.splitlines() if line.strip() and line.strip()[0] != "#")


@cache
def _tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of source files."""

    total: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0

    def __add__(self, other: Lines) -> Lines:
        both = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Lines(*map(sum, both))


def python_lines(path: Path) -> Lines:
    """Count the lines of a Python file."""
    return Lines(
        len(path.read_text().splitlines()),
        len(code_lines(path)),
        len(docstring_lines(path)),
        sum(
            1
            for token in _tokens(path)
            if token.type == tokenize.COMMENT and not _FOR_TOOLS.match(token.string)
        ),
    )


def cython_lines(path: Path) -> Lines:
    """Count the lines of a Cython file, which no parser of Python reads."""
    text = path.read_text()
    docstrings = _CYTHON_DOCSTRING.findall(text)
    comments = _CYTHON_COMMENT.findall(_CYTHON_DOCSTRING.sub("", text))
    return Lines(
        len(text.splitlines()),
        cython_code_lines(path),
        sum(len(docstring.splitlines()) for docstring in docstrings),
        sum(1 for comment in comments if not _FOR_TOOLS.match(comment)),
    )


# --- the shape ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """What is counted; paths are relative to the checkout.

    Attributes:
        source_files: of Python and Cython.
        docstrings_per_code: docstring lines / lines of code.
        comments_per_code: comment lines / lines of code.
        classes_used_twice: the files that define a class, by its name.
        names_used_twice: the modules of the same name, without `__init__` and `__main__`.
        loose_modules: modules directly in the package.
        folders: folders directly in the package.
        long_modules: lines of modules with more than `LONG_MODULE` lines.
        sessions: the names of nox's sessions, in any file.
        docs_words: words of README, CHANGELOG and docs, without fragments.
        private_accesses: in tests; `private_worst` has the files with most of them.
        patched: calls of `monkeypatch.setattr` in tests; `patched_worst` likewise.
        long_subjects: commit subjects since a revision; None without a revision.
    """

    source_files: int
    lines: int
    code_lines: int
    docstring_lines: int
    comment_lines: int
    docstrings_per_code: float
    comments_per_code: float
    classes_used_twice: Mapping[str, list[str]]
    names_used_twice: Mapping[str, list[str]]
    loose_modules: list[str]
    folders: list[str]
    long_modules: Mapping[str, int]
    sessions: list[str]
    noxfile_lines: int
    docs_words: int
    fragments: int
    fragment_words: int
    test_files: int
    test_lines: int
    private_accesses: int
    private_worst: Mapping[str, int]
    patched: int
    patched_worst: Mapping[str, int]
    long_subjects: list[str] | None = None


def shape(root: Path, since: str | None = None) -> Shape:
    """Count all of it in a checkout.

    Raises:
        FileNotFoundError: the folder has no package.
        subprocess.CalledProcessError: git doesn't know the revision.
    """
    package, tests = root / PACKAGE, root / "tests"
    if not package.is_dir():
        raise FileNotFoundError(f"{root}: no folder {PACKAGE}; expected a checkout")

    def relative(path: Path) -> str:
        return path.relative_to(root).as_posix()

    modules = sources(package)
    cython = [path for pattern in CYTHON for path in sources(package, pattern)]
    counted = {path: python_lines(path) for path in modules}
    counted |= {path: cython_lines(path) for path in cython}
    lines = sum(counted.values(), Lines())
    classes: dict[str, list[str]] = defaultdict(list)
    names: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        for name in _classes(path):
            classes[name].append(relative(path))
        if path.stem not in ("__init__", "__main__"):
            names[path.name].append(relative(path))
    fragments = [path for path in _markdown(root / "docs/changelog.d") if path.name != "README.md"]
    pages = [root / "README.md", root / "CHANGELOG.md", *_markdown(root / "docs")]
    test_modules = sources(tests)
    private = {relative(path): _private_accesses(path) for path in test_modules}
    patched = {relative(path): _patched(path) for path in test_modules}
    noxfile = root / "noxfile.py"
    return Shape(
        source_files=len(counted),
        lines=lines.total,
        code_lines=lines.code,
        docstring_lines=lines.docstrings,
        comment_lines=lines.comments,
        docstrings_per_code=round(lines.docstrings / max(lines.code, 1), 4),
        comments_per_code=round(lines.comments / max(lines.code, 1), 4),
        classes_used_twice=_several(classes),
        names_used_twice=_several(names),
        loose_modules=sorted(
            path.name for path in package.glob("*.py") if path.stem not in ("__init__", "__main__")
        ),
        folders=sorted({path.relative_to(package).parts[0] for path in counted} - _names(package)),
        long_modules=_most(
            {
                relative(path): found.total
                for path, found in counted.items()
                if found.total > LONG_MODULE
            }
        ),
        sessions=sorted(_sessions(root)),
        noxfile_lines=len(noxfile.read_text().splitlines()) if noxfile.exists() else 0,
        docs_words=_words(path for path in pages if path not in fragments),
        fragments=len(fragments),
        fragment_words=_words(fragments),
        test_files=len(test_modules),
        test_lines=sum(len(path.read_text().splitlines()) for path in test_modules),
        private_accesses=sum(private.values()),
        private_worst=_most(private, WORST),
        patched=sum(patched.values()),
        patched_worst=_most(patched, WORST),
        long_subjects=None if since is None else _long_subjects(root, since),
    )


def _names(package: Path) -> set[str]:
    """Return the names of the files directly in the package."""
    return {path.name for path in package.iterdir() if path.is_file()}


def _classes(path: Path) -> Iterator[str]:
    """Yield the names of a module's classes, each once: `if` and `else` may both define one."""
    found = {node.name for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef)}
    yield from sorted(found)


def _several(places: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the names that several places have, those with most places first."""
    found = [(name, paths) for name, paths in places.items() if len(paths) > 1]
    return dict(sorted(found, key=lambda item: (-len(item[1]), item[0])))


def _most(numbers: Mapping[str, int], count: int | None = None) -> dict[str, int]:
    """Return the items with the highest numbers, without zeros."""
    ordered = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return {name: number for name, number in ordered[:count] if number}


def _markdown(folder: Path) -> list[Path]:
    return sources(folder, "*.md") if folder.is_dir() else []


def _words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().split()) for path in paths if path.exists())


def _sessions(root: Path) -> Iterator[str]:
    """Yield the names of the functions that are nox's sessions, wherever they are."""
    for path in [*root.glob("*.py"), *sources(root / "tests")]:
        if "nox.session" not in path.read_text():
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, Function):
                for decorator in node.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if ast.unparse(called) == "nox.session":
                        yield _given_name(decorator) or node.name


def _given_name(decorator: ast.expr) -> str | None:
    """Return the session's name if the decorator gives one."""
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _private_accesses(path: Path) -> int:
    return sum(
        1
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute)
        and re.match(r"_(?!_)", node.attr)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    )


def _patched(path: Path) -> int:
    return sum(
        1
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) == "monkeypatch.setattr"
    )


def _long_subjects(root: Path, since: str) -> list[str]:
    command = ["git", "-C", str(root), "log", "--format=%s", f"{since}..HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if len(line) > LONG_SUBJECT]


# --- output ---------------------------------------------------------------------------------------


def text(found: Shape) -> str:
    """Return the shape as aligned lines."""
    lines = []
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        name = field.name.replace("_", " ")
        if isinstance(value, Mapping | list):
            lines.append(f"{name:24}{len(value):>8,}")
            lines += [f"    {line}" for line in _items(value)]
        elif isinstance(value, float):
            lines.append(f"{name:24}{value:>8.3f}")
        elif value is not None:
            lines.append(f"{name:24}{value:>8,}")
    return "\n".join(lines)


def _items(value: Mapping[str, object] | list[str]) -> Iterator[str]:
    if isinstance(value, list):
        yield from value
        return
    for name, places in value.items():
        if isinstance(places, list):
            yield f"{name}: {len(places)}: {', '.join(places)}"
        else:
            yield f"{places:>6,} {name}"


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.shape", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--since", metavar="REV", help="list long commit subjects after REV")
    options = parser.parse_args(arguments)
    try:
        found = shape(options.folder.resolve(), options.since)
    except FileNotFoundError as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as error:
        parser.error(f"--since {options.since}: {error.stderr.strip()}")
    print(json.dumps(dataclasses.asdict(found), indent=1) if options.json else text(found))


if __name__ == "__main__":
    main()
