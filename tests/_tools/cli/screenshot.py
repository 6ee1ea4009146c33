"""Draw docs/cli.svg, the picture in docs/cli.md: `python -m tests._tools.cli.screenshot`.

It runs commands on an embedded cluster at port 9092, as on a terminal, and lets rich draw what they
print.
"""

from __future__ import annotations

import asyncio
import io
import os
import pty
import shlex
import subprocess
import sys

from rich.console import Console
from rich.text import Text

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.support.paths import ROOT

PICTURE = ROOT / "docs/cli.svg"
COLUMNS = 92
COMMANDS = (
    "aiokafka08 metadata orders -b localhost",
    "aiokafka08 group lag billing -b localhost",
)


async def fill(servers: str) -> None:
    """Write messages, and commit the offsets of a group that is some messages behind."""
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for partition in range(3):
            await (await producer.send_many("orders", [b"tea"] * 1200, partition=partition))
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="billing") as consumer:
        partitions = [TopicPartition("orders", number) for number in range(3)]
        consumer.assign(partitions)
        await consumer.commit(dict(zip(partitions, (1200, 1187, 940), strict=True)))


def run(command: str) -> str:
    """Run a command on a terminal and return what it prints on stdout."""
    arguments = shlex.split(command)[1:]
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aiokafka08", *arguments],
        stdout=terminal,
        env={**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"},
    )
    os.close(terminal)
    parts = []
    try:
        while part := os.read(reader, 65536):
            parts.append(part)
    except OSError:  # the process has closed its end
        pass
    os.close(reader)
    assert process.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def main() -> None:
    """Draw the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with EmbeddedCluster(3, "0.8.2", {"orders": 3}, port=9092) as cluster:
        asyncio.run(fill(cluster.bootstrap_servers))
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(run(command)))
    console.save_svg(str(PICTURE), title="aiokafka08")


if __name__ == "__main__":
    main()
