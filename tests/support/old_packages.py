"""Other clients of earlier releases, each in a folder of its own that a program puts on its path.

The environment of the tests has the newest release of a client; `old_package()` downloads another
one, once, into the cache of the brokers' jars.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.brokers.jars import cache_dir, locked
from tests.support.debian_tools import MissingPackageError, skipped_if_missing

_DOWNLOAD_S = 120


def old_package(requirement: str) -> Path:
    """Return the folder of a package without its dependencies, or skip the test.

    Args:
        requirement: as pip takes it, of one release: "kafka-python==2.0.2".
    """
    with skipped_if_missing(requirement, f"python3-pip, and a connection for {requirement}"):
        return _downloaded(requirement)


def kafka_python_2() -> Path:
    """Return the folder of kafka-python 2.0.2, which Python 3.12 and newer can't import."""
    if sys.version_info >= (3, 12):
        pytest.skip("kafka-python 2.0.2 can't be imported by Python 3.12 and newer")
    return old_package("kafka-python==2.0.2")


def _downloaded(requirement: str) -> Path:
    folder = cache_dir() / "python" / requirement
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{requirement}.lock")):
        if not folder.is_dir():  # else another process has downloaded it meanwhile
            _download(requirement, folder)
    return folder


def _download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as work:
        target = Path(work, "package")
        try:
            done = subprocess.run(
                [*command, str(target), requirement],
                capture_output=True,
                text=True,
                timeout=_DOWNLOAD_S,
            )
        except subprocess.TimeoutExpired:
            raise MissingPackageError(f"pip took longer than {_DOWNLOAD_S} s") from None
        if done.returncode:
            raise MissingPackageError(f"pip: {done.stderr.strip()[-300:]}")
        target.rename(folder)
