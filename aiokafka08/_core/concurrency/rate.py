"""`--rate`: how long to wait so that a limit of bytes per second is kept. Pure."""

from __future__ import annotations

import re
from typing import Final

from aiokafka08.errors import IllegalArgumentError

_RATE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kKMG]i?)?B?(?:/s)?")
_FACTORS: Final = {
    "": 1,
    "k": 1000,
    "K": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "ki": 1024,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
}


def parse_rate(text: str) -> float:
    """Return bytes per second of a text such as "20MB/s", "500kB/s", "1.5MiB/s" or "1000000".

    Raises IllegalArgumentError if it isn't a rate, or is 0.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) * _FACTORS[match[2] or ""] if match else 0
    if rate <= 0:
        raise IllegalArgumentError(
            f"--rate={text!r}: expected bytes per second > 0, such as 20MB/s, 500kB/s or 1MiB/s"
        )
    return rate


class RateLimit:
    """Bytes that may be moved by a point in time. Idle time isn't saved up."""

    def __init__(self, bytes_per_s: float, now: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = now

    @property
    def block_bytes(self) -> int:
        """How many bytes to move at a time, so that the flow is even."""
        return max(int(self._bytes_per_s / 10), 1)

    def delay_s(self, size: int, now: float) -> float:
        """Return how many seconds to wait after moving `size` bytes."""
        # After a pause the rate is the same.
        self._free_at = max(self._free_at, now) + size / self._bytes_per_s
        return self._free_at - now
