"""Run the embedded cluster as a process, and measure it with plain messages of 1 KiB.

`growth` runs it for 10,000 partitions. `python -m tests.tools.bench.embedded` measures it: the
client is a socket in this process and decodes nothing; the cluster is `python -m
aiokafka08.testing` in another process. So the figures are the cluster's, and
docs/how_it_is_tested.md quotes them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiokafka08.protocol.api import Topic, decode_response, encode_request
from aiokafka08.protocol.message_set import MessageSetBuilder, summarize_set
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest, ProduceResponse
from aiokafka08.protocol.types import Buffer

MESSAGE_BYTES = 1024
SET_MESSAGES = 900
FETCH_BYTES = 1 << 20


@contextmanager
def embedded_cluster(topics: Mapping[str, int], *options: str) -> Iterator[str]:
    """Run `python -m aiokafka08.testing` with these topics and partitions; yield its address."""
    named = [f"--topic={topic}:{partitions}" for topic, partitions in topics.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "aiokafka08.testing", "--port=0", "--quiet", *options, *named],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C doesn't reach it; it ends with this block
    )
    assert process.stderr is not None
    try:
        started = process.stderr.readline()
        if not started:
            raise RuntimeError(f"embedded cluster failed: exit code {process.wait()}")
        yield started.split()[-1]
    finally:
        process.terminate()
        process.communicate()


def exactly(peer: socket.socket, count: int) -> memoryview:
    view = memoryview(bytearray(count))
    filled = 0
    while filled < count:
        got = peer.recv_into(view[filled:])
        assert got, "closed"
        filled += got
    return view


def frame(peer: socket.socket) -> memoryview:
    return exactly(peer, int.from_bytes(exactly(peer, 4), "big"))


def measure(port: int, total_bytes: int, in_flight: int = 4) -> tuple[float, float]:
    """Return MB/s written and read."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=30)
    for _ in range(2):
        peer.sendall(b"".join(encode_request(MetadataRequest(["speed"]), 0, 1, "speed")))
        frame(peer)
    builder = MessageSetBuilder(0)
    value = bytes(MESSAGE_BYTES)
    for _ in range(SET_MESSAGES):
        builder.append(None, value, -1)
    message_set = builder.build()
    request = b"".join(
        encode_request(
            ProduceRequest(1, 30000, [Topic("speed", [ProducePartition(0, message_set)])]),
            0,
            2,
            "speed",
        )
    )
    count = total_bytes // len(message_set)
    started = time.perf_counter()
    for number in range(count):
        peer.sendall(request)
        if number >= in_flight:
            frame(peer)
    for _ in range(min(in_flight, count)):
        response = frame(peer)
    produced = time.perf_counter() - started
    done = decode_response(ProduceRequest, 0, response)
    assert isinstance(done, ProduceResponse)
    assert done.topics[0].partitions[0].error_code == 0
    offset, taken = 0, 0
    end = count * SET_MESSAGES
    started = time.perf_counter()
    while offset < end:
        request_body = FetchRequest(
            -1, 1000, 1, [Topic("speed", [FetchPartition(0, offset, FETCH_BYTES)])]
        )
        peer.sendall(b"".join(encode_request(request_body, 0, 3, "speed")))
        fetched = decode_response(FetchRequest, 0, frame(peer))
        assert isinstance(fetched, FetchResponse)
        data: Buffer = fetched.topics[0].partitions[0].message_set
        found = summarize_set(data)
        assert found.next_offset is not None
        offset, taken = found.next_offset, taken + found.whole_bytes
    consumed = time.perf_counter() - started
    peer.close()
    return count * len(message_set) / produced / 1e6, taken / consumed / 1e6


def main() -> None:
    with embedded_cluster({}) as address:
        for total_bytes in (50 << 20, 500 << 20):
            into, out = measure(int(address.rpartition(":")[2]), total_bytes)
            print(f"{total_bytes >> 20} MiB: in {into:.0f} MB/s, out {out:.0f} MB/s")


if __name__ == "__main__":
    main()
