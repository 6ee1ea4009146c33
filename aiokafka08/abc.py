"""The base classes that users derive from. Names and signatures are those of aiokafka 0.14."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Collection

from aiokafka08.structs import TopicPartition

__all__ = ["ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Told when the partitions that a subscribed consumer reads change.

    Both methods may be plain functions or coroutines; a coroutine is awaited before the change goes
    on. What they raise is logged and changes nothing. Not called for `assign()`, nor by `stop()`.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called before these partitions are taken away; nothing of them is handed out after it.

        The place to save positions, or to finish work in progress.
        """

    @abc.abstractmethod
    def on_partitions_assigned(
        self, assigned: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called with all partitions that are read now, before the first message of a new one.

        The place to `seek()`.
        """
