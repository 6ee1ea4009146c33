"""What `nox -s release`, `wheelhouse` and `audit` do beside running other programs.

    python -m tests.tools.release version 0.1.0  # write version and changelog
    python -m tests.tools.release ref v0.1.0  # may this tag, or release/<version>, be published?
    python -m tests.tools.release addresses  # print those that [project.urls] lacks
    python -m tests.tools.release sums dist  # write SHA256SUMS; print its digest
    python -m tests.tools.release pin FOLDER  # write requirements.txt with the wheels' hashes
    python -m tests.tools.release licences  # check those of what is installed
    python -m tests.tools.release audited FILE  # has its report advisories of all?

Only the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.support.paths import ROOT

VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(rc[1-9]\d*)?")
"""The versions that a release may have: MAJOR.MINOR.PATCH, or a candidate of one."""

SECTION = re.compile(r"^## \[([^\]]+)\] - ([^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
"""A release in CHANGELOG.md: version, date, text."""

PART = re.compile(r"^### ([^\n]+)\n+(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
"""A part of a release: its title and its bullets."""

NO_FRAGMENTS = "No significant changes."
"""The text of a section that `towncrier build` writes if there are no fragments."""

UNRELEASED = "There is no release yet: `pip install .` in a clone installs it."
"""A sentence of README.md and of the page about installing, until the first release."""

RELEASED = "`pip install aiokafka08` installs it, on common systems without a compiler."

IN_A_CLONE = re.compile(
    r"(pip (?:install|wheel)) (?:-e )?([^\n`]*?'?)\.(\[[\w,]+\]'|(?= ))(.*?)(?: +#)? in a clone\b"
)
"""A command of a page that installs from a clone, until the first release, and the words for it."""

ADDRESSES = ("Repository", "Documentation", "Changelog", "Issues")
"""What `[project.urls]` must have when a version is published."""

ALLOWED = re.compile(
    r"Apache|BSD|MIT|ISC|PSF|Python Software Foundation|MPL|Mozilla Public|Unlicense|Zlib|0BSD|CC0",
)
"""Licences that let a program of any licence use the package."""

PERMISSIVE = frozenset({"aiokafka08", "pip", "setuptools", "wheel"})
"""Not looked at: this package, and what installs it."""


def merge_sections(text: str, version: str, date: str) -> str:
    """Return the changelog with one section of a version, dated, in place of all that it has.

    Raises:
        ValueError: there is none.
    """
    found = [one for one in SECTION.finditer(text) if one[1] == version]
    if not found:
        raise ValueError(f"CHANGELOG.md has no section {version}")
    head = ""
    parts: dict[str, list[str]] = {}
    for section in found:
        head += section[3].partition("### ")[0].replace(NO_FRAGMENTS, "").strip()
        for part in PART.finditer(section[3]):
            parts.setdefault(part[1], []).append(part[2].strip("\n"))
    bodies = [f"### {title}\n\n" + "\n".join(texts) for title, texts in parts.items()]
    merged = "\n\n".join([f"## [{version}] - {date}", *([head] if head else []), *bodies])
    start = found[0].start()
    rest = text[start:]
    for section in found:
        rest = rest.replace(section[0], "", 1)
    return f"{text[:start]}{merged}\n\n{rest}".rstrip() + "\n"


def set_version(version: str) -> None:
    """Write a version into the package, its date into the changelog, and that it can be had.

    `towncrier build` has written the section before, so one of the same version may be there twice.
    """
    if not VERSION.fullmatch(version):
        raise SystemExit(f"version {version!r}: expected MAJOR.MINOR.PATCH, or rcN after it")
    path = ROOT / "aiokafka08" / "__init__.py"
    text, count = re.subn(
        r'^__version__ = ".*"$', f'__version__ = "{version}"', path.read_text(), flags=re.MULTILINE
    )
    assert count == 1, path
    path.write_text(text)
    changelog = ROOT / "CHANGELOG.md"
    today = datetime.now(UTC).date().isoformat()
    changelog.write_text(merge_sections(changelog.read_text(), version, today))
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text().replace(UNRELEASED, RELEASED)
        page.write_text(for_the_index(text))


def for_the_index(text: str, package: str = "aiokafka08") -> str:
    """Return the text with commands that install the package from an index."""
    return IN_A_CLONE.sub(rf"\1 \2{package}\3\4", text)


def missing_addresses() -> list[str]:
    """Return what `[project.urls]` lacks: PyPI shows the addresses, README's links need one."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return [one for one in ADDRESSES if one not in urls]


