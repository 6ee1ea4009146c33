"""Which party the running code belongs to, and which parties there are.

A party is a process of the simulated distributed system: a broker, or a program with clients. It
has its own tasks, connections and wall clock, and the simulation can pause it, as SIGSTOP does.
All parties share one event loop.

Invariant: each callback belongs to one party, the one in whose context it was scheduled; only
callbacks of the simulation itself (network, ZooKeeper, `World.call_later`) belong to none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextvars import Context, ContextVar, copy_context
from typing import Final

from aiokafka08.testing.options import invalid
from aiokafka08.testing.simulation.errors import SimulationError

# The name of the running party; tasks and callbacks inherit it. Brokers are "broker 0", "broker 1"
# and so on; the controller and other shared parts are "cluster"; all other code is "client", unless
# `World.process()` gives it to another party.
PARTY: Final[ContextVar[str]] = ContextVar("aiokafka08_party", default="client")


def context_of(party: str) -> Context:
    """Return a copy of the current context that belongs to a party."""
    context = copy_context()
    context.run(PARTY.set, party)
    return context


# The context of the simulation's own callbacks, which no pause stops.
NO_PARTY: Final = context_of("")


class Parties:
    """The existing parties, and the parties that the scenario's faults name.

    Args:
        brokers: returns the numbers of the brokers.
    """

    def __init__(self, brokers: Callable[[], Collection[int]]) -> None:
        self._brokers = brokers
        self._existing = {"client"}
        self._named: dict[str, str] = {}

    def add(self, party: str) -> None:
        """Note that a party exists."""
        self._existing.add(party)

    def name(self, call: str, *parties: object) -> None:
        """Check the parties that a fault names. A party that may still begin is left to `check`.

        Raises:
            ValueError: a name is invalid, or there is no such broker.
        """
        new = []
        for party in parties:
            if party is None:
                continue
            if not isinstance(party, str) or not party:
                text = 'the name of a party, such as "broker 0" or "client"'
                raise invalid("party", party, text)
            brokers = [f"broker {number}" for number in self._brokers()]
            if party in self._existing or party in brokers:
                continue
            if party.partition(" ")[0] == "broker":
                raise invalid("party", party, f"one of {', '.join(map(repr, brokers))}")
            new.append(party)
        for party in new:
            self._named.setdefault(party, call)

    def check(self) -> None:
        """Check the names of all faults so far.

        Raises:
            SimulationError: a party hasn't begun.
        """
        for party, call in self._named.items():
            if party not in self._existing:
                self._named.clear()
                known = ", ".join(map(repr, sorted(self._existing)))
                raise SimulationError(
                    f"{call}() of {party!r}: no party of this name has begun; those that have "
                    f"begun: {known}"
                )
