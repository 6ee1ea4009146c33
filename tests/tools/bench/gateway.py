"""Measure the gateway in front of a target that costs little, beside a plain relay of asyncio.

    python -m tests.tools.bench.gateway
    python -m tests.tools.bench.gateway --real 3.9.1 --only latency

- *bulk*: requests of 1,000 messages of 100 bytes, by codec and direction. CPU of the process in
  between, in µs a message; the rate is that of one core.
- *partitions*, *brokers*: the same messages over more partitions, and a target of more brokers.
- *latency*: one message at a time, and requests that pass. Medians in ms: to the target itself,
  by the relay, and by the gateway. With `--real` the target is a broker of this release.
- *idle*: resident memory that idle connections add.
- *workers*: what several connections get through one process, and through two.

The client is a socket in this process. Rounds are interleaved, so that other work on the machine
meets all alike; the table has the best round by CPU time, and medians of all requests.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08.protocol.api import Request, Topic, encode_request
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from tests._tools.gateway.processes import Gateways
from tests.brokers.cluster import RealCluster
from tests.tools.bench.embedded import frame as read_frame
from tests.tools.bench.gateway_stub import HOST, TOPIC, batch, contents_of, message_set, stub
from tests.tools.bench.run import OPTIMISED

IN_FLIGHT = 4
LOADED = 32
"""How many connections 'workers' uses: each belongs to one process, by chance."""
GOALS = {"none": "0.5", "snappy": "0.9", "lz4": "0.9", "gzip": "as zlib"}


class Between:
    """A process between this one and the target."""

    def __init__(self, name: str, pid: int, port: int) -> None:
        self.name = name
        self.port = port
        self._pid = pid

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has used; on Linux only."""
        return time.clock_gettime(~self._pid << 3 | 2)

    def memory_bytes(self) -> int:
        """Return its resident size; on Linux only."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])


@contextmanager
def both(target: str) -> Iterator[list[Between]]:
    """Run a relay and a gateway to a target."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokafka08-bench-")))
        gateways = stack.enter_context(closing(Gateways(target, folder, 1)))
        gateways.start(0)
        pid, port = stack.enter_context(stub("relay", target.rpartition(":")[2]))
        yield [Between("relay", pid, port), Between("gateway", gateways.pid(0), gateways.ports[0])]


def encoded(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "bench"))


