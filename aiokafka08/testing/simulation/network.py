"""`Network`: how the connections of a simulation behave without faults."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aiokafka08.testing.options import check_integer, invalid


@dataclass(frozen=True, slots=True)
class Network:
    """The network between two parties, in each direction.

    Args:
        latency_ms: the shortest and the longest time from sending to arrival; each piece of data
            draws its own latency, but never overtakes an earlier piece of its connection. Pieces
            that arrive at once are read at once.
        bytes_per_s: the bandwidth of one connection in one direction; None: unlimited.
        fragment: whether data that is written at once arrives in pieces, cut at any byte.
        window_bytes: how many unread bytes a connection takes in one direction, like the socket
            buffers of both sides.

    Raises:
        ValueError: an option is impossible; the text names it.
    """

    latency_ms: tuple[float, float] = (0.5, 2.0)
    bytes_per_s: float | None = None
    fragment: bool = False
    window_bytes: int = 256 << 10

    def __post_init__(self) -> None:
        latency_ms: object = self.latency_ms
        if (
            not isinstance(latency_ms, tuple | list)
            or len(latency_ms) != 2
            or not all(map(_is_number, latency_ms))
            or not 0 <= latency_ms[0] <= latency_ms[1] < math.inf
        ):
            text = "two finite numbers >= 0, the shorter time first, such as (1, 30)"
            raise invalid("latency_ms", latency_ms, text)
        bytes_per_s: object = self.bytes_per_s
        if bytes_per_s is not None and not (_is_number(bytes_per_s) and self.bytes_per_s > 0):  # type: ignore[operator]
            raise invalid("bytes_per_s", bytes_per_s, "None or a number > 0")
        fragment: object = self.fragment
        if not isinstance(fragment, bool):
            raise invalid("fragment", fragment, "True or False")
        check_integer("window_bytes", self.window_bytes, 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
