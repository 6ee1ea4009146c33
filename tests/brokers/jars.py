"""The jars of each broker version, fetched by Maven into a cache outside the repository.

Law: a folder of the cache is complete or absent. It is built beside its place and renamed into it
under a file lock, so any number of processes may ask at once and an interrupted download leaves
nothing behind that could be mistaken for a result. The folder's name carries a digest of what was
asked for, so a changed table of versions never meets an old folder.
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
    """The folder that outlives test runs: ``AIOKAFKA08_CACHE`` or the user's cache folder."""
    chosen = os.environ.get("AIOKAFKA08_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aiokafka08"


def java_command() -> str:
    """The ``java`` to run brokers with: that of JAVA_HOME, else the one on the PATH."""
    return find_java_tool("java")


def find_java_tool(name: str) -> str:
    """Find a program of the JDK (``java``, ``keytool``)."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which(name)
    if found is None:
        raise MissingToolError(
            f"`{name}` was not found: real Kafka brokers need a JDK 17"
            " (Debian/Ubuntu: apt-get install openjdk-17-jdk-headless; or set JAVA_HOME)"
        )
    return found


def jar_folder(version_name: str) -> Path:
    """The folder with all jars of a version, fetched when it isn't there yet."""
    version = find_version(version_name)
    pom = _pom(version)
    digest = hashlib.sha256(pom.encode()).hexdigest()[:8]
    root = cache_dir() / "jars"
    folder = root / f"{version.name}-{digest}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{version.name}.lock"):
        if not folder.is_dir():  # else another process fetched it while we waited for the lock
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
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel lets go of it when we die
        yield


def _fetch(version: BrokerVersion, pom: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            f"`mvn` was not found: the jars of Kafka {version.name} come by Maven"
            " (Debian/Ubuntu: apt-get install maven), once, into "
            f"{cache_dir()} (AIOKAFKA08_CACHE)"
        )
    find_java_tool("java")  # mvn's own complaint about a missing Java is hard to read
    # Left over from a killed fetch: we hold this version's lock, so nobody is working there.
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
            raise HarnessError(f"Maven ended well but brought no broker jar of {version.name}")
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
            f"Maven did not bring the jars of Kafka {version.name} in {FETCH_TIMEOUT:.0f} s"
        ) from error
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise HarnessError(
            f"Maven could not bring the jars of Kafka {version.name}"
            f" (exit code {done.returncode}):\n{tail}"
        )
