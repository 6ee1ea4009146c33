"""How long a session of the bridge takes to read its offsets topic, and holds its event loop.

    python -m tests.tools.bench.bridge_offsets --partitions 100 --transactions 3000

The topic gets what so many transactions of each partition write, as fast as a real 4.1.0 takes it.
It is read `--wait` seconds later, when the broker has compacted what it doesn't write to any more.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import confluent_kafka

from aiokafka08._tools.cli.connection import run
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.offset_runs import OffsetRun, RunLog
from aiokafka08.bridge.copy.run_formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.target.own_topics import create_own_topics
from aiokafka08.bridge.target.target_cluster import Target
from tests.brokers import RealCluster
from tests.support.arguments import positive
from tests.tools.bench.loop_hold import Ticker


def fill(config: BridgeConfig, partitions: int, transactions: int) -> int:
    """Write what the transactions write; return how many records."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": config.target.bootstrap,
            "queue.buffering.max.messages": 0,
            "linger.ms": 50,
        }
    )
    logs = [RunLog()] * partitions
    count = 0
    for number in range(transactions):
        for partition in range(partitions):
            added = [OffsetRun(number * 10, number * 11, 10)]
            records, logs[partition] = logs[partition].append(added)
            for one in records:
                key = encode_runs_key(RunsKey("orders", partition, one.source))
                value = None if one.runs is None else encode_runs(one.runs)
                producer.produce(config.offsets_topic, value, key, 0)
            count += len(records)
        producer.poll(0)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records aren't written after 60 s")
    return count


async def measure(config: BridgeConfig, partitions: int, transactions: int, wait_s: float) -> None:
    """Write the topic, wait, read it, and print what that took."""
    target = Target(config)
    try:
        await create_own_topics(config, target, [], BridgeRun())
        count = await asyncio.to_thread(fill, config, partitions, transactions)
        await asyncio.sleep(wait_s)
        there = len(await target.read_topic(config.offsets_topic))
        ticker, began = Ticker(), time.monotonic()
        await ticker.beside(read_stored_runs(config, target, ends_only=True))
        took = time.monotonic() - began
        print(
            f"{count:,} records written, {there:,} left: read in {took:.1f} s, the longest hold "
            f"of the loop took {ticker.cpu_s * 1000:.1f} ms of CPU time"
        )
    finally:
        await target.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tests.tools.bench.bridge_offsets",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--partitions", type=positive, default=100, help="default 100")
    parser.add_argument("--transactions", type=positive, default=3000, help="default 3000")
    parser.add_argument("--wait", type=positive, default=30, help="seconds before the reading (30)")
    options = parser.parse_args()
    with RealCluster("4.1.0", 1) as target:
        config = parse_config(
            f'name="offsets"\n[source]\nbootstrap="localhost:1"\n[topics]\ninclude=["orders"]\n'
            f'[target]\nbootstrap="{target.bootstrap_servers}"\n'
        )
        run(measure(config, options.partitions, options.transactions, options.wait))


if __name__ == "__main__":
    main()
