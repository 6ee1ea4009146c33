"""What `nox -s build` does around the build: a clean copy of the project, and checks of the result.

    python -m tests.tools.distribution copy FOLDER    # with a README whose links work on PyPI
    python -m tests.tools.distribution pure FOLDER    # the same without the compiled twins
    python -m tests.tools.distribution tests FOLDER   # all but the package: tests an installed one
    python -m tests.tools.distribution check dist     # the sdist and the wheel in a folder

Only the standard library.
"""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from tests.support.paths import ROOT

COPIED = (
    "CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "aiokafka08", "docs", "examples",
    "pyproject.toml", "tests",
)  # fmt: skip
BUILT = ("__pycache__", "*.so", "*.egg-info", "_*_c.c")

LARGEST_EXTENSION = 600_000
"""Bytes. With debug information they have more than a million."""

LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A link of Markdown to a file of the project."""


IMAGE = re.compile(r"!\[([^\]]+)\]\((?![a-z]+:)([^)\s]+)\)")
"""A picture of Markdown in a file of the project."""


EXTENSIONS = re.compile(
    r"^\[\[tool\.setuptools\.ext-modules\]\].*?(?=^\[)", re.MULTILINE | re.DOTALL
)
"""The tables of pyproject.toml that declare the compiled twins."""


def copy_project(folder: Path, *, pure: bool = False) -> None:
    """Copy what the build starts from into a new folder, with absolute links in README.md.

    Args:
        folder: must not exist.
        pure: leave out the compiled twins: its wheel runs everywhere (default False).
    """
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns(*BUILT))
        else:
            shutil.copy(source, folder / name)
    if pure:
        settings = folder / "pyproject.toml"
        settings.write_text(EXTENSIONS.sub("", settings.read_text()))
    readme = folder / "README.md"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    readme.write_text(absolute_links(readme.read_text(), project["urls"].get("Repository")))


def copy_tests(folder: Path) -> None:
    """Copy the tests and what they read into a new folder, without the package.

    A wheel that is tested there can't be hidden by the package's source.
    """
    folder.mkdir(parents=True)
    for name in (*COPIED, "noxfile.py", ".github"):
        source = ROOT / name
        if source.is_file():
            shutil.copy(source, folder / name)
        elif name != "aiokafka08":
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns(*BUILT))


def absolute_links(text: str, repository: str | None) -> str:
    """Return Markdown without links to files of the project: PyPI doesn't have them.

    They become links to the repository. Without its address only the files' names stay, and a note
    at the end says where the files are. Of a picture its description stays, too.
    """
    if repository is not None:
        text = IMAGE.sub(rf"![\1]({repository.rstrip('/')}/raw/HEAD/\2)", text)
        return LINK.sub(rf"[\1]({repository.rstrip('/')}/blob/HEAD/\2)", text)
    named = LINK.sub(r"`\2`", IMAGE.sub(r"`\2`: \1.", text))
    if named == text:
        return text
    return f"{named.rstrip()}\n\nThe files named here are in the source distribution.\n"


def check(folder: Path) -> list[str]:
    """Return what is wrong with the sdist and the wheel in a folder."""
    [sdist] = folder.glob("*.tar.gz")
    wheels = list(folder.glob("*.whl"))
    return [*check_sdist(sdist), *(text for wheel in wheels for text in check_wheel(wheel))]


def check_sdist(path: Path) -> list[str]:
    """Return what is missing or stray in an sdist."""
    with tarfile.open(path) as archive:
        members = [one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()]
    generated = re.compile(r"PKG-INFO|setup\.cfg|[\w.]+\.egg-info/.*")
    found = {name for name in members if not generated.fullmatch(name)}
    expected = {
        path.relative_to(ROOT).as_posix()
        for name in COPIED
        for path in [ROOT / name, *(ROOT / name).rglob("*")]
        if path.is_file()
        if not any(one.match(pattern) for one in [path, *path.parents] for pattern in BUILT)
    }
    expected = {name for name in expected if not name.startswith(("tests/", "docs/changelog.d/"))}
    return [f"{path.name}: {name} is missing" for name in sorted(expected - found)] + [
        f"{path.name}: {name} is stray" for name in sorted(found - expected)
    ]


def check_wheel(path: Path) -> list[str]:
    """Return extensions that aren't stripped, and relative links in the long description."""
    with zipfile.ZipFile(path) as archive:
        texts = [
            f"{path.name}: {one.filename} has {one.file_size:,} bytes; expected a stripped one"
            for one in archive.infolist()
            if one.filename.endswith(".so") and one.file_size > LARGEST_EXTENSION
        ]
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        links = LINK.findall(archive.read(metadata).decode())
    return texts + [f"{path.name}: relative link to {target}" for _, target in links]


def main(command: str, folder: str) -> int:
    """Run a command and return the exit code."""
    if command == "tests":
        copy_tests(Path(folder))
        return 0
    if command in ("copy", "pure"):
        copy_project(Path(folder), pure=command == "pure")
        return 0
    wrong = check(Path(folder))
    print("\n".join(wrong) or "sdist and wheel are complete", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
