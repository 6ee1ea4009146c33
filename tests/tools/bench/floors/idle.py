"""Hold a producer and a consumer that have nothing to do, beside a bare asyncio protocol.

    python -m tests.tools.bench.floors.idle 127.0.0.1:9092 TOPIC --seconds 20 --group

The topic's partition 0 must exist, its leader must be at the address, and no messages may come. The
client's consumer waits in `getone()`; with `--group` (0.9 or newer) it is the only member of its
group. The floor sends the same long polls, the next one when the response to the last one is
complete, and the same heartbeats (of an unknown member: the broker refuses them), but no commits.
The two take turns.

Prints for each turn: CPU, user and system; how often the event loop slept in its selector and woke;
its iterations, including those that found callbacks waiting; the polls; all per second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import selectors
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.protocol.api import Topic, encode_request
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import HeartbeatRequest

WAIT_MS = 500
"""The default of `fetch_max_wait_ms`."""

HEARTBEAT_S = 3.0
"""The default of `heartbeat_interval_ms`."""

FETCH_BYTES = 1024 * 1024
WARM_UP_S = 2.0
_GROUP = "idle-bench"

Polls = Callable[[], int]


class CountingSelector(selectors.DefaultSelector):
    """The platform's selector, which counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.sleeps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Count the call, and whether it may sleep."""
        self.calls += 1
        self.sleeps += timeout is None or timeout > 0
        return super().select(timeout)


class PollingFloor(asyncio.Protocol):
    """Sends a frame, and again when the response is complete, at least `interval_s` later."""

    def __init__(self, frame: bytes, interval_s: float) -> None:
        self.polls = 0
        self._frame = frame
        self._interval_s = interval_s
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Send the next request, now or by a timer, when the response is complete."""
        self._received += data
        if len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        self._received = b""
        if self._interval_s:
            asyncio.get_running_loop().call_later(self._interval_s, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self.polls += 1
        self._transport.write(self._frame)


@asynccontextmanager
async def _floor(address: str, topic: str, group: bool) -> AsyncIterator[Polls]:
    host, port = address.split(":")
    fetch = FetchRequest(-1, WAIT_MS, 1, [Topic(topic, [FetchPartition(0, 0, FETCH_BYTES)])])
    frames = [(b"".join(encode_request(fetch, 0, 1, "floor")), 0.0)]
    if group:
        heartbeat = HeartbeatRequest(_GROUP, 1, "floor-" + "0" * 36)
        frames.append((b"".join(encode_request(heartbeat, 0, 1, "floor")), HEARTBEAT_S))
    loop = asyncio.get_running_loop()
    connections = [
        await loop.create_connection(
            lambda frame=frame, interval_s=interval_s: PollingFloor(frame, interval_s),  # type: ignore[misc]
            host,
            int(port),
        )
        for frame, interval_s in frames
    ]
    yield lambda: sum(floor.polls for _, floor in connections)
    for transport, _ in connections:
        transport.close()


@asynccontextmanager
async def _client(address: str, topic: str, group: bool) -> AsyncIterator[Polls]:
    async with (
        AIOKafkaProducer(bootstrap_servers=address),
        AIOKafkaConsumer(
            *([topic] if group else []),
            bootstrap_servers=address,
            group_id=_GROUP if group else None,
        ) as consumer,
    ):
        if not group:
            consumer.assign([TopicPartition(topic, 0)])
        reading = asyncio.create_task(consumer.getone())
        yield lambda: int(consumer.metrics()["fetch_requests"])
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


async def _measure(
    name: str,
    selector: CountingSelector,
    idler: AbstractAsyncContextManager[Polls],
    seconds: float,
) -> float:
    """Hold one client idle, print its figures, and return its CPU seconds."""
    async with idler as polls:
        await asyncio.sleep(WARM_UP_S)
        gc.collect()
        begun, sent = time.process_time(), polls()
        sleeps, calls = selector.sleeps, selector.calls
        await asyncio.sleep(seconds)
        cpu, sent = time.process_time() - begun, polls() - sent
        sleeps, calls = selector.sleeps - sleeps, selector.calls - calls
    print(
        f"{name:6} CPU {cpu / seconds * 1e3:.2f} ms, {sleeps / seconds:.2f} wake-ups, "
        f"{calls / seconds:.2f} iterations, {sent / seconds:.2f} requests"
        + (" counted" if name == "floor" else " (polls)")
    )
    return cpu


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.floors.idle")
    parser.add_argument("address", help="the broker that leads the partition")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=20, help="of each turn (default: 20)")
    parser.add_argument("--turns", type=int, default=2, help="of each of the two (default: 2)")
    parser.add_argument("--group", action="store_true", help="with a group (0.9 or newer)")
    options = parser.parse_args()
    total = {"floor": 0.0, "client": 0.0}
    for _ in range(options.turns):
        for name, idler in (("floor", _floor), ("client", _client)):
            selector = CountingSelector()
            with asyncio.Runner(
                loop_factory=lambda selector=selector: asyncio.SelectorEventLoop(selector)  # type: ignore[misc]
            ) as runner:
                idle = idler(options.address, options.topic, options.group)
                total[name] += runner.run(_measure(name, selector, idle, options.seconds))
    print(f"CPU of the client / the floor's: {total['client'] / total['floor']:.2f}")


if __name__ == "__main__":
    main()
