"""The party of a callback: the simulated process that it belongs to, kept in its context."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context

PARTY: ContextVar[str] = ContextVar("aiokafka08_party", default="client")
"""The name of the running party; tasks and callbacks inherit it."""


def context_of(party: str) -> Context:
    """Return a copy of the current context that belongs to a party."""
    context = copy_context()
    context.run(PARTY.set, party)
    return context


NO_PARTY = context_of("")
"""The context of the network itself, which no pause stops."""
