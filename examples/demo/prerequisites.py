"""Check what Spark needs beyond this project, pyspark and Java, and say how to install it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess

PYSPARK = (4, 2)
JAVA = 17
"""The oldest Java for Spark 4."""
PATIENCE_S = 20

_GET_PYSPARK = f"pip install 'pyspark>={PYSPARK[0]}.{PYSPARK[1]}' pyarrow"
_GET_JAVA = (
    f"install Java {JAVA} or newer (apt install openjdk-{JAVA}-jre-headless, "
    f"brew install openjdk@{JAVA}, or adoptium.net) and have it on PATH or in JAVA_HOME"
)


def missing_for_spark() -> str | None:
    """Return None, or one line with the missing part and how to install it."""
    try:
        installed = importlib.metadata.version("pyspark")
        importlib.metadata.version("pyarrow")
    except importlib.metadata.PackageNotFoundError as error:
        return f"{error.name} isn't installed: {_GET_PYSPARK}"
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < PYSPARK:
        return f"pyspark {installed} is too old: {_GET_PYSPARK}"
    return _missing_java()


def _missing_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"  # the same search as Spark's
    found = shutil.which(command)
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        return f"there is no Java {where}: {_GET_JAVA}"
    try:
        done = subprocess.run(
            [found, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{found} can't be run ({error}): {_GET_JAVA}"
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode or not version:  # the java of macOS may only print where to get one
        return f"{found} has no version: {_GET_JAVA}"
    if int(version[1]) < JAVA:
        return f"{found} is Java {version[1]}, too old for Spark: {_GET_JAVA}"
    return None
