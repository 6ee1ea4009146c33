"""What a release is made of: version, changelog, sums, pins, licences, and the workflows' names."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.tools import release
from tests.tools.distribution import copy_project, copy_tests

CHANGELOG = """# Changelog

<!-- marker -->

## [0.2.0] - 2026-01-02

### Added

- one

### Fixed

- two

## [0.2.0] - not released yet

In short.

### Added

- three

## [0.1.0] - 2025-01-01

### Added

- four
"""

MERGED = """# Changelog

<!-- marker -->

## [0.2.0] - 2026-03-04

In short.

### Added

- one
- three

### Fixed

- two

## [0.1.0] - 2025-01-01

### Added

- four
"""


def test_sections_of_a_version_become_one() -> None:
    merged = release.merge_sections(CHANGELOG, "0.2.0", "2026-03-04")
    assert merged == MERGED
    assert release.merge_sections(merged, "0.2.0", "2026-03-04") == MERGED
    with pytest.raises(ValueError, match=r"no section 0\.3\.0"):
        release.merge_sections(CHANGELOG, "0.3.0", "2026-03-04")


def test_section_without_fragments_adds_nothing() -> None:
    empty = "## [0.2.0] - 2026-01-02\n\nNo significant changes.\n\n\n"
    written = "## [0.2.0] - not released yet\n\nIn short.\n\n### Two words\n\n- one\n"
    merged = release.merge_sections(empty + written, "0.2.0", "2026-03-04")
    assert merged == written.replace("not released yet", "2026-03-04")


def test_version_and_date_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "aiokafka08").mkdir()
    module = tmp_path / "aiokafka08" / "__init__.py"
    module.write_text('"""Doc."""\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    pages = [tmp_path / "README.md", tmp_path / "docs/start/install.md"]
    for page in (*pages, tmp_path / "docs/spark.md", tmp_path / "docs/guides/services.md"):
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text((ROOT / page.relative_to(tmp_path)).read_text())
    release.set_version("0.2.0")
    assert "\n    pip install 'aiokafka08[spark]'\n" in (tmp_path / "docs/spark.md").read_text()
    services = (tmp_path / "docs/guides/services.md").read_text()
    assert (
        "\n    pip install 'aiokafka08[prometheus,zookeeper]' fastapi uvicorn gunicorn\n"
        in services
    )
    for page in pages:
        assert release.RELEASED in page.read_text()
        assert "no release yet" not in page.read_text()
    assert module.read_text() == '"""Doc."""\n__version__ = "0.2.0"\n'
    text = (tmp_path / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[0.2.0\] - 20\d\d-\d\d-\d\d$", text, re.MULTILINE)
    for wrong in ("1", "v0.2.0", "0.2", "0.2.0.dev1", "00.2.0"):
        with pytest.raises(SystemExit, match=r"expected MAJOR\.MINOR\.PATCH"):
            release.set_version(wrong)


@pytest.mark.parametrize(
    ("written", "published"),
    [
        (
            "It needs `pip install '.[a,b]'` in a clone, too.",
            "It needs `pip install 'P[a,b]'`, too.",
        ),
        ("pip install --no-deps .    # in a clone", "pip install --no-deps P"),
        ("pip install '.[a]' b    # in a clone", "pip install 'P[a]' b"),
        ("pip install '.[a]'    # with two extras", "pip install '.[a]'    # with two extras"),
    ],
)
def test_command_for_a_clone_becomes_one_for_the_index(written: str, published: str) -> None:
    assert release.for_the_index(written, "P") == published


WITH_COMMANDS = {".md", ".py", ".yml", ".sh"}


def printed_docstrings() -> list[tuple[str, str]]:
    """Return the names and docstrings of the modules that the site prints."""
    names = re.findall(r"automodule:: (\S+)", (ROOT / "docs/reference/api.md").read_text())
    found = []
    for name in names:
        path = ROOT / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found.append((name, ast.get_docstring(ast.parse(path.read_text())) or ""))
    assert "aiokafka08.prometheus" in dict(found)
    return found


def test_no_page_installs_what_no_index_has() -> None:
    """Before the first release nobody but the package's own errors names the index's package."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.*")]
    if release.UNRELEASED not in pages[0].read_text():
        return
    texts = [(page.name, page.read_text()) for page in pages if page.suffix in WITH_COMMANDS]
    texts += printed_docstrings()
    local = re.compile(r"--find-links|test\.pypi\.org|\.whl|as errors say it")
    assert not [
        (name, line)
        for name, text in texts
        for line in text.splitlines()
        if re.search(r"pip (install|download|wheel).*aiokafka08", line) and not local.search(line)
    ]


