"""A process that delays the responses of brokers: `python -m tests.tools.bench.delay PORT=UPSTREAM
…`.

Bytes pass unchanged. Each line of stdin is a delay in seconds for all bytes that the brokers send
from then on; the process echoes the line when the delay is in force. The end of stdin ends the
process, so it can't outlive its parent. Requests pass at once: the added round trip is entirely in
the responses. The rate isn't limited.

`growth` uses it through `DelayedCluster`.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import uvloop

from tests.brokers import RealCluster, free_port
from tests.brokers.proxy import TcpProxy
from tests.brokers.wire import metadata

_PROBES = 15
_LEAVING_S = 10


class DelayedCluster:
    """A real cluster whose brokers advertise a delaying process in front of them."""

    def __init__(self, version: str, brokers: int, java_options: tuple[str, ...]) -> None:
        self._ports = {node: free_port() for node in range(brokers)}
        self.cluster = RealCluster(
            version, brokers, advertised=self._ports, java_options=java_options
        )
        self._upstreams: Mapping[int, str] = {
            node: self.cluster.planned_address(node) for node in self._ports
        }
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        # The proxies start first: up to 0.9 a broker connects to itself at its advertised address.
        pairs = [f"{port}={self._upstreams[node]}" for node, port in self._ports.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.tools.bench.delay", *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C doesn't reach it; it ends when its stdin ends
        )
        self._stack.callback(self._end)
        try:
            self.set(0)
            self._stack.enter_context(self.cluster)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def set(self, delay_ms: float) -> None:
        """Delay responses by this time from now on."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{delay_ms / 1000}\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise RuntimeError(f"delaying process failed: exit code {process.wait()}")

    def round_trip_ms(self, topic: str) -> float:
        """Measure a Metadata request about a topic, with the opening of its connection."""
        took = []
        for _ in range(_PROBES):
            begun = time.perf_counter()
            metadata(self._ports[0], [topic])
            took.append((time.perf_counter() - begun) * 1000)
        return statistics.median(took)

    def _end(self) -> None:
        process = self._process
        assert process is not None
        try:
            process.communicate(timeout=_LEAVING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


async def _serve(pairs: list[str]) -> None:
    proxies = []
    for pair in pairs:
        port, _, upstream = pair.partition("=")
        proxies.append(TcpProxy(upstream, port=int(port)))
        await proxies[-1].start()
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        for proxy in proxies:
            proxy.delay(down=float(line))
        print(line.decode().strip(), flush=True)
    for proxy in proxies:
        await proxy.close()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1:]))
