"""`Links`: the directions between parties, and which of them are slow or blocked."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Protocol

from aiokafka08.testing.simulation.arguments import check_network
from aiokafka08.testing.simulation.network import Network
from aiokafka08.testing.simulation.party import Parties
from aiokafka08.testing.simulation.trace import Trace


class Retrying(Protocol):
    """Data that a block has kept from arriving."""

    def retry(self) -> None:
        """Arrive soon, since the block has ended."""


class Links:
    """See the module.

    Args:
        loop: the loop of the simulation.
        network: how connections behave unless `set_link` says otherwise.
        random: draws latencies and fragments.
        trace: gets all data that arrives.
        parties: checks the parties that a scenario names.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        random: Random,
        trace: Trace,
        parties: Parties,
    ) -> None:
        self.parties = parties
        self.loop = loop
        self.random = random
        self.trace = trace
        self._network = network
        self._links: dict[tuple[str, str], Network] = {}
        self._blocked: dict[tuple[str | None, str | None], None] = {}
        self._kept: dict[Retrying, None] = {}
        self._reading: dict[str, float] = {}

    def set_link(self, source: str, target: str, network: Network | None) -> None:
        """Change how data travels from one party to another, for data sent from now on.

        Args:
            source: the party that sends.
            target: the party that receives.
            network: the new behaviour; None: that of the whole network again. The window of open
                connections stays as it is.
        """
        self.parties.name("set_link", source, target)
        if network is None:
            self._links.pop((source, target), None)
        else:
            check_network(network)
            self._links[source, target] = network

    def block(self, source: str | None, target: str | None, *, both: bool = True) -> None:
        """Let nothing arrive from one party at another until `heal`.

        Open connections stay open: data arrives after the block, as TCP sends it again.

        Args:
            source: the party that sends; None: all.
            target: the party that receives; None: all.
            both: whether the other direction is blocked too (default True).
        """
        self.parties.name("block", source, target)
        self.trace.event(f"block {source} {target} {both}")
        self._blocked[source, target] = None
        if both:
            self._blocked[target, source] = None

    def heal(self) -> None:
        """End all blocks; the data that they have kept arrives after a retransmission."""
        self._blocked.clear()
        kept, self._kept = self._kept, {}
        for wire in kept:
            wire.retry()

    def read_slowly(self, party: str, bytes_per_s: float | None) -> None:
        """Limit how fast a party reads from each of its connections.

        Unread data fills the window, and then the sender has to wait.

        Args:
            party: the party that reads.
            bytes_per_s: its rate; None: it reads everything at once again.

        Raises:
            ValueError: the rate is no number > 0.
        """
        if bytes_per_s is not None:
            Network(bytes_per_s=bytes_per_s)  # checks it
        self.parties.name("read_slowly", party)
        self.trace.event(f"read_slowly {party} {bytes_per_s}")
        if bytes_per_s is None:
            self._reading.pop(party, None)
        else:
            self._reading[party] = bytes_per_s

    # --- what wires call --------------------------------------------------------------------------

    def network(self, source: str, target: str) -> Network:
        """Return how a direction behaves."""
        return self._links.get((source, target), self._network) if self._links else self._network

    def reading_rate(self, party: str) -> float | None:
        """Return how many bytes a second a party reads; None: all at once."""
        return self._reading.get(party) if self._reading else None

    def is_blocked(self, source: str, target: str) -> bool:
        """Return whether nothing arrives in a direction."""
        blocked = self._blocked
        return bool(blocked) and (
            (source, target) in blocked
            or (source, None) in blocked
            or (None, target) in blocked
            or (None, None) in blocked
        )

    def wait_for_heal(self, wire: Retrying) -> None:
        """Call the wire's `retry` after the block."""
        self._kept[wire] = None
