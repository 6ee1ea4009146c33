"""Download the jars of each broker version with Maven, into a cache outside the repository.

Invariant: a folder of the cache is complete or absent. It is filled under another name and then
renamed, under a file lock. Therefore several processes may request it at the same time, and an
interrupted download leaves no partial folder under its name. The name has a digest of the
requested artifacts, so that a changed table of versions gets a new folder.

``java_process.py`` runs classes of the jars; ``find_java_tool`` also finds the programs of the JDK.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers.errors import HarnessError, MissingToolError
from tests.brokers.versions import BrokerVersion, find_version

FETCH_TIMEOUT = 900.0

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aiokafka08.tests</groupId>
  <artifactId>brokers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def cache_dir() -> Path:
    """Return the cache folder: ``AIOKAFKA08_CACHE``, or one in the user's cache folder."""
    chosen = os.environ.get("AIOKAFKA08_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aiokafka08"


def java_command() -> str:
    """Return the path of ``java``: from JAVA_HOME, else from the PATH."""
    return find_java_tool("java")


def find_java_tool(name: str) -> str:
    """Return the path of a program of the JDK (``java``, ``keytool``)."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which(name)
    if found is None:
        raise MissingToolError(
            f"`{name}` was not found: real Kafka brokers need a JDK 17. Install it (Debian/Ubuntu:"
            " apt-get install openjdk-17-jdk-headless), or set JAVA_HOME"
        )
    return found


def jar_folder(version_name: str) -> Path:
    """Return the folder with all jars of a version; download them if it doesn't exist."""
    version = find_version(version_name)
    pom = _pom(version)
    digest = hashlib.sha256(pom.encode()).hexdigest()[:8]
    root = cache_dir() / "jars"
    folder = root / f"{version.name}-{digest}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / f"{version.name}.lock"):
        if not folder.is_dir():  # else another process downloaded it during the wait for the lock
            _fetch(version, pom, folder)
    return folder


def _pom(version: BrokerVersion) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in (entry.split(":") for entry in version.exclusions)
    )
    dependencies = "\n".join(
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version><exclusions>{exclusions}</exclusions></dependency>"
        for group, artifact, number in (entry.split(":") for entry in version.artifacts)
    )
    return _POM.format(dependencies=dependencies)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache, which is this file, beside other processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases the lock when this process ends
        yield


def _fetch(version: BrokerVersion, pom: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            f"`mvn` was not found: Maven downloads the jars of Kafka {version.name}, once, to "
            f"{cache_dir()} (AIOKAFKA08_CACHE). Install it (Debian/Ubuntu: apt-get install maven)"
        )
    find_java_tool("java")  # the error of mvn about a missing Java is hard to read
    # Leftovers of a killed download: the lock of this version shows that no process uses them.
    for stale in folder.parent.glob(f".{version.name}-*"):
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{version.name}-", dir=folder.parent))
    try:
        (work / "pom.xml").write_text(pom)
        jars = work / "jars"
        command = [maven, "--batch-mode", "--quiet", "-Dstyle.color=never"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        _run_maven(command, work, version)
        if not any(jars.glob("kafka_*.jar")):
            raise HarnessError(
                f"Kafka {version.name}: Maven succeeded, but downloaded no broker jar"
            )
        jars.chmod(0o755)
        jars.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_maven(command: list[str], work: Path, version: BrokerVersion) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(
            f"Kafka {version.name}: Maven didn't download the jars within {FETCH_TIMEOUT:.0f} s"
        ) from error
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise HarnessError(
            f"Kafka {version.name}: Maven couldn't download the jars (exit code"
            f" {done.returncode}):\n{tail}"
        )
