"""The limits of the network layer that no option sets: `NetConfig.limits` has them.

Invariant: a client keeps the limits with which its `NetConfig` was made.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class NetLimits(NamedTuple):
    """Times in seconds."""

    # How long to wait for one broker's response to a request that any broker can process: then a
    # connection that was open gets a new one, and a write goes to the next broker too
    attempt_s: float = 5.0

    # How long after its expected time a response is overdue; also the interval in which the
    # metadata is then refreshed
    overdue_s: float = 2.0

    # How long the response to a short request may take before other brokers are preferred; a
    # request that any broker can process then goes to the next one too
    unresponsive_s: float = 1.0

    reconnect_backoff_s: float = 0.05  # the first pause before a broker is connected to again

    reconnect_backoff_max_s: float = 5.0  # the longest pause before a broker is connected to again

    # How long brokers have to say that a topic doesn't exist until that counts: they also say so of
    # a topic that was created a moment ago
    topic_unknown_s: float = 1.0

    # The same for brokers from 0.10 on: brokers with KRaft also say so while they create the
    # topic, and no response distinguishes them from others (docs/brokers.md 4.2)
    topic_creating_s: float = 5.0

    # How long brokers may leave a partition out of the metadata until it counts as missing: a
    # partition that was added a moment ago isn't known to all brokers
    partition_unknown_s: float = 3.0


NET_LIMITS: Final = NetLimits()
