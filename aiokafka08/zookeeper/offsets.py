"""Offsets in ZooKeeper without the brokers: 0.8.0 has no requests for offsets, only the nodes.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset in decimal, as the Scala consumer
and the brokers' own OffsetCommit 0 write it; metadata has no place there. One session, from the
start to the stop; kazoo blocks, so all of it runs in threads, and each wait there has an end.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka08.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
)
from aiokafka08.offset_store import CommitIdentity
from aiokafka08.offset_store.answers import Commits, Committed, by_reason
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.zookeeper.session import KeptSession, check_node_name, require_kazoo, telling

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

LARGEST = 2**63 - 1
_NUMBER = re.compile(rb"\s*-?[0-9]{1,19}\s*")

SESSION_TIMEOUT_S = 6.0
"""As the Scala consumer's zookeeper.session.timeout.ms; nothing here is bound to the session."""


class ZookeeperOffsets:
    """Committed offsets of one group in ZooKeeper.

    Args:
        connect: "host:port,host:port/chroot".
        group: the group's name.
        timeout_s: seconds for a call that names no other limit.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(self, connect: str, group: str, timeout_s: float) -> None:
        require_kazoo()
        self._connect = connect
        self._group = group
        self._timeout_s = timeout_s
        self._session = KeptSession(connect, "aiokafka08.consumer.kazoo")

    async def start(self) -> None:
        """Open the session.

        Raises:
            IllegalArgumentError: the group can't be a node of ZooKeeper.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: there is no such chroot.
        """
        check_node_name("group_id", self._group)
        await self._session.open(min(self._timeout_s, SESSION_TIMEOUT_S))

    async def stop(self) -> None:
        """Close the session."""
        await self._session.close()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """See `OffsetStore`.

        Raises, as well:
            KafkaUnavailableError: a node holds no offset; names it and what it holds.
        """
        return await self._run(lambda session, end: self._read(session, partitions, end), timeout_s)

    async def commit(
        self, offsets: Commits, stamp: CommitIdentity, *, timeout_s: float | None = None
    ) -> None:
        """See `OffsetStore`; neither the stamp nor metadata have a place."""
        await self._run(lambda session, end: self._write(session, offsets, end), timeout_s)

    def check(self) -> None:
        """There is a store."""

    # --- in threads -------------------------------------------------------------------------------

    async def _run(self, work: Callable[[KazooClient, float], T], timeout_s: float | None) -> T:
        session = await self._session.get()
        if session is None:
            raise IllegalStateError("the store of offsets in ZooKeeper isn't running")
        end = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

        def run() -> T:
            with telling(self._connect):
                return work(session, end)

        return await asyncio.to_thread(run)

    def _read(
        self, session: KazooClient, partitions: Collection[TopicPartition], end: float
    ) -> dict[TopicPartition, Committed]:
        from kazoo.exceptions import NoNodeError

        asked = {tp: session.get_async(self._path(tp)) for tp in partitions}
        found: dict[TopicPartition, Committed] = {}
        for tp, answer in asked.items():
            try:
                data, _ = _wait(answer, end)
            except NoNodeError:
                found[tp] = None
            else:
                found[tp] = self._offset(tp, data)
        return found

    def _write(self, session: KazooClient, offsets: Commits, end: float) -> None:
        from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

        values = {tp: b"%d" % offset for tp, (offset, _) in offsets.items()}
        asked = {tp: session.set_async(self._path(tp), value) for tp, value in values.items()}
        failed: dict[TopicPartition, KafkaError] = {}
        for tp, answer in asked.items():
            path, value = self._path(tp), values[tp]
            try:
                try:
                    _wait(answer, end)
                except NoNodeError:
                    try:
                        _wait(session.create_async(path, value, makepath=True), end)
                    except NodeExistsError:  # somebody was quicker
                        _wait(session.set_async(path, value), end)
            except KazooException as error:
                failed[tp] = KafkaUnavailableError(f"{type(error).__name__} {error}")
            except KafkaTimeoutError as error:
                failed[tp] = error
        if failed:
            raise KafkaUnavailableError(
                f"offsets of group {self._group!r} not committed to ZooKeeper {self._connect}: "
                f"{by_reason(failed)}"
            )

    def _path(self, tp: TopicPartition) -> str:
        return f"/consumers/{self._group}/offsets/{tp.topic}/{tp.partition}"

    def _offset(self, tp: TopicPartition, data: bytes) -> Committed:
        offset = int(data) if _NUMBER.fullmatch(data) else LARGEST + 1
        if offset > LARGEST:
            raise KafkaUnavailableError(
                f"ZooKeeper {self._connect}: the node {self._path(tp)} holds {data[:100]!r}, which "
                "is no offset; write one there, or delete the node"
            )
        # The brokers' own requests have written negative ones (docs/brokers.md 8.4).
        return OffsetAndMetadata(offset, "") if offset >= 0 else None


def _wait(answer: Any, end: float) -> Any:
    """kazoo's answer; while ZooKeeper is away it would come only when that is back.

    Raises:
        KafkaTimeoutError: it didn't come in time.
    """
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        return answer.get(timeout=max(end - time.monotonic(), 0.001))
    except KazooTimeoutError:
        raise KafkaTimeoutError("ZooKeeper doesn't answer in time") from None
