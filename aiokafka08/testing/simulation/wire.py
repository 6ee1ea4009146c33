"""`Wire`: one direction of a simulated connection, which carries data and marks (`Mark`).

Latency and bandwidth of the direction delay data and marks alike.

Invariant: the receiver gets the sent bytes, in their order, or a prefix of them.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from aiokafka08.testing.simulation.links import Links
from aiokafka08.testing.simulation.party import NO_PARTY

_RESOLUTION_S: Final = 1e-9
# A slow reader reads in pieces: each has as many bytes as it reads in this time.
_SLOW_READ_S: Final = 0.1
_HEADER_BYTES: Final = 8  # a cut within the first bytes of a frame is the hardest to survive


class Mark(enum.Enum):
    """The items of a wire besides data."""

    # The client wants a connection, or the server accepts it.
    OPEN = "open"
    FIN = "fin"
    RESET = "reset"


class Wire:
    """See the module.

    Args:
        links: the network's directions.
        number: the number of this wire, for the trace.
        source: the party that sends.
        target: the party that receives.

    Attributes:
        arrived: Called with each piece of data and each mark.
        on_room: Called when the receiver has read, so that more may be sent.
        window_bytes: How much more may be sent.
        is_dead: True if all bytes that are sent from now on vanish.
    """

    # All timers run with `NO_PARTY`, so that data arrives although its sender is paused.
    __slots__ = (
        *("arrived", "links", "is_dead", "number", "on_room", "source", "target"),
        *("window_bytes", "_flying", "_free_at", "_reads_at", "_timer"),
    )

    def __init__(self, links: Links, number: int, source: str, target: str) -> None:
        self.links = links
        self.number = number
        self.source = source
        self.target = target
        self.arrived: Callable[[bytes | Mark], None] = lambda item: None
        self.on_room: Callable[[], None] = lambda: None
        self.window_bytes = links.network(source, target).window_bytes
        self.is_dead = False
        self._flying: deque[tuple[float, bytes | Mark]] = deque()
        self._free_at = self._reads_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def send(self, item: bytes | Mark) -> None:
        """Send data or a mark."""
        if isinstance(item, bytes):
            self.window_bytes -= len(item)
        if self.is_dead:
            return
        links = self.links
        network = links.network(self.source, self.target)
        if network.fragment and isinstance(item, bytes) and len(item) > 1:
            for piece in _fragments(item, links.random):
                self._send(piece, network.latency_ms, network.bytes_per_s)
            return
        self._send(item, network.latency_ms, network.bytes_per_s)

    def _send(
        self, item: bytes | Mark, latency_ms: tuple[float, float], bytes_per_s: float | None
    ) -> None:
        loop = self.links.loop
        arrives_at = loop.time()
        if bytes_per_s is not None:
            size = len(item) if isinstance(item, bytes) else 0
            self._free_at = arrives_at = max(self._free_at, arrives_at) + size / bytes_per_s
        shortest_ms, longest_ms = latency_ms
        latency = shortest_ms + (longest_ms - shortest_ms) * self.links.random.random()
        arrives_at += latency / 1000
        flying = self._flying
        # A later piece never overtakes an earlier one.
        if flying:
            arrives_at = max(arrives_at, flying[-1][0])
        flying.append((arrives_at, item))
        if self._timer is None:
            self._timer = loop.call_at(arrives_at, self._arrive, context=NO_PARTY)

    def _arrive(self) -> None:
        self._timer = None
        links, flying = self.links, self._flying
        if links.is_blocked(self.source, self.target):
            # Kept here, as TCP's sender keeps it, until the block ends.
            links.wait_for_heal(self)
            return
        bytes_per_s = links.reading_rate(self.target)
        if bytes_per_s is not None:
            self._arrive_slowly(bytes_per_s)
            return
        due = links.loop.time() + _RESOLUTION_S
        while flying and flying[0][0] <= due:
            self._deliver(flying.popleft()[1])
        if flying and self._timer is None:
            self._timer = links.loop.call_at(flying[0][0], self._arrive, context=NO_PARTY)

    def _arrive_slowly(self, bytes_per_s: float) -> None:
        """Let one piece of data or one mark arrive, not before the last piece has been read."""
        flying, loop = self._flying, self.links.loop
        now = loop.time()
        if now + _RESOLUTION_S >= self._reads_at:
            at, item = flying.popleft()
            if isinstance(item, bytes):
                count = max(1, int(bytes_per_s * _SLOW_READ_S))
                if len(item) > count:
                    flying.appendleft((at, item[count:]))
                    item = item[:count]
                self._reads_at = now + len(item) / bytes_per_s
            self._deliver(item)
        if flying and self._timer is None:
            reads_at = max(flying[0][0], self._reads_at)
            self._timer = loop.call_at(reads_at, self._arrive, context=NO_PARTY)

    def _deliver(self, item: bytes | Mark) -> None:
        data = item if isinstance(item, bytes) else item.value.encode()
        self.links.trace.segment(self.number, data)
        self.arrived(item)

    def retry(self) -> None:
        """Deliver the data that a block has held back, after the delay of a retransmission."""
        if self._flying and self._timer is None:
            delay_s = self.links.random.uniform(0.01, 0.4)
            self._timer = self.links.loop.call_later(delay_s, self._arrive, context=NO_PARTY)

    def drop(self) -> None:
        """Lose the data in flight, and all data that is sent from now on."""
        self.is_dead = True
        self._flying.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _fragments(data: bytes, random: Random) -> list[bytes]:
    """Cut data at up to three places, often near its beginning."""
    cuts = set()
    for _ in range(random.randrange(4)):
        end = min(_HEADER_BYTES, len(data)) if random.random() < 0.5 else len(data)
        cuts.add(random.randrange(1, end))
    places = [0, *sorted(cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(places)]
