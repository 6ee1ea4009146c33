"""Find programs of Debian that tests use as judges: installed, or unpacked from their packages.

`debian_tool("prometheus", "promtool")` downloads the package once, by apt-get, into the cache of
the brokers' jars, and unpacks it there; nothing is installed, and root isn't needed. Where that
isn't possible the test is skipped by name, but fails in CI (the environment variable CI): a judge
that is never there proves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers.jars import cache_dir, locked

_DOWNLOAD_S = 120


class MissingPackageError(Exception):
    """A package of Debian can't be had on this machine."""


def debian_tool(package: str, program: str) -> Path:
    """Return the path of a program, or skip the test.

    Args:
        package: the Debian package that has it.
        program: its name.
    """
    installed = shutil.which(program)
    if installed is not None:
        return Path(installed)
    with skipped_if_missing(f"{program} of Debian's {package}", package):
        path = debian_folder(package) / "usr/bin" / program
        if not path.exists():
            raise MissingPackageError("not in the package")
    return path


@contextmanager
def skipped_if_missing(what: str, packages: str) -> Iterator[None]:
    """Skip the test, or fail in CI, where the block raises `MissingPackageError`."""
    try:
        yield
    except MissingPackageError as error:
        import pytest  # `python -m tests.brokers` runs without it

        text = f"{what} isn't here: {error}"
        if os.environ.get("CI"):
            pytest.fail(f"{text}. apt-get install {packages}", pytrace=False)
        pytest.skip(text)


def debian_folder(name: str, *further: str, dependencies: bool = False) -> Path:
    """Return the folder of the cache with a package, and further ones, unpacked.

    Args:
        name: the package; the folder has its name.
        further: packages that are unpacked into the same folder.
        dependencies: unpack too what they need and this machine doesn't have installed.

    Raises:
        MissingPackageError: a package can't be downloaded or unpacked here.
    """
    folder = cache_dir() / "debian" / name
    if folder.is_dir():
        return folder
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise MissingPackageError(f"no {program}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{name}.lock")):
        if not folder.is_dir():  # else another process unpacked it during the wait for the lock
            _unpack({name, *further}, folder, dependencies=dependencies)
    return folder


def _unpack(packages: set[str], folder: Path, *, dependencies: bool) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        if dependencies:
            listed = _run(
                work, "apt-get", "-s", "--no-install-recommends", "install", *sorted(packages)
            )
            lines = (line.split() for line in listed.splitlines())
            packages = packages | {words[1] for words in lines if words[:1] == ["Inst"]}
        _run(work, "apt-get", "download", *sorted(packages))
        for archive in sorted(Path(work).glob("*.deb")):
            _run(work, "dpkg-deb", "-x", str(archive), "root")
        Path(work, "root").rename(folder)


def _run(folder: str, *command: str) -> str:
    """Run a program and return its output."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_S
        )
    except subprocess.TimeoutExpired:
        raise MissingPackageError(f"{command[0]} took longer than {_DOWNLOAD_S} s") from None
    if done.returncode:
        raise MissingPackageError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return done.stdout
