"""The archive of Spark's classes is mapped where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import class_archive


def test_archive_is_mapped_only_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "archive_path", lambda: path)
    assert class_archive.mapping_options() == ()
    path.touch()
    assert class_archive.mapping_options()[0] == f"-XX:SharedArchiveFile={path}"


def test_without_java_nothing_is_mapped_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert class_archive.archive_path() is None
    assert class_archive.mapping_options() == ()
    class_archive.main()
