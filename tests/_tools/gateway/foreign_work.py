"""A producer and a member of a group of another client, in processes of their own, and a judge."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.testing.history import (
    Anomaly,
    Message,
    Operation,
    Recorder,
    check,
    read_jsonl,
    report,
)
from tests.brokers.reaper import reaper
from tests.support.delivery_check import LATE_S
from tests.support.paths import ROOT

_END_S = 150.0
_FRAMES = 20
"""The last lines of a traceback that are shown, before the exception's."""


def program_command(*arguments: str, python_path: Path | None = None) -> list[str]:
    """Return the command of `foreign_client`, with the folder of a release of the client."""
    path = [*([str(python_path)] if python_path else []), str(ROOT)]
    script = f"import sys; sys.path[:0] = {path}; "
    script += "from tests._tools.gateway.foreign_client import main; main(*sys.argv[1:])"
    return [sys.executable, "-c", script, *arguments]


class RunningProgram(Protocol):
    """A producer or a member of a group, in a process of its own."""

    def lines(self) -> list[str]:
        """Return what it has printed, without an incomplete line."""

    @property
    def values(self) -> list[str]:
        """What a member has read."""

    @property
    def running(self) -> bool:
        """Whether it hasn't ended."""

    def errors(self) -> str:
        """Return how it has ended, and the end of what it has written to stderr."""

    def stop(self) -> None:
        """Send SIGTERM, and wait until it has finished its work."""


class Program:
    """`foreign_client` with these arguments; what it prints goes to a file.

    With `takes_input=True` it reads what `write` is given.
    """

    def __init__(
        self,
        path: Path,
        *arguments: str,
        python_path: Path | None = None,
        takes_input: bool = False,
    ) -> None:
        self._path = path
        command = program_command(*arguments, python_path=python_path)
        given = subprocess.PIPE if takes_input else None
        with path.open("wb") as out, path.with_suffix(".err").open("wb") as err:
            self._process = subprocess.Popen(command, stdin=given, stdout=out, stderr=err, cwd=ROOT)
        reaper.watch_process(self._process.pid)

    def write(self, text: str) -> None:
        """Let it read a text."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def lines(self) -> list[str]:
        """Return what it has printed, without an incomplete line."""
        return self._path.read_text().rpartition("\n")[0].splitlines()

    @property
    def values(self) -> list[str]:
        """What a member has read."""
        return [line.removeprefix("value ") for line in self.lines()]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def errors(self) -> str:
        """Return its exit code, its last exception, and the end of what it has written to stderr.

        Its other threads may write on behind the exception.
        """
        text, code = self.log(), self._process.poll()
        lines = text.rpartition("Traceback (most recent call last):\n")[2].splitlines()
        end = next((at for at, line in enumerate(lines) if line[:1] != " "), 0)
        exception = "\n".join(lines[max(end - _FRAMES, 0) : end + 1])
        return f"exit code {code}\n{exception}\n\nthe end of stderr:\n{text[-2000:]}"

    def log(self) -> str:
        """Return what it has written to stderr."""
        return self._path.with_suffix(".err").read_text()

    def stop(self) -> None:
        """Send SIGTERM, and wait until it has finished its work."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        finally:
            self._process.kill()
            self._process.wait()
            reaper.forget_process(self._process.pid)


def is_late_retry(anomaly: Anomaly, history: Iterable[Operation]) -> bool:
    """Return whether a message is behind later ones because librdkafka may have sent it again.

    Its `max.in.flight` is a limit per broker: when the leader has changed, the new one gets later
    messages while earlier ones wait for their retry (librdkafka issues 1092 and 1969).
    """
    if anomaly.name != "nonmonotonic-send":
        return False
    late = max(anomaly.witness, key=lambda one: one.sent[0].offset or 0)
    partition = anomaly.facts["partition"]
    return any(
        one.call == "retried"
        and partition in one.partitions
        and late.invoked <= one.invoked <= (late.ended or one.invoked)
        for one in history
    )


