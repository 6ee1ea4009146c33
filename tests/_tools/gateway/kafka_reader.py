"""What Kafka's own consumer of 4.1 reads from a topic: one program for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.brokers.cluster import RealCluster
from tests.brokers.java_process import JavaProcess
from tests.brokers.waiting import wait_for
from tests.support.paths import ROOT

_PROGRAM = ROOT / "tests/tools/CommittedReader.java"


class ReadRecord(NamedTuple):
    """A record; -1 is the timestamp of one that has none."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None


class KafkaReader:
    """Reads topics with one partition."""

    def __init__(self, process: JavaProcess) -> None:
        self._process = process
        self._read = 0

    def read(self, topic: str) -> list[ReadRecord]:
        """Return the topic's records up to its present end; blocks."""
        self._process.write(f"{topic}\n")
        wait_for(
            lambda: not self._process.running or self._lines()[-1:] == [f"end {topic}"],
            120,
            lambda: f"the records of {topic}: {self._process.log_tail()}",
        )
        lines = self._lines()
        assert lines[-1:] == [f"end {topic}"], self._process.log_tail()
        self._read += len(lines)
        return [_record(line) for line in lines[:-1]]

    def _lines(self) -> list[str]:
        text = self._process.stdout().rpartition("\n")[0]
        return text.splitlines()[self._read :]


@contextmanager
def kafka_reader(cluster: RealCluster) -> Iterator[KafkaReader]:
    """Run the program beside a cluster of 4.1."""
    process = cluster.popen_java(str(_PROGRAM), cluster.bootstrap_servers, writable_stdin=True)
    try:
        yield KafkaReader(process)
    finally:
        process.kill()


def _record(line: str) -> ReadRecord:
    _, offset, key, value, timestamp = line.split()
    return ReadRecord(int(offset), int(timestamp), _text(key), _text(value))


def _text(column: str) -> str | None:
    return None if column == "-" else bytes.fromhex(column[1:]).decode()
