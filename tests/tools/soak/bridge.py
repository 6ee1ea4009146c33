"""`python -m tests.tools.soak bridge --minutes 60`: a bridge under load, with faults on both sides.

A bridge copies from a real 0.8.2.2 (two brokers) to a real 4.1.0 in this process, while a producer
writes 500 messages a second. In turn a leader of the source is killed, the target's broker is
killed, and the target hangs; each comes back after a while. Prints a line a minute, and in the end
the trend of each gauge. In the end the target has the source's messages: none lost, none twice, in
the same order and partition; anything else is an error. Exit code 0, or 1 if a gauge grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Sequence

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from tests.bridge.clusters import TargetReader, bridge_config
from tests.brokers.cluster import RealCluster
from tests.support.arguments import positive_number
from tests.tools.bridge_rounds import PARTITIONS, Load, difference, kill_leader, read_source
from tests.tools.soak import gauges
from tests.tools.soak.sampling import report, sample

SOURCE, TARGET = "0.8.2.2", "4.1.0"
_TOPIC = "soak"
_PER_SECOND = 500.0
_DOWN_S = 8.0
_DRAIN_S = 300.0
_MORE = """\
[copy]
transaction_s = 0.5
[target.properties]
"socket.timeout.ms" = 10000
"transaction.timeout.ms" = 15000
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="nox -s soak -- bridge", description=__doc__)
    parser.add_argument("--minutes", type=positive_number, default=10.0)
    parser.add_argument("--fault-every", type=positive_number, default=60.0, metavar="SECONDS")
    parser.add_argument("--sample-every", type=positive_number, default=5.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # each fault logs
    found = asyncio.run(
        soak_bridge(60 * options.minutes, options.fault_every, options.sample_every)
    )
    return report(found)


async def soak_bridge(
    seconds: float, fault_every_s: float, sample_every_s: float
) -> gauges.Gauges[gauges.Sample]:
    """Run the bridge and its load, with faults; return the samples.

    Raises:
        AssertionError: the target differs from the source.
    """
    found = gauges.Gauges[gauges.Sample]()
    async with contextlib.AsyncExitStack() as stack:
        source, target = RealCluster(SOURCE, 2), RealCluster(TARGET)
        for cluster in (source, target):
            stack.push_async_callback(asyncio.to_thread, cluster.close)
            await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(source.create_topic, _TOPIC, PARTITIONS, 2)
        config = bridge_config(_TOPIC, source, target, _TOPIC, _MORE)
        status, load, faults = CopyStatus(), Load(source, _TOPIC, _PER_SECOND), Faults()
        tasks = [
            asyncio.create_task(run_bridge(config, status), name="the bridge"),
            asyncio.create_task(load.run(), name="the producer"),
            asyncio.create_task(faults.play(source, target, fault_every_s), name="the faults"),
        ]
        copying, writing, failing = tasks

        def describe() -> str:
            return (
                f"{load.sent} sent, {status.records} copied in {status.transactions} transactions, "
                f"{status.aborts} aborts, {status.sessions} sessions, lag {status.lag()}; {faults}"
            )

        try:
            await sample(found, tasks, seconds, sample_every_s, describe, gauges.read)
            faults.stop()
            load.stop()
            async with asyncio.timeout(_DRAIN_S):
                await asyncio.gather(failing, writing)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert copying.cancelled(), copying.exception()
        print(await _compare(config, source, target), describe(), sep="; ", flush=True)
    return found


async def _compare(config: BridgeConfig, source: RealCluster, target: RealCluster) -> str:
    """Copy the rest, and compare what readers of both sides see."""
    async with asyncio.timeout(_DRAIN_S):
        await run_bridge(config, CopyStatus(), until_caught_up=True)
    reader = TargetReader(target)
    try:
        copied = await asyncio.to_thread(reader.messages, _TOPIC)
    finally:
        reader.close()
    wanted = await read_source(source, _TOPIC)
    different = difference(wanted, copied)
    assert different is None, different
    return f"{sum(map(len, wanted.values()))} messages, equal"


class Faults:
    """What has failed so far, and the next fault."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("source", "target", "hang"), 0)
        self._chance = random.Random(1)
        self._stop = asyncio.Event()

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in self._counts.items())

    def stop(self) -> None:
        """Let `play` end, once everything that it has stopped runs again."""
        self._stop.set()

    async def play(self, source: RealCluster, target: RealCluster, every_s: float) -> None:
        """Let something fail from time to time, until stopped."""
        for kind in itertools.cycle(self._counts):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), every_s)
            if self._stop.is_set():
                return
            self._counts[kind] += 1
            if kind == "source":
                node = await asyncio.to_thread(kill_leader, source, _TOPIC, self._chance)
                await asyncio.sleep(_DOWN_S)
                await asyncio.to_thread(source.restart, node)
                continue
            (node,) = target.nodes
            if kind == "target":
                await asyncio.to_thread(target.kill, node)
                await asyncio.sleep(_DOWN_S)
                await asyncio.to_thread(target.restart, node)
            else:
                await asyncio.to_thread(target.pause, node)
                await asyncio.sleep(2 * _DOWN_S)
                await asyncio.to_thread(target.resume, node)
