"""`ServerResources`: what all connections of a server share; one for all its listeners."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka08._core.server.memory_limit import MemoryLimit
from aiokafka08._core.server.read_budget import ReadBudget
from aiokafka08._core.server.scheduler import FairScheduler


class ServerResources:
    """See the module.

    Args:
        max_held_bytes: what the connections may hold together; see `MemoryLimit`.
        option: the name of the option that sets it.
        after_step: called after each step of a handler's work.

    Attributes:
        scheduler: the work for the connections, one step after the other.
        memory: what the connections hold.
        reading: what the connections read of large requests.
    """

    def __init__(self, max_held_bytes: int, option: str, after_step: Callable[[], None]) -> None:
        self.scheduler = FairScheduler(after_step)
        self.memory = MemoryLimit(max_held_bytes, option)
        self.reading = ReadBudget()

    async def close(self) -> None:
        """End the work that goes on for connections that are closed; call it after them."""
        await self.scheduler.close()
