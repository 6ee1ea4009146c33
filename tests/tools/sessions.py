"""What the sessions of noxfile.py, of `sessions_campaigns` and of `sessions_release` share.

nox loads these modules before it has made an environment: they import nox and the standard library
only. nox runs in the project's folder, so paths are relative to it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)

IN_UNITS = ("--dist=loadgroup", "--no-loadscope-reorder")
"""`tests/support/schedule.py` decides which tests one process runs, and in which order."""
PARALLEL = ("--numprocesses=6", *IN_UNITS)
"""Six processes on two cores: many tests wait for brokers or Spark."""


def install(session: nox.Session, *groups: str, project: bool = True, silent: bool = True) -> None:
    """Install dependency groups, and this project in place."""
    # The pip of Python 3.11 has no --group.
    requirements = nox.project.dependency_groups(PROJECT, *groups)
    session.install(*(["-e", "."] if project else []), *requirements, silent=silent)


def paths_marked(mark: str) -> list[str]:
    """Return the folders and files of tests that have a mark, so that pytest imports no others.

    A folder has the marks of `pytestmark` in its `__init__.py`.
    """
    pattern = re.compile(rf"\bmark\.{mark}\b")
    found: list[Path] = []
    for path in sorted(Path("tests").rglob("*.py"), key=lambda path: (path.parent, path.name)):
        if found and found[-1] in path.parents:
            continue
        if path.name == "__init__.py" and pattern.search(path.read_text()):
            found.append(path.parent)
        elif path.name.startswith("test_") and pattern.search(path.read_text()):
            found.append(path)
    return [path.as_posix() for path in found]


def selection(mark: str, further: str = "") -> tuple[str, ...]:
    """Return pytest's arguments for the tests with a mark, and with a further expression."""
    expression = f"{mark} and {further}" if further else mark
    return ("-m", expression, *paths_marked(mark))


def environment(twin: str) -> dict[str, str]:
    """Return the variables of tests on one twin; with "c" they fail if it couldn't be built."""
    # Without cached bytecode each process of the tests would compile the package again.
    return {"AIOKAFKA08_IMPL": twin, "PYTHONDONTWRITEBYTECODE": ""}


def pytest_of(*arguments: str) -> tuple[str, ...]:
    """Return the command that runs pytest."""
    return ("python", "-m", "pytest", *arguments)


def run_pytest(session: nox.Session, *arguments: str, twin: str = "c") -> None:
    """Run pytest on one twin."""
    session.run(*pytest_of(*arguments), env=environment(twin))


def fetch_brokers(session: nox.Session) -> None:
    """Get the brokers, and Kerberos, before the tests: no test's timeout includes a download.

    gssapi has no wheel, and is built once: it stays in the cache of the brokers.
    """
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") != "1":
        session.run("python", "-m", "tests.brokers", "--fetch")
        session.run("python", "-m", "tests.support.gssapi_wheel")


def fetch_programs(session: nox.Session) -> None:
    """Get the brokers, and install Debian's kcat and chromium where possible.

    Elsewhere the tests that run these are skipped, and say so.
    """
    fetch_brokers(session)
    missing = [name for name in ("kcat", "jq", "chromium") if not shutil.which(name)]
    if not missing or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    for command in (("update", "-q"), ("install", "-y", "-q", "--no-install-recommends", *missing)):
        session.run("apt-get", *command, external=True, silent=True, success_codes=[0, 100])


def installed_pythons() -> list[str]:
    """Return those of `PYTHONS` that are installed, the oldest first."""
    return [version for version in PYTHONS if works(f"python{version}")]


def works(python: str) -> bool:
    """Return True if the command exists and runs. A version manager's shim may exist and fail."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