class ForeignWork:
    """Numbered messages that another client sends to each partition of a topic, and reads.

    Args:
        client, version: of `foreign_client`.
        python_path: the folder of an earlier release of the client.

    Attributes:
        name: the client and its version.
        topic, group, servers, partitions: what it works with.
    """

    def __init__(
        self,
        client: str,
        version: str,
        servers: str,
        topic: str,
        partitions: int,
        folder: Path,
        python_path: Path | None = None,
    ) -> None:
        self.name = f"{client} {version}"
        self.topic = topic
        self.group = f"{topic}-group"
        self._client = client, version, servers
        self.servers = servers
        self.partitions = partitions
        self._folder = folder
        self._python_path = python_path

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run both during the body; then stop sending, and wait until all has been read."""
        self._producer = self._start_producer()
        member = self._start_member()
        try:
            yield
            await asyncio.to_thread(self._producer.stop)
            await self._until_read(member)
        finally:
            await asyncio.to_thread(self._producer.stop)
            await asyncio.to_thread(member.stop)
        self._read = member.values

    async def acknowledged(self, more: int, timeout: float = 30.0) -> None:
        """Wait until `more` further messages of each partition, on average, are acknowledged."""

        def count() -> int:
            lines = self._producer.lines()
            return sum('"call": "send"' in one and '"unknown"' not in one for one in lines)

        goal = count() + more * self.partitions
        async with asyncio.timeout(timeout):
            while count() < goal:
                assert self._producer.running, self._producer.errors()
                await asyncio.sleep(0.2)

    async def check(self) -> None:
        """Read the whole log, and judge the history."""
        recorder = Recorder(time.monotonic)
        async with AIOKafkaConsumer(bootstrap_servers=self.servers) as consumer:
            places = [TopicPartition(self.topic, number) for number in range(self.partitions)]
            await recorder.read_logs(consumer, places)
        for value in self._read:
            # Rebalances aren't known, so each message may stand anywhere.
            polled = Message(f"{self.topic}/{value.partition(':')[0]}", value)
            recorder.note(self.name, "assigned", group=self.group, facts={"auto_commit": True})
            recorder.note(self.name, "poll", group=self.group, polled=(polled,))
        assert any(self._acknowledged()), self._producer.errors()
        history = list(self._history())
        anomalies = check([*history, *recorder.operations], late_s=LATE_S)
        if self._client[0] == "librdkafka":
            anomalies = [one for one in anomalies if not is_late_retry(one, history)]
        assert not anomalies, f"{self.name}: {report(anomalies)}"

    def summary(self) -> str:
        """Return what happened, for documents."""
        history = list(self._history())
        kinds = [one.call for one in history]
        acknowledged = list(self._acknowledged())
        return (
            f"{self.name}: {len(acknowledged)} of {kinds.count('send')} messages acknowledged, "
            f"{kinds.count('retried')} reports of retries, {len(self._read)} messages read"
        )

    def _start_producer(self) -> RunningProgram:
        return self._program("produce", self.topic, str(self.partitions))

    def _start_member(self) -> RunningProgram:
        return self._program("consume", self.group, self.topic)

    def _program(self, work: str, *arguments: str) -> RunningProgram:
        path = self._folder / f"{self.topic}-{work}.out"
        return Program(path, work, *self._client, *arguments, python_path=self._python_path)

    def _history(self) -> Iterable[Operation]:
        return read_jsonl(self._producer.lines())

    def _acknowledged(self) -> Iterable[str]:
        for one in self._history():
            if one.sent and one.status == "ok":
                yield str(one.sent[0].value)

    async def _until_read(self, member: RunningProgram) -> None:
        wanted = set(self._acknowledged())
        try:
            async with asyncio.timeout(_END_S):
                while missing := wanted.difference(member.values):
                    assert member.running, member.errors()
                    await asyncio.sleep(0.2)
        except TimeoutError:
            text = f"{self.name}: {len(missing)} messages not read: {sorted(missing)[:10]}"
            raise AssertionError(f"{text}; {member.errors()}") from None
