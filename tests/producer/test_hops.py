"""The number of files that a message passes through on the slow path of `send()`.

Counted are the producer's own files and those of `concurrency`, from the call of `send()` until the
request is handed to the connection, and from the response to the acknowledgement. The topic isn't
known yet. Not counted are the rooms below the producer (`net`, `telemetry`, `protocol`), which work
for the consumer in the same way, nor the embedded cluster. docs/design.md describes the steps.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from aiokafka08 import AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster
from tests.support.paths import ROOT
from tests.tools.profiling import entered_files

MAX_FILES = 12
COUNTED = ("producer/", "concurrency/")


async def slow_send() -> list[str]:
    """Return the counted files, in the order in which the message enters them."""
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        with entered_files() as files:
            await (await producer.send("t", b"value"))
        return [file for file in files if file.startswith(COUNTED)]


def test_a_slow_path_send_enters_at_most_12_files() -> None:
    # In a process of its own: the pure twin is chosen at import, and its calls can be profiled.
    result = subprocess.run(
        [sys.executable, "-m", "tests.producer.test_hops"],
        env={**os.environ, "AIOKAFKA08_IMPL": "python"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    files = json.loads(result.stdout)
    assert files[0] == "producer/producer.py"
    assert {"producer/intake.py", "producer/sender.py", "producer/sink.py"} <= set(files)
    assert len(files) <= MAX_FILES, files


if __name__ == "__main__":
    print(json.dumps(asyncio.run(slow_send())))
