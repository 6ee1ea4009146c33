"""What the parts of the consumer report to the engine: one protocol for all of them.

The parts don't know each other: the engine decides which part acts on a report.

Invariant: every method returns at once and awaits nothing; only `check` raises.
"""

from __future__ import annotations

from typing import Protocol

from aiokafka08.consumer.cursor import Cursor
from aiokafka08.errors import KafkaError


class ConsumerObserver(Protocol):
    """Receives the reports of the consumer's parts."""

    def check(self) -> None:
        """Raise the reason if the consumer can't return messages: it is stopped or failed."""

    def messages_fetched(self, cursor: Cursor) -> None:
        """Make the cursor available to calls: it has new messages or an error."""

    def offset_refused(self, cursor: Cursor) -> None:
        """Have the position verified, since a broker refused the offset."""

    def memory_exhausted(self) -> None:
        """Wake waiting calls, so that they report again what they wait for."""

    def position_found(self, cursor: Cursor) -> None:
        """Fetch, and wake calls: the cursor has a position, or an error to raise."""

    def messages_returned(self, cursor: Cursor) -> None:
        """Fetch more: the buffer has shrunk, or an error was raised."""

    def damage_found(self, cursor: Cursor) -> None:
        """Report a damaged message, whose cursor has an error now or is fetched again."""

    def decoding_failed(self, cursor: Cursor, error: Exception) -> None:
        """Report that the next message can't be deserialized, before a call raises it."""

    def call_starved(self, wanted: set[Cursor] | None) -> None:
        """Take back memory from buffers that a waiting call doesn't want (None: all)."""

    def commit_failed(self, error: KafkaError) -> None:
        """Let the next call raise the error of automatic commits."""

    def task_failed(self, error: BaseException) -> None:
        """Let every later call raise `error`, which ended a background task."""
