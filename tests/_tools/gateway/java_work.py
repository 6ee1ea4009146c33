"""Kafka's own producers and consumers of old, in Scala and Java, as work that is judged."""

from __future__ import annotations

from pathlib import Path

from tests._tools.gateway.foreign_work import ForeignWork, RunningProgram
from tests.brokers.java_process import JavaProcess, write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version

_PRODUCER = Path(__file__).with_name("OldProducer.java")
_END_S = 150.0


class _Program:
    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    def lines(self) -> list[str]:
        return self._process.stdout().rpartition("\n")[0].splitlines()

    @property
    def values(self) -> list[str]:
        return self.lines()

    @property
    def running(self) -> bool:
        return self._process.running

    def errors(self) -> str:
        return f"exit code {self._process.returncode}\n{self._process.log_tail()}"

    def stop(self) -> None:
        try:
            self._process.terminate(_END_S)
        finally:
            self._process.kill()


class JavaWork(ForeignWork):
    """The producer and the consumer in Java (0.9 to 0.10.2)."""

    language = "java"

    def __init__(
        self, release: str, servers: str, topic: str, partitions: int, folder: Path
    ) -> None:
        super().__init__(self.language, release, servers, topic, partitions, folder)
        own = folder / topic
        own.mkdir()
        write_logging_files(own)
        self._tools = JavaTools(find_version(release), own)
        self._settings = own / "consumer.properties"

    def _start_producer(self) -> RunningProgram:
        arguments = (self.language, self.servers, self.topic, str(self.partitions))
        return _Program(self._tools.popen(str(_PRODUCER), *arguments))

    def _start_member(self) -> RunningProgram:
        settings = "session.timeout.ms=6000\nauto.commit.interval.ms=200\n"
        return self._consumer(settings, "--bootstrap-server", self.servers, "--new-consumer")

    def _consumer(self, settings: str, *arguments: str) -> RunningProgram:
        self._settings.write_text(f"group.id={self.group}\n{settings}")
        process = self._tools.popen(
            *("kafka.tools.ConsoleConsumer", *arguments, "--topic", self.topic),
            *("--from-beginning", "--consumer.config", str(self._settings)),
        )
        return _Program(process)


class ScalaWork(JavaWork):
    """The Scala producer, and the Scala consumer of 0.8.2 to 1.1, which uses ZooKeeper."""

    language = "scala"

    def __init__(
        self,
        release: str,
        servers: str,
        topic: str,
        partitions: int,
        folder: Path,
        zookeeper: str,
    ) -> None:
        super().__init__(release, servers, topic, partitions, folder)
        self._zookeeper = zookeeper

    def _start_member(self) -> RunningProgram:
        settings = (
            "zookeeper.session.timeout.ms=6000\nauto.commit.interval.ms=200\n"
            "rebalance.backoff.ms=1000\nrebalance.max.retries=20\n"
        )
        return self._consumer(settings, "--zookeeper", self._zookeeper)
