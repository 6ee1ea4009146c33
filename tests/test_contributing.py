"""docs/contributing.md and the tools that it names: hooks, lint, sessions, files."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SESSIONS = [ROOT / "noxfile.py", *(ROOT / "tests/tools").glob("sessions*.py")]


def hooks() -> dict[str, list[str]]:
    """Return the requirements of the pre-commit hooks, by command."""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    pattern = r"^ +entry: (.*)$\n.*$\n +additional_dependencies: (.*)$"
    found = {command: ast.literal_eval(names) for command, names in re.findall(pattern, text, re.M)}
    assert len(found) == text.count("language: python")
    return found


def lint_commands() -> set[str]:
    """Return the commands of `run_lint` in noxfile.py."""
    [function] = [
        node
        for node in ast.walk(ast.parse((ROOT / "noxfile.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "run_lint"
    ]
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {" ".join(ast.literal_eval(argument) for argument in call.args) for call in calls}


def test_pre_commit_hooks_run_the_commands_of_lint() -> None:
    assert hooks().keys() == lint_commands()


def test_pre_commit_hooks_have_the_requirements_of_lint() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    required = {one for one in groups["lint"] if isinstance(one, str)} | {*groups["changelog"]}
    assert {one for names in hooks().values() for one in names} == required


def test_pre_commit_refuses_a_long_commit_subject() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    [pattern] = re.findall(r"^ +entry: '(.*)'\n +language: pygrep$", text, re.M)
    refused = re.compile(pattern, re.MULTILINE | re.DOTALL)  # as with pygrep's --multiline
    assert not refused.search(f"{'x' * 72}\n\n{'y' * 100}\n")
    assert refused.search(f"{'x' * 73}\n")


def test_files_that_sessions_name_exist() -> None:
    text = "".join(path.read_text() for path in SESSIONS)
    named = set(re.findall(r'"((?:tests|examples)/[\w./]*)"', text))
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


PAGES = [
    "README.md",
    "CHANGELOG.md",
    *(
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.parent.name != "changelog.d"
    ),
]


def anchors(page: Path) -> set[str]:
    """Return the names that code hosts give to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`((?:\w+/)+(?:[\w.]+\.(?:py|pyx|md|json))?)`", text))
    linked = {link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link}
    bases = (ROOT, ROOT / "aiokafka08")
    assert not [name for name in named if not any((base / name).exists() for base in bases)]
    folder = (ROOT / page).parent
    assert not [link for link in linked if not folder.joinpath(link).exists()]
    for target, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", text):
        found = folder / target if target else ROOT / page
        assert anchor in anchors(found), f"{target}#{anchor}"
