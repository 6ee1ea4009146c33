"""`Network`: how the connections of a simulation behave while nothing is broken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Network:
    """The network between two parties, in each direction.

    Args:
        latency_ms: the shortest and the longest time from sending to arrival; each piece of data
            draws its own, but never overtakes an earlier one of its connection. Pieces that arrive
            at once are read at once.
        bytes_per_s: the bandwidth of one connection in one direction; None: unlimited.
        fragment: whether what is written at once arrives in pieces, cut at any byte.
        window_bytes: how much a connection takes in one direction that the receiver hasn't read,
            like the socket buffers of both sides.

    Raises:
        ValueError: an option is impossible; the text names it.
    """

    latency_ms: tuple[float, float] = (0.5, 2.0)
    bytes_per_s: float | None = None
    fragment: bool = False
    window_bytes: int = 256 << 10

    def __post_init__(self) -> None:
        shortest, longest = self.latency_ms
        if not 0 <= shortest <= longest:
            raise ValueError(
                f"latency_ms={self.latency_ms!r}: expected two numbers >= 0, the shorter one first"
            )
        if self.bytes_per_s is not None and not self.bytes_per_s > 0:
            raise ValueError(f"bytes_per_s={self.bytes_per_s!r}: expected None or a number > 0")
        if not self.window_bytes > 0:
            raise ValueError(f"window_bytes={self.window_bytes!r}: expected an integer > 0")