def produce_frame(codec: Codec, partitions: int, messages: int, size: int) -> bytes:
    data = message_set(codec, contents_of(messages // partitions, size))
    parts = [ProducePartition(number, data) for number in range(partitions)]
    return encoded(ProduceRequest(1, 30_000, [Topic(TOPIC.decode(), parts)]), 2)


def fetch_frame(partitions: int) -> bytes:
    parts = [FetchPartition(number, 0, 1 << 24) for number in range(partitions)]
    return encoded(FetchRequest(-1, 100, 1, [Topic(TOPIC.decode(), parts)]), 2)


def passed_produce() -> bytes:
    """Return a request of 64 KiB that every target takes."""
    data = batch(Codec.NONE, contents_of(1, 64 << 10))
    body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(TOPIC)) + TOPIC
    body += struct.pack(">iii", 1, 0, len(data)) + data
    frame = struct.pack(">hhih", 0, 7, 1, -1) + body
    return len(frame).to_bytes(4, "big") + frame


def passed_frame() -> bytes:
    asked = ListOffsetsRequest(-1, [Topic(TOPIC.decode(), [ListOffsetsPartition(0, LATEST)])])
    return encoded(asked, 1)


def drive(port: int, request: bytes, count: int) -> None:
    """Send a request again and again, some of them in flight."""
    with socket.create_connection((HOST, port), timeout=60) as peer:
        for number in range(count):
            peer.sendall(request)
            if number >= IN_FLIGHT:
                read_frame(peer)
        for _ in range(min(IN_FLIGHT, count)):
            read_frame(peer)


def bulk_row(
    options: argparse.Namespace, codec: str, what: str, partitions: int = 1, brokers: int = 1
) -> str:
    """Return CPU µs a message, by relay and gateway."""
    arguments = ["--codec", codec, "--partitions", str(partitions), "--brokers", str(brokers)]
    arguments += ["--messages", str(options.messages), "--bytes", str(options.bytes)]
    with stub("target", *arguments) as (_, port), both(f"{HOST}:{port}") as peers:
        request = fetch_frame(partitions)
        if what == "produce":
            name = Codec[codec.upper()]
            request = produce_frame(name, partitions, options.messages, options.bytes)
        spent: dict[str, list[float]] = {one.name: [] for one in peers}
        for _ in range(options.rounds):
            for one in peers:
                begin = one.cpu_s()
                drive(one.port, request, options.requests)
                spent[one.name].append(one.cpu_s() - begin)
    per_message = [1e6 * min(spent[name]) / options.requests / options.messages for name in spent]
    cells = " | ".join(f"{one:.3f}" for one in per_message)
    return f"{cells} | {1 / per_message[-1]:.2f}"


def latencies(ports: dict[str, int], request: bytes, rounds: int, count: int) -> dict[str, float]:
    """Return the median of each in ms; the rounds are interleaved."""
    times: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            with socket.create_connection((HOST, port), timeout=60) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(count):
                    begin = time.perf_counter()
                    peer.sendall(request)
                    read_frame(peer)
                    times[name].append(time.perf_counter() - begin)
    return {name: 1000 * statistics.median(all_times) for name, all_times in times.items()}


@contextmanager
def latency_target(release: str | None) -> Iterator[int]:
    """Run a target with the topic; yield its port."""
    if release is None:
        with stub("target", "--messages", "1") as (_, port):
            yield port
        return
    with RealCluster(release, java_options=OPTIMISED) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        name = TOPIC.decode()
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        yield cluster.port(0)


def latency_rows(options: argparse.Namespace) -> Iterator[str]:
    with (
        latency_target(options.real) as port,
        both(f"{HOST}:{port}") as peers,
    ):
        ports = {"target": port, **{one.name: one.port for one in peers}}
        requests = {
            "one message, acks 1 (goal: + 0.10)": produce_frame(Codec.NONE, 1, 1, options.bytes),
            "passed, ListOffsets 1 (goal: + 0.05)": passed_frame(),
            "passed, Produce 7 of 64 KiB": passed_produce(),
        }
        for name, request in requests.items():
            found = latencies(ports, request, options.rounds, options.requests)
            cells = " | ".join(f"{one:.3f}" for one in found.values())
            yield f"| {name} | {cells} | {found['gateway'] - found['target']:+.3f} |"


def idle_row(options: argparse.Namespace) -> str:
    """Return MiB that idle connections add, each of which has sent a request."""
    with (
        stub("target") as (_, port),
        both(f"{HOST}:{port}") as peers,
        ExitStack() as stack,
    ):
        cells = []
        for one in peers:
            drive(one.port, passed_frame(), 10)
            before = one.memory_bytes()
            for _ in range(options.connections):
                peer = stack.enter_context(socket.create_connection((HOST, one.port), timeout=60))
                peer.sendall(passed_frame())
                read_frame(peer)
            cells.append(f"{(one.memory_bytes() - before) / (1 << 20):.1f}")
    return " | ".join(cells)


def rate(port: int, request: bytes, count: int) -> float:
    """Return how many of these requests a second `LOADED` connections get answered."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(LOADED) as threads:
        for done in [threads.submit(drive, port, request, count // LOADED) for _ in range(LOADED)]:
            done.result()
    return count // LOADED * LOADED / (time.perf_counter() - begin)


def workers_row(options: argparse.Namespace, what: str) -> str:
    """Return the best rate in thousands of messages a second, with one process and with two."""
    arguments = ["--codec", "gzip", "--messages", str(options.messages)]
    with ExitStack() as stack:
        _, port = stack.enter_context(stub("target", *arguments, "--bytes", str(options.bytes)))
        best = dict.fromkeys((1, 2), 0.0)
        ports = {}
        for count in best:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokafka08-")))
            more = ("--workers", str(count))
            gateways = stack.enter_context(closing(Gateways(f"{HOST}:{port}", folder, 1, *more)))
            gateways.start(0)
            ports[count] = gateways.ports[0]
        request = fetch_frame(1)
        if what == "produce":
            request = produce_frame(Codec.GZIP, 1, options.messages, options.bytes)
        for _ in range(options.rounds):
            for count in best:
                found = rate(ports[count], request, options.requests) * options.messages / 1000
                best[count] = max(best[count], found)
    return f"{best[1]:.0f} | {best[2]:.0f} | {best[2] / best[1]:.2f}"


BULK_HEAD = "| | relay, µs | gateway, µs | M/s of one core |\n|---|---:|---:|---:|"


def bulk(options: argparse.Namespace) -> Iterator[str]:
    yield BULK_HEAD
    for codec, goal in GOALS.items():
        for what in ("produce", "fetch"):
            yield f"| {what}, {codec} (goal: {goal}) | {bulk_row(options, codec, what)} |"


def partitions(options: argparse.Namespace) -> Iterator[str]:
    yield BULK_HEAD
    for count in (1, 10, 100):
        for what in ("produce", "fetch"):
            yield f"| {what}, {count} partitions | {bulk_row(options, 'none', what, count)} |"


def brokers(options: argparse.Namespace) -> Iterator[str]:
    yield BULK_HEAD
    for count in (1, 3, 30):
        row = bulk_row(options, "none", "produce", brokers=count)
        yield f"| produce, {count} brokers | {row} |"


def latency(options: argparse.Namespace) -> Iterator[str]:
    yield "| ms, median | target | relay | gateway | difference |\n|---|---:|---:|---:|---:|"
    yield from latency_rows(options)


def idle(options: argparse.Namespace) -> Iterator[str]:
    yield "| MiB added | relay | gateway |\n|---|---:|---:|"
    yield f"| {options.connections} idle connections (goal: 40) | {idle_row(options)} |"


def workers(options: argparse.Namespace) -> Iterator[str]:
    yield "| 1,000 messages/s | 1 worker | 2 workers | ratio |\n|---|---:|---:|---:|"
    for what in ("produce", "fetch"):
        yield f"| {what}, gzip, {LOADED} connections | {workers_row(options, what)} |"


def main() -> None:
    """Run the command."""
    tables: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
        "bulk": bulk,
        "partitions": partitions,
        "brokers": brokers,
        "latency": latency,
        "idle": idle,
        "workers": workers,
    }
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.gateway")
    parser.add_argument("--only", choices=tables, action="append", help="may be repeated")
    parser.add_argument("--real", metavar="RELEASE", help="the target of 'latency', such as 3.9.1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000, help="of a row, in each round")
    parser.add_argument("--messages", type=int, default=1000, help="of a request")
    parser.add_argument("--bytes", type=int, default=100, help="size of a value")
    parser.add_argument("--connections", type=int, default=1000, help="of 'idle'")
    options = parser.parse_args()
    for name in options.only or tables:
        print(f"\n{name}\n")
        for line in tables[name](options):
            print(line, flush=True)


if __name__ == "__main__":
    main()
