"""Find programs of Debian that tests use as judges: installed, or unpacked from their package.

`debian_tool("prometheus", "promtool")` downloads the package once, by apt-get, into the cache of
the brokers' jars, and unpacks it there; nothing is installed. Where that isn't possible the test is
skipped by name, but fails in CI (the environment variable CI): a judge that is never there proves
nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.brokers.jars import cache_dir

_DOWNLOAD_S = 120


def debian_tool(package: str, program: str) -> Path:
    """Return the path of a program, or skip the test.

    Args:
        package: the Debian package that has it.
        program: its name.
    """
    installed = shutil.which(program)
    if installed is not None:
        return Path(installed)
    unpacked = cache_dir() / "debian" / package
    path = unpacked / "usr/bin" / program
    if not path.exists():
        problem = _unpack(package, unpacked)
        if problem is not None or not path.exists():
            text = f"{program} of Debian's {package} isn't here: {problem or 'not in the package'}"
            if os.environ.get("CI"):
                pytest.fail(f"{text}. apt-get install {package}", pytrace=False)
            pytest.skip(text)
    return path


def _unpack(package: str, folder: Path) -> str | None:
    """Download and unpack a package; return what prevents it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "no apt-get or dpkg-deb"
    work = folder.with_name(f"{package}.{os.getpid()}")
    work.mkdir(parents=True)
    try:
        for command in (["apt-get", "download", package], ["dpkg-deb", "-x", "*.deb", "root"]):
            command = [
                next(str(one) for one in work.glob(word)) if "*" in word else word
                for word in command
            ]
            done = subprocess.run(
                command, cwd=work, capture_output=True, text=True, timeout=_DOWNLOAD_S
            )
            if done.returncode:
                return f"{' '.join(command)}: {done.stderr.strip()[-300:]}"
        if not folder.exists():  # another process may have unpacked it meanwhile
            (work / "root").rename(folder)
    except subprocess.TimeoutExpired as error:
        return f"{error.cmd[0]} took longer than {_DOWNLOAD_S} s"
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return None