def check_ref(ref: str) -> None:
    """Check that a tag `v<version>`, or a branch `release/<version>`, may be published.

    Raises:
        SystemExit: another version, no dated section of it in the changelog, or no addresses.
    """
    text = (ROOT / "aiokafka08" / "__init__.py").read_text()
    [version] = re.findall(r'^__version__ = "(.*)"$', text, flags=re.MULTILINE)
    if ref not in (f"v{version}", f"release/{version}"):
        raise SystemExit(f"{ref}: the package has version {version}; expected v{version}")
    sections = SECTION.finditer((ROOT / "CHANGELOG.md").read_text())
    if not any(one[1] == version and re.match(r"\d{4}-\d\d-\d\d$", one[2]) for one in sections):
        raise SystemExit(f"{ref}: CHANGELOG.md has no dated section {version}")
    if missing := missing_addresses():
        raise SystemExit(f"{ref}: [project.urls] in pyproject.toml lacks {', '.join(missing)}")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_sums(folder: Path) -> str:
    """Write `SHA256SUMS` for all files of a folder, as sha256sum does; return its own digest."""
    sums = folder / "SHA256SUMS"
    files = sorted(one for one in folder.iterdir() if one.is_file() and one != sums)
    sums.write_text("".join(f"{digest(one)}  {one.name}\n" for one in files))
    return digest(sums)


def write_pins(folder: Path) -> None:
    """Write `requirements.txt`: each wheel and sdist of a folder, with its version and its hash."""
    pins: dict[str, list[str]] = {}
    for path in sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")]):
        name, version = path.name.removesuffix(".tar.gz").split("-")[:2]
        pins.setdefault(f"{name}=={version}", []).append(digest(path))
    lines = [
        f"{pin} " + " ".join(f"--hash=sha256:{one}" for one in digests)
        for pin, digests in sorted(pins.items())
    ]
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")


def licence_of(metadata: Mapping[str, str], classifiers: list[str]) -> str:
    """Return what a distribution says of its licence: the expression, classifiers, or the text."""
    named = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    text = metadata.get("License-Expression") or "; ".join(named) or metadata.get("License") or ""
    return text.strip().partition("\n")[0]


def check_licences() -> list[str]:
    """Return the installed distributions whose licence isn't known to be allowed."""
    wrong = []
    for one in importlib.metadata.distributions():
        given = one.metadata
        fields = {name: str(given[name]) for name in set(given)}
        licence = licence_of(fields, one.metadata.get_all("Classifier") or [])
        name = fields["Name"]
        if name.lower() not in PERMISSIVE and not ALLOWED.search(licence):
            wrong.append(f"{name} {one.version}: licence {licence or 'unknown'!r}")
    return sorted(wrong)


def unaudited(report: Path) -> list[str]:
    """Return the dependencies in a JSON report of pip-audit that it couldn't look up.

    pip-audit finds no vulnerability then, and succeeds: mirrors of PyPI have no advisories.
    """
    found = json.loads(report.read_text())["dependencies"]
    return sorted(
        one["name"] for one in found if "skip_reason" in one and one["name"] not in PERMISSIVE
    )


def main(command: str, *arguments: str) -> int:
    """Run a command and return the exit code."""
    if command == "licences":
        wrong = check_licences()
        print("\n".join(wrong) or "licences are allowed", file=sys.stderr)
        return bool(wrong)
    if command == "audited":
        skipped = unaudited(Path(arguments[0]))
        if skipped:
            print(
                f"no advisories of {len(skipped)} dependencies: {', '.join(skipped)}. "
                "Audit where PyPI itself can be reached",
                file=sys.stderr,
            )
        return bool(skipped)
    commands: dict[str, Callable[..., object]] = {
        "addresses": lambda: print(", ".join(missing_addresses())),
        "version": set_version,
        "ref": check_ref,
        "sums": lambda folder: print(write_sums(Path(folder))),
        "pin": lambda folder: write_pins(Path(folder)),
    }
    commands[command](*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
