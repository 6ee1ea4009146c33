"""Who reads which partitions of a subscription: the seam. Each kind is a file of its own.

A membership drives an `Assignee` (the consumer's `assignment`). `assign()` needs none of this: the
user's own choice takes effect at once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from aiokafka08.structs import TopicPartition


class Assignee(Protocol):
    """What a membership decides for."""

    async def revoke(self) -> None:
        """Take all partitions back: nothing more is handed out, positions are committed where that
        is automatic, then the listener is told. No commit of them goes on after this."""

    async def assign(
        self,
        partitions: Collection[TopicPartition],
        born: Collection[TopicPartition] = (),
        *,
        told: bool = False,
    ) -> None:
        """Read just these: others are revoked, those that stay keep position and buffer, and the
        listener is told of a change. `born`: came into being while the subscription was running, so
        they are read from their beginning. `told`: the listener is told in any case."""

    def activity(self) -> int | None:
        """A number that changes when the user takes messages or asks for some; None while a call
        waits for messages."""

    def wake(self) -> None:
        """Let calls that wait for messages look again at `Membership.check`."""


class Membership(Protocol):
    """Decides which partitions of the subscription are read here."""

    async def start(self) -> None:
        """Begin; where there is a subscription, returns with the first assignment."""

    async def stop(self) -> None:
        """Leave; safe to call twice."""

    def changed(self) -> None:
        """The subscription or the cluster's metadata may have changed."""

    def check(self) -> None:
        """Raise what calls that take messages have to be told."""
