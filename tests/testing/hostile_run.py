"""The embedded cluster and the gateway as processes that `hostile_peers` attack; a good client.

The test of hostile peers and `tests.tools.bench.hostile` use it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from tests.brokers.waiting import wait_for
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.environments import as_users
from tests.support.paths import ROOT
from tests.testing.hostile_peers import FULL_TOPIC

PING_PAUSE_S = 0.02


@dataclass
class AttackedProcess:
    """A server's process, with its log in a file, whose first lines end with addresses."""

    process: subprocess.Popen[bytes]
    log: Path
    lines: int

    @property
    def address(self) -> tuple[str, int]:
        """The address that is attacked."""
        return self._address(0)

    @property
    def good_address(self) -> tuple[str, int]:
        """The address for a good client; it may be the same."""
        return self._address(self.lines - 1)

    def _address(self, line: int) -> tuple[str, int]:
        host, _, port = self.log.read_text().splitlines()[line].split()[-1].rpartition(":")
        return host, int(port)

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """Return the resident size now, or with "VmHWM" the largest one so far. Linux only."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition(f"{field}:")[2].split()[0])


@contextmanager
def cluster_process(*options: str, directory: Path = ROOT) -> Iterator[AttackedProcess]:
    """Run a cluster of the checkout in `directory`, with 16 MiB in the topic `FULL_TOPIC`."""
    command = ["aiokafka08.testing", "--port=0", f"--topic={FULL_TOPIC}", *options]
    with _process(command, directory) as cluster:
        _fill(cluster.address)
        yield cluster


@contextmanager
def gateway_process(*options: str, directory: Path = ROOT) -> Iterator[AttackedProcess]:
    """Run a gateway of the checkout in `directory`, to a target that has 16 MiB in `FULL_TOPIC`."""
    with _process(["tests.testing.attacked_gateway", *options], directory, lines=2) as gateway:
        yield gateway


SERVERS: Mapping[str, Callable[..., AbstractContextManager[AttackedProcess]]] = {
    "cluster": cluster_process,
    "gateway": gateway_process,
    "relay": partial(gateway_process, "--relay"),
}
"""What runs a server in a process. They take `--quiet`."""


@contextmanager
def _process(command: Sequence[str], directory: Path, lines: int = 1) -> Iterator[AttackedProcess]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                cwd=directory,
                env=as_users(PYTHONPATH=str(directory)),
            )
        try:
            wait_for(lambda: log.read_bytes().count(b"\n") >= lines, 60, "the server has started")
            yield AttackedProcess(process, log, lines)
        finally:
            process.kill()
            process.wait()


def _fill(address: tuple[str, int]) -> None:
    message_set = encode_entry(0, None, bytes(500_000)) * 2
    produced = [Topic(FULL_TOPIC, [ProducePartition(0, message_set)])]
    with WireClient(address) as wire:
        wire.request(MetadataRequest([FULL_TOPIC]))
        for _ in range(16):
            response = wire.request(ProduceRequest(1, 1000, produced))
            assert response.topics[0].partitions[0].error_code == 0


@contextmanager
def attacked(
    address: tuple[str, int], connections: int, attacks: Sequence[str] = ()
) -> Iterator[None]:
    """Attack the cluster during the block, with all attacks if none is named."""
    command = [sys.executable, "-m", "tests.testing.hostile_peers", f"{address[0]}:{address[1]}"]
    command += ["--connections", str(connections)]
    process = subprocess.Popen(
        [*command, *(["--attacks", *attacks] if attacks else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=as_users(PYTHONPATH=str(ROOT)),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"attacking\n"
        yield
    finally:
        process.kill()
        process.communicate()


def ping(address: tuple[str, int], enough: Callable[[], bool], timeout_s: float) -> list[float]:
    """Send small requests on one connection; return the seconds that each has taken, in order.

    Args:
        enough: returns True when it is time to stop.
        timeout_s: how long each response may take.

    Raises:
        AssertionError, OSError: the connection was closed, or a response didn't come in time.
    """
    times = []
    with WireClient(address, timeout_s) as wire:
        while not enough():
            began = time.perf_counter()
            wire.request(ListOffsetsRequest(-1, []))
            times.append(time.perf_counter() - began)
            time.sleep(PING_PAUSE_S)
    return times
