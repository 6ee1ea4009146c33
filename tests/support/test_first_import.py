"""Each process of xdist imports a part of the test files before it collects."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.first_import import import_share, modules_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four test files in a package, whose name no other one has; the third one fails."""
    folder = tmp_path / "first_import_sample"
    (folder / "deeper").mkdir(parents=True)
    for name in ("__init__", "helper", "test_a", "test_b", "deeper/__init__", "deeper/test_d"):
        (folder / f"{name}.py").write_text("")
    (folder / "test_c.py").write_text("raise ValueError")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def imported() -> set[str]:
    return {
        name.rpartition(".")[2]
        for name in sys.modules
        if name.startswith("first_import_sample.") and "test_" in name
    }


def test_arguments_of_pytest_name_test_files(project: Path) -> None:
    package = "first_import_sample"
    every = [f"{package}.{name}" for name in ("deeper.test_d", "test_a", "test_b", "test_c")]
    assert modules_of([str(project)], project) == every
    assert modules_of([package, f"{package}/deeper"], project) == every
    assert modules_of([f"{package}/test_b.py::test_it[x]"], project) == [f"{package}.test_b"]
    assert modules_of([str(project.parent / "other.py")], project) == []


def test_processes_import_all_but_the_file_that_fails(project: Path) -> None:
    modules = modules_of([str(project)], project)
    import_share(modules, 0, 2)
    assert imported() == {"test_d", "test_b"}
    import_share(modules, 1, 2)
    assert imported() == {"test_d", "test_b", "test_a"}
