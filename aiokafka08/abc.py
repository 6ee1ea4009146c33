"""The base classes that users derive from. Names and signatures are those of aiokafka 0.14."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Collection

from aiokafka08.structs import TopicPartition

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Called when the partitions of a subscribed consumer change.

    Both methods may be plain functions or coroutines; the consumer awaits a coroutine before it
    goes on. An exception in them is logged, and has no other effect. They are not called for
    `assign()`, nor by `stop()`.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called before these partitions are revoked.

        A consumer in a group calls it before each join, and so, before the first one, without
        partitions. When the call begins, the consumer has already stopped returning their messages.
        The place to save positions, or to finish work in progress.
        """

    @abc.abstractmethod
    def on_partitions_assigned(
        self, assigned: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called with all assigned partitions, before the first message of a new one is returned.

        The place to `seek()`.
        """


class AbstractTokenProvider(abc.ABC):
    """Provides the tokens of OAUTHBEARER, for the option `sasl_oauth_token_provider`.

    `token()` is called for each connection: keep the token until it expires.
    """

    @abc.abstractmethod
    async def token(self) -> str:
        """Return an unexpired token."""

    def extensions(self) -> dict[str, str]:
        """Return the extensions that are sent with the token, by name.

        Names are ASCII letters, but not "auth"; values are printable ASCII. Default: none.
        """
        return {}
