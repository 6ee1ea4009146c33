"""What the parts of the consumer report to the engine: one protocol for all of them.

`fetcher`, `start_offsets`, `collector` and `commits` get a `ConsumerObserver` when they are made,
and call it; `engine` implements it, and decides which other part acts on a report. So the parts
don't know each other. Invariant: every method returns at once and awaits nothing; only `check`
raises.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiokafka08.consumer.cursor import Cursor


class ConsumerObserver(Protocol):
    """Receives the reports of the consumer's parts."""

    def check(self) -> None:
        """If the consumer can't return messages, raise the reason; otherwise do nothing.

        The reasons: it is stopped or failed, or the membership or an automatic commit has failed.

        Called by `collector` before it returns messages, and each time it goes on after a wait.
        """

    def messages_fetched(self, cursor: Cursor) -> None:
        """Make the cursor available to calls: it has new messages or an error.

        Called by `fetcher`, after a response was applied; not after one that was empty, since no
        call waits for that.
        """

    def offset_refused(self, cursor: Cursor) -> None:
        """Have the position verified. Called by `fetcher`, when a broker refused the offset."""

    def memory_exhausted(self) -> None:
        """Wake waiting calls, so that they report again what they wait for (`call_starved`).

        Called by `fetcher`, when a partition has to wait for borrowed memory.
        """

    def position_found(self, cursor: Cursor) -> None:
        """Fetch, and wake calls that wait for the position.

        Called by `start_offsets`, when the search has ended: the cursor now has a position, or an
        error to raise if none was found.
        """

    def messages_returned(self, cursor: Cursor) -> None:
        """Fetch more. Called by `collector`, when the buffer has shrunk or an error was raised."""

    def damage_found(self, cursor: Cursor) -> None:
        """Report a damaged message, whose cursor has an error now or is fetched again.

        Called by `collector`, after `Cursor.drop_damaged`.
        """

    def decoding_failed(self, cursor: Cursor, error: Exception) -> None:
        """Report that the next message can't be deserialized, or its envelope of headers read.

        Called by `collector`, before a call raises the error for the first time.
        """

    def call_starved(self, wanted: set[Cursor] | None) -> None:
        """Take back memory that no call reads from.

        Called by `collector` for a *starved* call: it has found no message to return, and is about
        to wait for one.

        Args:
            wanted: the cursors that the call wants to read; None: all.
        """

    def commit_failed(self) -> None:
        """Wake waiting calls: the next one to check raises the error.

        Called by `commits`, when an automatic commit has failed for good.
        """

    def task_failed(self, error: BaseException) -> None:
        """Let every later call raise `error`, which ended a background task.

        Called by `report_failure`, for tasks of `fetcher`, `start_offsets` and `commits`.
        """


def report_failure(task: asyncio.Task[None], observer: ConsumerObserver) -> None:
    """Have `task_failed` called if the task ends with an exception."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            observer.task_failed(error)

    task.add_done_callback(ended)
