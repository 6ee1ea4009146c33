"""No group: every partition of the subscribed topics is read here.

New partitions, and new topics that match a pattern, come in with the metadata refresh that shows
them. A new partition of a topic that is read already begins at its first message whatever
auto_offset_reset says: all of it was written after the subscription began, "latest" would lose it.
(A new topic that a pattern matches begins as auto_offset_reset says, as with aiokafka.)
"""

from __future__ import annotations

import asyncio

from aiokafka08.concurrency.notifier import Notifier
from aiokafka08.consumer.membership import Assignee
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import KafkaError
from aiokafka08.net.router import Router
from aiokafka08.structs import TopicPartition


class NoGroup:
    """All partitions, here."""

    def __init__(self, router: Router, subscription: Subscription, assignee: Assignee) -> None:
        self._router = router
        self._subscription = subscription
        self._assignee = assignee
        self._bell = Notifier()
        self._is_stale = False
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[str, int] = {}  # the highest partition of each topic that is read
        self._number = -1  # of the subscription that this was seen for

    async def start(self) -> None:
        """Assign, and go on doing so as topics change."""
        await self._assign()
        self._task = asyncio.get_running_loop().create_task(
            self._follow(), name="aiokafka08 membership"
        )

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def changed(self) -> None:
        """Look again."""
        self._is_stale = True
        self._bell.notify()

    def check(self) -> None:
        """Raise what ended the task that should never end."""
        task = self._task
        if task is not None and task.done() and not task.cancelled():
            task.result()

    async def _follow(self) -> None:
        config, loop = self._router.config, asyncio.get_running_loop()
        backoff = config.backoff()
        while True:
            deadline: float | None = None
            if self._unknown():
                self._router.metadata.request_refresh()
                deadline = loop.time() + backoff.next()
            else:
                backoff.reset()
            if not self._is_stale:
                await self._bell.wait(deadline)
            await self._assign()

    async def _assign(self) -> None:
        self._is_stale = False
        if self._subscription.by_topic:
            if self._subscription.number != self._number and self._unknown():
                try:
                    await self._router.metadata.refresh()
                except KafkaError:
                    pass  # told by the refresh; it goes on in the background
            partitions = self._subscription.partitions(self._router.metadata.snapshot)
            await self._assignee.assign(partitions, self._born(partitions))

    def _unknown(self) -> bool:
        return bool(self._subscription.unknown(self._router.metadata.snapshot))

    def _born(self, partitions: frozenset[TopicPartition]) -> set[TopicPartition]:
        number = self._subscription.number
        known = self._seen if number == self._number else {}
        born = {tp for tp in partitions if tp.partition > known.get(tp.topic, tp.partition)}
        self._number = number
        self._seen = {}
        for topic, partition in partitions:
            self._seen[topic] = max(partition, self._seen.get(topic, 0))
        return born
