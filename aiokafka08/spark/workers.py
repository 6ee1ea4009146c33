"""Let Spark's Python processes import this package, or raise an error that names the settings.

Invariant: an error is raised only where queries of the format would fail. A session that doesn't
show its Python and files isn't checked (managed platforms refuse some calls of the JVM).
"""

# Spark plans and reads a Python data source in separate processes. They run the Python that
# `PYSPARK_PYTHON` names, else the `python3` of PATH, whatever Python runs the program. Without
# the package there, a query fails with `ModuleNotFoundError` below a hundred lines of Java. And a
# zip of the package (`--py-files`) isn't on their path when Spark plans a stream (seen with 4.3.0).

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
import zipimport
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.spark.worker_log import pass_level

_log: Final = logging.getLogger("aiokafka08.spark")

_PACKAGE: Final = "aiokafka08"
_NEEDED: Final = (_PACKAGE, "pyarrow")
_PROBE: Final = f"""
import importlib.util, json, sys
missing = [name for name in {_NEEDED!r} if importlib.util.find_spec(name) is None]
print(json.dumps([list(sys.version_info[:2]), sys.prefix, missing]))
"""
_PROBE_LIMIT_S: Final = 15.0


def prepare_workers(context: Any) -> None:
    """Put a zip of the package on the path of Spark's Python processes, and check their Python.

    Args:
        context: the `SparkContext`. Its `environment` gets this program's log level. If needed,
            the PYTHONPATH in it gets the zips of the package, or this program's PYTHONPATH.

    Raises:
        KafkaConfigurationError: Spark's Python can't be run, is of another version, or can't import
            this package or pyarrow. The text has the settings to change.
    """
    try:
        launch = _Launch.of(context)
    # Platforms that refuse calls of the JVM raise different errors.
    except Exception:
        _log.debug("Spark's Python isn't checked: the session doesn't tell it", exc_info=True)
        return
    pass_level(launch.environment)
    given = launch.environment.get("PYTHONPATH", "")
    if launch.archives:
        given = launch.environment["PYTHONPATH"] = _joined(*launch.archives, given)
    python = shutil.which(launch.name)
    if python is None:
        raise _unusable(launch.name, "which isn't found")
    if launch.archives or not (_is_this_python(python) and _is_installed()):
        folder = os.getcwd()
        own = _joined(given, os.environ.get("PYTHONPATH", ""))
        try:
            _check(launch.name, python, given, folder)
        except KafkaConfigurationError:
            if own == given:
                raise
            _check(launch.name, python, own, folder)
            # Spark's processes inherit the environment of the JVM, which may have started before
            # this program set its own, and lives on after `spark.stop()`.
            launch.environment["PYTHONPATH"] = own


def _joined(*paths: str) -> str:
    """Return the entries of paths as one path, each once."""
    entries = [entry for path in paths for entry in path.split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys(entries))


class _Launch(NamedTuple):
    """A session's settings for the Python processes that Spark starts."""

    name: str
    # Variables that the session adds; to be changed in place.
    environment: dict[str, str]
    archives: list[str]

    @classmethod
    def of(cls, context: Any) -> _Launch:
        archives = list(dict.fromkeys(_archives(context)))
        return cls(context.pythonExec, context.environment, archives)


def _archives(context: Any) -> Iterator[str]:
    """Yield the zips with the package: the one that was imported, and those that Spark sends."""
    from pyspark import SparkFiles

    spec = find_spec(_PACKAGE)
    loader: object = None if spec is None else spec.loader
    if isinstance(loader, zipimport.zipimporter):
        yield os.path.abspath(loader.archive)
    folder = Path(SparkFiles.getRootDirectory())
    # On YARN only the setting has them.
    submitted = context.getConf().get("spark.submit.pyFiles", "").split(",")
    for url in [*context.listFiles, *filter(None, submitted)]:
        path = folder / unquote(url).rpartition("/")[2]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if f"{_PACKAGE}/__init__.py" in archive.namelist():
                    yield str(path)


def _is_this_python(python: str) -> bool:
    # Links aren't followed: those of all virtual environments may lead to the same file.
    return os.path.abspath(python) == os.path.abspath(sys.executable)


def _is_installed() -> bool:
    return _package_folder() in map(
        Path, (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    )


def _package_folder() -> Path:
    """Return the folder, or the zip, from which this program imports the package."""
    return Path(__file__).absolute().parents[2]


@lru_cache  # caches no errors: after one, the user may have installed the package
def _check(name: str, python: str, python_path: str, folder: str) -> None:
    """Raise if this Python can't run the data source."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            env=os.environ | {"PYTHONPATH": python_path},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,  # the exit status is in the error
            timeout=_PROBE_LIMIT_S,
        )
    # On a busy machine a timeout proves nothing about this Python.
    except subprocess.TimeoutExpired:
        return
    except OSError as error:
        raise _unusable(name, f"which doesn't start ({error})") from error
    lines = done.stderr.strip().splitlines()
    try:
        version, prefix, missing = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise _unusable(name, f"which doesn't start ({reason})", python) from None
    if version != list(sys.version_info[:2]):
        raise _unusable(name, f"Python {version[0]}.{version[1]} instead of {_version()}", python)
    if missing:
        detail = f"which can't import {' and '.join(missing)}"
        if prefix != sys.prefix:
            raise _unusable(name, detail, python)
        folder = str(_package_folder())
        raise KafkaConfigurationError(
            f"data source kafka08: Spark runs its Python processes with {name!r} ({python}), "
            f"{detail}; this program imports {_PACKAGE} from {folder}. Install it there: pip "
            f"install 'aiokafka08[spark]'; or set the environment variable PYTHONPATH to {folder} "
            f"before the session starts. {_RUNNING}"
        )


_RUNNING: Final = "A session that runs already ends with spark.stop()"


def _version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _unusable(name: str, detail: str, python: str | None = None) -> KafkaConfigurationError:
    shown = repr(name) if python is None or python == name else f"{name!r} ({python})"
    return KafkaConfigurationError(
        f"data source kafka08: Spark runs its Python processes with {shown}, {detail}; expected "
        f"the Python of this program, {sys.executable}. Set the environment variable "
        "PYSPARK_PYTHON to it before the session starts: os.environ['PYSPARK_PYTHON'] = "
        f"sys.executable. {_RUNNING}"
    )
