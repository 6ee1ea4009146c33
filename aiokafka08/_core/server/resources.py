"""`ServerResources`: the scheduler and the limits that all listeners of a server share."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka08._core.server.memory_limit import MemoryLimit
from aiokafka08._core.server.read_budget import ReadBudget
from aiokafka08._core.server.scheduler import FairScheduler


class ServerResources:
    """See the module.

    Args:
        max_held_bytes: how much the connections may hold together; see `MemoryLimit`.
        option: the name of the option that sets it.
        after_step: called after each step of a handler's work.

    Attributes:
        scheduler: The work for the connections, one step after the other.
        memory: The memory of the connections.
        reading: The reading of large requests.
    """

    def __init__(self, max_held_bytes: int, option: str, after_step: Callable[[], None]) -> None:
        self.scheduler = FairScheduler(after_step)
        self.memory = MemoryLimit(max_held_bytes, option)
        self.reading = ReadBudget()

    async def close(self) -> None:
        """End the work that is still done for closed connections; call it after them."""
        await self.scheduler.close()
