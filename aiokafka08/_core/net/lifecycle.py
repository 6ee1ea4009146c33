"""Start and stop of a client, and the event loop and process that it belongs to.

Invariant: a client works only between its start and its stop, in the event loop and the process
that started it. Otherwise `check()` raises an `IllegalStateError` that says so. If no event loop is
running, it raises asyncio's `RuntimeError` for a client that is started and not stopped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiokafka08 import environment
from aiokafka08.errors import IllegalStateError
from aiokafka08.protocol.twins import explain_pure

_log: Final = logging.getLogger("aiokafka08")


class Lifecycle:
    """The state of one client.

    Args:
        name: the client's name in error texts.
        client_id: log lines begin with it.
        stop_call: how a user stops the client, for warnings.
        twins: the extension modules that the client uses if they are installed, by the name of the
            part that each speeds up.
    """

    def __init__(
        self,
        name: str,
        client_id: str,
        stop_call: str = "stop()",
        *,
        twins: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._name = name
        self._client_id = client_id
        self._stop_call = stop_call
        self._twins = twins
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        # The client was stopped. The client sets it, not this object.
        self.stopped = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the client; None before its start."""
        return self._loop

    @property
    def is_running(self) -> bool:
        return self._loop is not None and not self.stopped

    def bind_to_loop(self) -> None:
        """Bind the client to the running event loop and this process; called first in `start()`.

        Raises:
            IllegalStateError: the client was started or stopped before.
            RuntimeError: a simulation is in force in another thread.
        """
        if self.stopped:
            raise IllegalStateError(f"this {self._name} was stopped. Create a new one")
        if self._loop is not None:
            raise IllegalStateError(f"this {self._name} was started already. Call start() once")
        environment.enter(self._name)
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        # A client without a compiled part is slower than users may expect.
        slow = explain_pure(self._twins)
        if slow:
            _log.info("%s: %s", self._client_id, slow)

    def check(self) -> None:
        """Check that the client may be used here and now.

        Raises:
            IllegalStateError: it isn't started, is stopped, or belongs to another event loop or
                process.
            RuntimeError: no event loop is running (from asyncio).
        """
        if self._loop is None:
            raise IllegalStateError(
                f"this {self._name} isn't started. Await start(), or use 'async with'"
            )
        if self.stopped:
            raise IllegalStateError(f"this {self._name} was stopped")
        if os.getpid() != self._pid:
            raise IllegalStateError(
                f"this {self._name} was started before a fork. Create one in each process"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError(
                f"this {self._name} belongs to another event loop. Create one in each loop"
            )

    def still_starting(self) -> IllegalStateError:
        """Return the error of a call that comes before `start()` has returned."""
        return IllegalStateError(
            f"this {self._name} is still starting. It can be used once start() has returned, which "
            "needs a broker"
        )

    def warn_if_not_stopped(self, source: object, unsent_bytes: int = 0) -> None:
        """Emit a ResourceWarning if the client was never stopped; called in its `__del__`."""
        if self.is_running and os.getpid() == self._pid:
            # Python doesn't show that warning by default, and messages may be lost.
            if unsent_bytes:
                _log.error(
                    "%s: this %s was dropped without %s: %d bytes of messages may be lost",
                    self._client_id,
                    self._name,
                    self._stop_call,
                    unsent_bytes,
                )
            warnings.warn(
                # It begins as aiokafka's warning, so that users' warning filters match it.
                f"Unclosed {self._name}: dropped without {self._stop_call}",
                ResourceWarning,
                source=source,
                stacklevel=2,
            )


async def run_all_steps(client_id: str, *steps: Callable[[], Awaitable[None]]) -> None:
    """Run all steps of a client's stop in turn; raise the first error, log the others."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except BaseException as error:  # a cancelled stop must release everything too
            if first is None:
                first = error
            else:
                _log.error(
                    "%s: another error during the stop, after %s",
                    client_id,
                    type(first).__name__,
                    exc_info=error,
                )
    if first is not None:
        raise first
