"""Archives of the classes that brokers load: a JVM that maps one starts with less CPU time.

`python -m tests.brokers --fetch` writes one beside the jars of each version. It takes half the CPU
time from the start of a broker 3.9.1 (1.3 instead of 2.3 s), a quarter at 0.8.2.2 (0.6 instead of
0.8 s), and little from ZooKeeper's, whose classes it doesn't have. A JVM without an archive, or
with one that it can't map, starts as ever.

Invariant: a file is complete or absent. A JVM writes it under another name, at its end.

``java_process.py`` adds ``mapping_options`` to the commands of brokers and tools.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.brokers.jars import jar_folder, java_command
from tests.brokers.versions import BrokerVersion

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""A JVM that can't map an archive says so on stdout, which tests read."""


def archive_path(version: BrokerVersion) -> Path:
    """Return where the archive is, or would be; each JVM has its own."""
    java = Path(java_command()).resolve()
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    return jar_folder(version.name) / f"kafka-{digest}.jsa"


def mapping_options(version: BrokerVersion) -> tuple[str, ...]:
    """Return the options with which a JVM maps the archive, if there is one."""
    path = archive_path(version)
    return (f"-XX:SharedArchiveFile={path}", *QUIET) if path.is_file() else ()


def writing_options(path: Path) -> tuple[str, ...]:
    """Return the options with which a JVM writes an archive when it ends, unless by SIGKILL."""
    return (f"-XX:ArchiveClassesAtExit={path}", *QUIET)
