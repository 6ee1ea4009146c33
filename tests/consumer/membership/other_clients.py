"""Group members of other clients: Java's console consumer, the Scala consumer, kafka-python."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from aiokafka08.testing import EmbeddedCluster
from tests.brokers import RealCluster
from tests.brokers.java_process import JavaProcess
from tests.support.paths import ROOT


class JavaPrograms(Protocol):
    """The Java programs of a release."""

    @property
    def version(self) -> str: ...

    def popen_java(self, main_class: str, *args: str) -> JavaProcess: ...


class JavaSource(JavaPrograms, Protocol):
    """Brokers, or what stands before them, and the Java programs of a release."""

    @property
    def bootstrap_servers(self) -> str: ...


class ScalaSource(JavaPrograms, Protocol):
    """A ZooKeeper with brokers, and the Java programs of a release."""

    @property
    def zookeeper_connect(self) -> str: ...


class JavaMember:
    """`ConsoleConsumer` of the cluster's version, with the new consumer of 0.9 and later."""

    def __init__(
        self,
        cluster: JavaSource,
        folder: Path,
        group: str,
        topic: str,
        *,
        from_beginning: bool = False,
    ) -> None:
        settings = folder / f"{group}.properties"
        settings.write_text(
            f"group.id={group}\nclient.id=java\nsession.timeout.ms=6000\n"
            "heartbeat.interval.ms=200\nauto.commit.interval.ms=100\nauto.offset.reset=earliest\n"
        )
        newer = cluster.version.startswith("3.")
        self.process: JavaProcess = cluster.popen_java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer"
            if newer
            else "kafka.tools.ConsoleConsumer",
            *(() if newer else ("--new-consumer",)),
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *("--consumer.config", str(settings)),
            *(("--from-beginning",) if from_beginning else ()),
        )

    @property
    def values(self) -> list[str]:
        """The messages that it has printed."""
        return self.process.stdout().rpartition("\n")[0].splitlines()

    def stop(self) -> None:
        """Send SIGTERM; the member leaves its group."""
        if self.process.running:
            self.process.terminate(20)


class KafkaPythonMember:
    """kafka-python's consumer, in a process of its own (`kafka_python_process`)."""

    def __init__(self, cluster: RealCluster | EmbeddedCluster, group: str, topic: str) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - `stop()` closes it
        self._last_text = b""  # once it has ended
        arguments = [cluster.bootstrap_servers, group, topic]
        if cluster.version.startswith("0.9"):
            arguments.append("0.9")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.consumer.membership.kafka_python_process", *arguments],
            stdout=self._printed,
            cwd=ROOT,
        )

    def _text(self) -> bytes:
        if self._printed.closed:
            return self._last_text
        file = self._printed.fileno()
        return os.pread(file, os.fstat(file).st_size, 0)

    def _lines(self, kind: str) -> list[str]:
        complete = self._text().decode().rpartition("\n")[0].splitlines()
        return [
            rest for first, _, rest in (one.partition(" ") for one in complete) if first == kind
        ]

    @property
    def values(self) -> list[str]:
        """The messages that it has printed."""
        return self._lines("value")

    @property
    def partitions(self) -> set[int]:
        """The numbers of its partitions."""
        return set(map(int, (self._lines("partitions") or [""])[-1].split()))

    def stop(self) -> None:
        """Send SIGTERM; the member leaves its group."""
        if self._printed.closed:
            return
        self._process.terminate()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            self._last_text = self._text()
            self._printed.close()


class ScalaMember:
    """The Scala high-level consumer of 0.8, run by `ConsoleConsumer`."""

    def __init__(
        self,
        cluster: ScalaSource,
        folder: Path,
        group: str,
        topic: str,
        *,
        from_beginning: bool = True,
        strategy: str = "range",
        pattern: bool = False,
    ) -> None:
        package, options = "kafka.consumer", ["--group", group, "--autocommit.interval.ms", "100"]
        if cluster.version.startswith(("0.8.2", "0.9")):
            package = "kafka.tools"
            settings = folder / f"{group}.properties"
            settings.write_text(
                f"group.id={group}\nzookeeper.session.timeout.ms=4000\nrebalance.backoff.ms=300\n"
                "rebalance.max.retries=30\nauto.commit.interval.ms=100\n"
                f"partition.assignment.strategy={strategy}\n"
            )
            options = ["--consumer.config", str(settings)]
        self.process: JavaProcess = cluster.popen_java(
            f"{package}.ConsoleConsumer",
            *("--zookeeper", cluster.zookeeper_connect),
            *("--whitelist" if pattern else "--topic", topic),
            *options,
            *(("--from-beginning",) if from_beginning else ()),
        )

    @property
    def values(self) -> list[str]:
        """The messages that it has printed."""
        return self.process.stdout().rpartition("\n")[0].splitlines()

    def stop(self) -> None:
        """Send SIGTERM; the member commits and leaves its group."""
        if self.process.running:
            self.process.terminate(20)
