"""The limits of a consumer that no option sets: `ConsumerEngine` takes them.

Invariant: a consumer keeps the limits with which its engine was made.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ConsumerLimits(NamedTuple):
    """Numbers, bytes, and times in seconds."""

    # Consecutive responses with error -1, or with a code that this client doesn't know, until the
    # error is raised: about 17 seconds with the default back-off. A new leader may return -1 for a
    # moment (docs/brokers.md 7.10). Fewer suffice at an offset below a high watermark that the
    # leader has sent.
    max_tries: int = 20

    # A `getmany` that has decompressed this much returns the messages that it has, even if these
    # are fewer than its limit
    call_decompressed_bytes: int = 128 * 1024 * 1024

    # How long the start waits for positions at most: a leader may be away
    start_positions_s: float = 3.0


CONSUMER_LIMITS: Final = ConsumerLimits()