def test_published_ref_has_version_and_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "aiokafka08").mkdir()
    module = tmp_path / "aiokafka08" / "__init__.py"
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    module.write_text('__version__ = "0.1.0"\n')
    project = tmp_path / "pyproject.toml"
    project.write_text('[project.urls]\nRepository = "r"\nDocumentation = "d"\nChangelog = "c"\n')
    with pytest.raises(SystemExit, match=r"v0\.1\.0: \[project\.urls\].* lacks Issues$"):
        release.check_ref("v0.1.0")
    project.write_text(f'{project.read_text()}Issues = "i"\n')
    for right in ("v0.1.0", "release/0.1.0"):
        release.check_ref(right)
    for wrong in ("0.1.0", "v0.1.1", "v0.1.0rc1", "main", "refs/tags/v0.1.0"):
        with pytest.raises(SystemExit, match=r"has version 0\.1\.0; expected v0\.1\.0"):
            release.check_ref(wrong)
    module.write_text('__version__ = "0.3.0"\n')
    with pytest.raises(SystemExit, match=r"no dated section 0\.3\.0"):
        release.check_ref("v0.3.0")


def test_sums_and_pins_name_each_file(tmp_path: Path) -> None:
    for name in ("a_b-1.0-py3-none-any.whl", "a_b-1.0.tar.gz", "c-2-cp311-cp311-linux.whl"):
        (tmp_path / name).write_text(name)
    sums = release.write_sums(tmp_path)
    assert sums == release.write_sums(tmp_path), "the file of sums isn't in it"
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert [line.partition("  ")[2] for line in lines] == sorted(
        ["a_b-1.0-py3-none-any.whl", "a_b-1.0.tar.gz", "c-2-cp311-cp311-linux.whl"]
    )
    release.write_pins(tmp_path)
    pins = (tmp_path / "requirements.txt").read_text().splitlines()
    assert [pin.partition(" ")[0] for pin in pins] == ["a_b==1.0", "c==2"]
    assert [pin.count("--hash=sha256:") for pin in pins] == [2, 1]


@pytest.mark.parametrize(
    ("fields", "classifiers", "found"),
    [
        ({"License-Expression": "MIT", "License": "other"}, [], "MIT"),
        ({}, ["License :: OSI Approved :: BSD License", "X :: Y"], "BSD License"),
        ({"License": "Apache 2.0\n\nlong text"}, [], "Apache 2.0"),
        ({}, [], ""),
    ],
)
def test_licence_is_found_in_each_field(
    fields: dict[str, str], classifiers: list[str], found: str
) -> None:
    assert release.licence_of(fields, classifiers) == found
    assert bool(release.ALLOWED.search(found)) is bool(found)
    assert not release.ALLOWED.search("GNU General Public License v3 (GPLv3)")


def test_dependency_without_advisories_fails_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of pip-audit 2.9 on a mirror of PyPI: it finds nothing, and succeeds."""
    looked_up = {"name": "click", "version": "8.2", "vulns": []}
    own = {"name": "aiokafka08", "skip_reason": "Dependency not found on PyPI"}
    report = tmp_path / "audit.json"
    report.write_text(json.dumps({"dependencies": [looked_up, own], "fixes": []}))
    assert release.main("audited", str(report)) == 0
    skipped = {"name": "kazoo", "skip_reason": "Dependency not found on PyPI"}
    report.write_text(json.dumps({"dependencies": [looked_up, own, skipped], "fixes": []}))
    assert release.main("audited", str(report)) == 1
    assert "no advisories of 1 dependencies: kazoo." in capsys.readouterr().err


def test_pure_copy_has_no_extension(tmp_path: Path) -> None:
    copy_project(tmp_path / "pure", pure=True)
    copy_project(tmp_path / "full")
    settings = [
        tomllib.loads((tmp_path / name / "pyproject.toml").read_text()) for name in ("pure", "full")
    ]
    assert len(settings[1]["tool"]["setuptools"].pop("ext-modules")) == 2
    assert settings[0] == settings[1]


def test_copied_tests_have_no_package_beside_them(tmp_path: Path) -> None:
    copy_tests(tmp_path / "tests-alone")
    names = {path.name for path in (tmp_path / "tests-alone").iterdir()}
    assert {"tests", "docs", "pyproject.toml"} <= names
    assert "aiokafka08" not in names


def test_workflows_name_sessions_that_exist() -> None:
    files = [ROOT / "noxfile.py", *(ROOT / "tests/tools").glob("sessions*.py")]
    text = "".join(path.read_text() for path in files)
    sessions = set(re.findall(r"^@nox\.session.*\ndef (\w+)", text, re.M))
    named: set[str] = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for words in re.findall(r"run: nox -s ([\w ]+)", path.read_text()):
            named |= set(words.split())
    assert named
    assert named <= sessions


def test_actions_are_pinned_by_hash() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for uses in re.findall(r"uses: (\S+)(.*)", path.read_text()):
            pinned = re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", uses[0]) and " # v" in uses[1]
            assert uses[0].startswith("./") or pinned, (path.name, uses)
