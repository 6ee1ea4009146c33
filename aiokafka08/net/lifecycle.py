"""Started, stopped, in which loop and process: the rules that all clients share.

A client belongs to the event loop and process that started it. Used from elsewhere it says so;
dropped without `stop()` it warns. What stops it takes every step, whatever becomes of one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Awaitable, Callable

from aiokafka08.errors import IllegalStateError

logger = logging.getLogger("aiokafka08")


class Lifecycle:
    """The state of one client; `name` is what errors call it, `stop_call` how it is ended."""

    def __init__(self, name: str, stop_call: str = "stop()") -> None:
        self._name = name
        self._stop_call = stop_call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self.stopped = False

    @property
    def is_running(self) -> bool:
        """Whether it is between `bind_to_loop()` and `stop`."""
        return self._loop is not None and not self.stopped

    def bind_to_loop(self) -> None:
        """To be called first in `start()`; binds to the running loop.

        Raises:
            IllegalStateError: it was started before.
        """
        if self.stopped:
            raise IllegalStateError(f"this {self._name} was stopped; make a new one")
        if self._loop is not None:
            raise IllegalStateError(f"this {self._name} is started already")
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def check(self) -> None:
        """Check that a call may go on.

        Raises:
            IllegalStateError: not started, stopped, another loop, or a forked process.
        """
        if self._loop is None:
            raise IllegalStateError(
                f"this {self._name} isn't started: await start() or use 'async with'"
            )
        if self.stopped:
            raise IllegalStateError(f"this {self._name} was stopped")
        if os.getpid() != self._pid:
            raise IllegalStateError(
                f"this {self._name} was started before a fork: make one in each process"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError(
                f"this {self._name} belongs to another event loop: make one in each loop"
            )

    def warn_if_not_stopped(self, source: object, unsent_bytes: int = 0) -> None:
        """For `__del__`: a ResourceWarning if the client was started and never stopped.

        Python doesn't show that unless it is asked to. So where messages may be lost, it is logged
        as an error as well.
        """
        if self.is_running and os.getpid() == self._pid:
            if unsent_bytes:
                logger.error(
                    "an %s was dropped without %s: %d bytes of messages may be lost",
                    self._name,
                    self._stop_call,
                    unsent_bytes,
                )
            warnings.warn(
                f"an {self._name} was dropped without {self._stop_call}",
                ResourceWarning,
                source=source,
                stacklevel=2,
            )


async def run_all_steps(*steps: Callable[[], Awaitable[None]]) -> None:
    """Take these steps of a stop one after the other, also where one fails, so that nothing is left
    behind; then raise the first error. Others are logged."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except BaseException as error:  # a cancelled stop has to let go of everything too
            if first is None:
                first = error
            else:
                logger.error("after %r the stop failed again", first, exc_info=error)
    if first is not None:
        raise first
