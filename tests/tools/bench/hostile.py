"""Measure a server under attack: its memory, and the ping of a good client.

`python -m tests.tools.bench.hostile` runs an embedded cluster in a process of its own, or a gateway
with `--server gateway`, lets `tests.testing.hostile_peers` attack it, and prints a row for no
attack, for each attack alone, and for all of them. docs/how_it_is_tested.md quotes rows of it.
`--before DIR` measures another checkout. `--server relay` measures a floor for the gateway: a plain
relay to the same target.

- *RSS*: the largest resident size of the server's process (the cluster: with 16 MiB in its log).
- *ping*: a request of 27 bytes without topics, on a connection of its own, every 20 ms.
- *beside*: the 99th percentile of the same pings, at the same time, to a second server without
  attackers. It is the machine's share: the attackers and the attacked one take its processors.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.paths import ROOT
from tests.testing.hostile_peers import ATTACKS
from tests.testing.hostile_run import SERVERS, attacked, ping

NONE, ALL = "none", "all"


def measure(
    server: str, directory: Path, attacks: Sequence[str], connections: int, seconds: float
) -> str:
    """Return the figures of one row."""
    with (
        SERVERS[server]("--quiet", directory=directory) as cluster,
        SERVERS[server]("--quiet", directory=directory) as idle,
        ThreadPoolExecutor(1) as pool,
    ):
        ended = ""
        times: list[float] = []
        with attacked(cluster.address, connections if attacks else 0, attacks):
            ends = time.monotonic() + seconds

            def enough() -> bool:
                return time.monotonic() > ends

            beside = pool.submit(ping, idle.good_address, enough, timeout_s=30)
            try:
                times = ping(cluster.good_address, enough, timeout_s=30)
            except (AssertionError, OSError, EOFError) as error:
                ended = f"ping failed: {type(error).__name__} {error}"
        code = cluster.process.poll()
        if code is not None:
            return f"the server ended with exit code {code}"
        memory = f"{cluster.memory_bytes('VmHWM') >> 20:6d} MiB"
        if len(times) < 2:
            return f"{memory}  {ended}"
        at = statistics.quantiles(times, n=100)
        machine = statistics.quantiles(beside.result(), n=100)
        return (
            f"{memory} {len(times):6d} {1000 * at[49]:9.1f} {1000 * at[98]:9.1f}"
            f" {1000 * max(times):9.1f} {1000 * machine[98]:9.1f}  {ended}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", choices=SERVERS, default="cluster")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--attacks", nargs="+", choices=[NONE, *ATTACKS, ALL])
    parser.add_argument("--before", type=Path, default=ROOT, metavar="DIR")
    options = parser.parse_args()
    head = ("RSS", 10), ("pings", 6), ("p50 ms", 9), ("p99 ms", 9), ("max", 9), ("beside", 9)
    print(f"{'attack':24s} {' '.join(f'{name:>{width}s}' for name, width in head)}")
    for name in options.attacks or [NONE, *ATTACKS, ALL]:
        attacks = {NONE: [], ALL: list(ATTACKS)}.get(name, [name])
        figures = measure(
            options.server, options.before, attacks, options.connections, options.seconds
        )
        print(f"{name:24s} {figures}", flush=True)


if __name__ == "__main__":
    main()
