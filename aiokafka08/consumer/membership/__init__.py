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
        """Take all partitions back, after the listener was told; nothing more is handed out."""

    async def assign(
        self, partitions: Collection[TopicPartition], born: Collection[TopicPartition] = ()
    ) -> None:
        """Read just these: others are revoked, those that stay keep position and buffer, and the
        listener is told. `born`: came into being while the subscription was running, so they are
        read from their beginning."""


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
