"""How long the bridge holds its event loop while it copies a full topic as fast as it can.

    python -m tests.tools.bench.bridge_hold --messages 1000000 --size 100 --rounds 3

The bridge runs in this process, beside the ticker of `tests.tools.bench.loop_hold`: a hold is the
time between two steps of the ticker. It includes waiting for the GIL, which the sink's thread
takes, and for a processor if the machine is busy; *cpu* is the longest one in CPU time of the
loop's thread. The start of the bridge, up to its first record, counts as well. The exit code is 1
if *cpu* is above 20 ms in a round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time

from aiokafka08._tools.cli.connection import run
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from tests.support.arguments import positive
from tests.tools.bench.bridge import TOPIC, bridge_text, clusters, fill
from tests.tools.bench.loop_hold import HOLD_S, Ticker

LIMIT_S = 0.02


async def measure(text: str, messages: int) -> tuple[str, float]:
    """Copy the topic; return a row of the table, and the longest hold in seconds of CPU time.

    Raises:
        RuntimeError: another number of messages was copied.
    """
    ticker, status = Ticker(), CopyStatus()
    began = time.monotonic()
    await ticker.beside(run_bridge(parse_config(text), status, until_caught_up=True))
    took = time.monotonic() - began
    if status.records != messages:
        raise RuntimeError(f"{status.records} messages copied; expected {messages}")
    above = sum(one > LIMIT_S for one in ticker.holds)
    row = (
        f"| {messages / took:,.0f} | {ticker.late_s * 1000:.1f} | {ticker.cpu_s * 1000:.1f} "
        f"| {len(ticker.holds)} | {above} | {os.getloadavg()[0]:.1f} |"
    )
    return row, ticker.cpu_s


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tests.tools.bench.bridge_hold",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=positive, default=1_000_000, help="default 1000000")
    parser.add_argument("--size", type=positive, default=100, help="bytes of a value (100)")
    parser.add_argument("--partitions", type=positive, default=4, help="default 4")
    parser.add_argument("--rounds", type=positive, default=3, help="default 3")
    parser.add_argument("--source", default="0.10.2.2", help="version (default 0.10.2.2)")
    options = parser.parse_args()
    with clusters(options.source) as (source, target, _):
        messages = asyncio.run(
            fill(source, TOPIC, options.messages, options.size, options.partitions)
        )
        print(
            f"{messages:,} messages of {options.size} B, {options.partitions} partitions, "
            f"{options.source} to 4.1.0\n\n| messages/s | longest hold, ms | cpu, ms "
            f"| above {HOLD_S * 1000:.0f} ms | above {LIMIT_S * 1000:.0f} ms | load |\n"
            "|---:|---:|---:|---:|---:|---:|",
            flush=True,
        )
        longest = 0.0
        for number in range(options.rounds):
            text = bridge_text(source, target, f"hold-{number}")
            row, cpu_s = run(measure(text, messages))
            print(row, flush=True)
            longest = max(longest, cpu_s)
    return 1 if longest > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
