"""The embedded cluster, in a process of its own, whose leader the demo kills.

In a thread of the demo it would share the interpreter lock with the client, which would send more
slowly. The process ends when its stdin ends: with the demo, in whatever way the demo ends.

A line on its stdin kills the leader of a topic's first partition; the line that it prints then has
the leader's id and how many partitions it led. Until the controller notices, no message is
acknowledged. That takes `NOTICE_S`, real brokers some seconds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aiokafka08.testing import EmbeddedCluster
from examples.demo.run import DemoError, Killed, on_loop

ROOT = Path(__file__).parents[2]
PATIENCE_S = 10.0
NOTICE_S = 0.5


class ClusterProcess:
    """A running cluster.

    Attributes:
        bootstrap: its bootstrap servers.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.bootstrap = self._read()

    def kill_leader(self, topic: str) -> Killed:
        """Kill the leader of the topic's first partition."""
        assert self._process.stdin is not None
        print(topic, file=self._process.stdin, flush=True)
        return Killed(*json.loads(self._read()))

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise DemoError(f"embedded cluster failed: exit code {self._process.wait()}")
        return line


@contextmanager
def embedded(brokers: int, version: str, topics: Mapping[str, int]) -> Iterator[ClusterProcess]:
    """Run a cluster with these topics (name → partitions).

    Raises:
        DemoError: the cluster didn't start; its output is on stderr.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps([brokers, version, topics])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,  # the demo handles Ctrl-C
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ClusterProcess(process)
    finally:
        process.stdin.close()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # not earlier: the process may be about to print its address


async def _serve(brokers: int, version: str, topics: Mapping[str, int]) -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    # No retention: the demo reads everything that it has sent.
    async with EmbeddedCluster(brokers, version, topics, retention_bytes=None) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        while line := await commands.readline():
            topic = line.decode().strip()
            leaders = [cluster.leader(topic, number) for number in range(topics[topic])]
            cluster.kill(leaders[0], then="unnoticed")
            killed = Killed(leaders[0], leaders.count(leaders[0]), len(leaders))
            print(json.dumps(killed), flush=True)
            loop.call_later(NOTICE_S, cluster.notice, leaders[0])


if __name__ == "__main__":
    on_loop(_serve(*json.loads(sys.argv[1])))
