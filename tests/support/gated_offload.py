"""An `Offload` whose work a test can hold back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from aiokafka08._core.concurrency.offload import Offload
from tests.support.waiting import until


def offload_threads() -> list[threading.Thread]:
    """Return the threads of all clients that compress or decompress."""
    return [one for one in threading.enumerate() if one.name.startswith("aiokafka08")]


class GatedOffload(Offload):
    """Holds the work back in its thread while `may_end` is clear, and records the threads.

    Attributes:
        made: the last one that was made.
        threads: the thread of each work that has run.
        begun: how many works have begun.
        may_end: set unless a test clears it; `stop()` sets it again.
    """

    made: GatedOffload

    def __init__(self) -> None:
        super().__init__()
        GatedOffload.made = self
        self.threads: list[int] = []
        self.begun = 0
        self.may_end = threading.Event()
        self.may_end.set()

    async def run(self, work: Callable[[], Any]) -> Any:
        def gated() -> Any:
            self.begun += 1
            assert self.may_end.wait(20)
            self.threads.append(threading.get_ident())
            return work()

        return await super().run(gated)

    @classmethod
    def hold(cls) -> GatedOffload:
        """Hold back the work of the last one that was made, and return it."""
        cls.made.may_end.clear()
        return cls.made

    async def wait_begun(self, count: int = 1) -> None:
        """Wait until so many works have begun."""
        await until(lambda: self.begun >= count, f"{count} works have begun in threads")

    async def stop(self) -> None:
        self.may_end.set()
        await super().stop()
