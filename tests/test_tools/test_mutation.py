"""Which tests a mutant meets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from tests.tools.mutation.selection import (
    Reach,
    changed_lines,
    is_in_place,
    is_of_interest,
    shortest_within,
    statement_at,
)

SOURCE = """\
LIMIT = 3

def f(
    one: int = 1,
) -> int:
    if (one
            > LIMIT):
        return max(
            one,
            2,
        )
    return 0
"""


class FixedContexts:
    def contexts_by_lineno(self, filename: str) -> dict[int, list[str]]:
        return {1: [""], 3: [""], 6: ["t.py::a|run", "t.py::b|setup"], 9: ["t.py::a|run"]}


def test_statement_of_a_line_is_found_with_all_its_lines() -> None:
    assert statement_at(SOURCE, 1) == (1, 1, False)
    assert statement_at(SOURCE, 4)[2] is False  # a default is computed at the import
    assert statement_at(SOURCE, 7) == (6, 7, True)
    assert statement_at(SOURCE, 10) == (8, 11, True)
    assert statement_at(SOURCE, 12) == (12, 12, True)


def test_mutant_meets_the_tests_that_execute_its_line(tmp_path: Path) -> None:
    Path(tmp_path, "f.py").write_text(SOURCE)
    reach = Reach(FixedContexts(), tmp_path, {"t.py::a": 0.1, "t.py::b": 0.2})
    assert reach.tests("f.py", 10) == {"t.py::a"}
    assert reach.tests("f.py", 7) == {"t.py::a", "t.py::b"}
    assert reach.tests("f.py", 12) == set()
    assert reach.tests("f.py", 1) == {"t.py::a", "t.py::b"}  # whichever imports the module


def test_short_tests_are_chosen_up_to_the_limit() -> None:
    seconds = {"a": 3.0, "b": 0.5, "c": 1.0, "d": 0.2}
    assert shortest_within("abc", seconds, 2.0) == ["b", "c"]
    assert shortest_within("a", seconds, 2.0) == ["a"]
    assert shortest_within("", seconds, 2.0) == []


def test_operators_that_change_nothing_are_left_out() -> None:
    assert not is_of_interest("core/ReplaceBinaryOperator_BitOr_Add")
    assert not is_of_interest("core/ReplaceComparisonOperator_Is_Eq")
    assert is_of_interest("core/ReplaceComparisonOperator_Is_IsNot")


def test_signatures_are_left_out() -> None:
    """Without its `*` or `/` the code isn't Python any more."""
    assert not is_in_place("core/ReplaceBinaryOperator_Mul_Add", "parameters")
    assert not is_in_place("core/ReplaceBinaryOperator_Pow_Add", "dictorsetmaker")
    assert is_in_place("core/ReplaceBinaryOperator_Mul_Add", "term")
    assert is_in_place("core/ReplaceTrueWithFalse", "parameters")
    assert is_of_interest("core/ReplaceComparisonOperator_Eq_IsNot")


def test_changed_lines_of_a_diff_are_joined() -> None:
    diff = "--- mutation diff ---\n--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-    x = 1\n+    x = 2\n y"
    assert changed_lines(diff) == ("x = 1", "x = 2")


def test_test_that_fails_without_a_mutant_judges_none(tmp_path: Path) -> None:
    Path(tmp_path, "test_it.py").write_text(
        "def test_good(): pass\n\ndef test_bad(): raise ValueError\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tools.mutation.durations"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}"], cwd=tmp_path, env=environment, capture_output=True
    )
    assert done.returncode == 1
    assert [*json.loads(Path(tmp_path, "durations.json").read_text())] == ["test_it.py::test_good"]
