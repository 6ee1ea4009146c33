"""Which mutants are worth a run, and which tests meet one. Pure but for reading source files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

_WITHOUT_INTEREST = re.compile(
    # `|` is nearly always in an annotation, which nothing evaluates.
    "core/ReplaceBinaryOperator_BitOr_"
    # The same for what is compared: None, True, members of enumerations, small integers.
    "|core/ReplaceComparisonOperator_(Is_Eq|IsNot_NotEq|Eq_Is|NotEq_IsNot)$"
)

_BINARY = {"expr", "xor_expr", "and_expr", "shift_expr", "arith_expr", "term", "power"}


def is_of_interest(operator: str) -> bool:
    """Return False for an operator of cosmic-ray whose mutants mean the same as the code."""
    return _WITHOUT_INTEREST.match(operator) is None


def is_in_place(operator: str, parent: str) -> bool:
    """Return False for the `*` and `/` of a signature or a call, which aren't binary operators.

    Args:
        operator: cosmic-ray's.
        parent: the type of the node that has the place, as parso names it.
    """
    return not operator.startswith("core/ReplaceBinaryOperator_") or parent in _BINARY


class Contexts(Protocol):
    """What is read of `coverage.CoverageData`."""

    def contexts_by_lineno(self, filename: str) -> dict[int, list[str]]:
        """Return the contexts that executed each line."""


class Reach:
    """Which tests execute a line.

    Args:
        contexts: of a run with `--cov-context=test`.
        folder: where the run was.
        seconds: each test's duration, by its node id.
    """

    def __init__(self, contexts: Contexts, folder: Path, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds
        self._contexts = contexts
        self._folder = folder

    def tests(self, path: str, line: int) -> set[str]:
        """Return the tests that execute a line's statement; for code of a module, all of its file.

        Code outside functions runs when the module is imported, whichever test does that.
        """
        file = self._folder / path
        by_line = self._contexts.contexts_by_lineno(str(file))
        first, last, is_in_function = statement_at(file.read_text(), line)
        lines = range(first, last + 1) if is_in_function else by_line
        found = {one.rpartition("|")[0] for each in lines for one in by_line.get(each, ())}
        return found & self.seconds.keys()


def statement_at(source: str, line: int) -> tuple[int, int, bool]:
    """Return the first and last line of the statement at a line, and whether a function has it.

    Of a compound statement these are the lines of its head.
    """
    first, last, is_in_function = line, line, False
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or node.end_lineno is None:
            continue
        body = getattr(node, "body", None)
        end = body[0].lineno - 1 if body else node.end_lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_in_function |= end < line <= node.end_lineno
        elif node.lineno <= line <= max(end, node.lineno):
            first, last = node.lineno, max(end, node.lineno)
    return first, last, is_in_function


def shortest_within(tests: Iterable[str], seconds: Mapping[str, float], limit: float) -> list[str]:
    """Return the shortest tests, up to this many seconds; at least one, if there is one."""
    chosen: list[str] = []
    for one in sorted(tests, key=lambda test: (seconds[test], test)):
        limit -= seconds[one]
        if chosen and limit < 0:
            break
        chosen.append(one)
    return chosen


def changed_lines(diff: str) -> tuple[str, str]:
    """Return what a diff removes and what it adds, each on one line."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    before, after = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return before, after
