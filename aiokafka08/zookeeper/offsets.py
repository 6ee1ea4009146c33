"""Read and write a group's committed offsets as ZooKeeper nodes, without going through a broker.

The node `/consumers/<group>/offsets/<topic>/<partition>` holds the offset in decimal digits. The
Scala consumer and the brokers (OffsetCommit 0) write the same nodes in the same format, which has
no place for metadata. `offset_store.zookeeper_store` builds an `OffsetStore` on these nodes for
brokers of 0.8.0, which have no requests for offsets.

Invariant: once `open` has returned, `read` and `write` end within their `timeout_s`, also while
ZooKeeper can't be reached. kazoo blocks, so each call runs in a thread; `OffsetNodes` itself
belongs to the event loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from aiokafka08 import environment
from aiokafka08.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
)
from aiokafka08.structs import TopicPartition
from aiokafka08.zookeeper.session import (
    ZookeeperSession,
    check_node_name,
    require_kazoo,
    result_of,
    translate_errors,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

LARGEST = 2**63 - 1
_NUMBER = re.compile(rb"\s*-?[0-9]{1,19}\s*")

SESSION_TIMEOUT_S = 6.0
"""The Scala consumer's default for zookeeper.session.timeout.ms. No node here is ephemeral, so an
expired session loses nothing."""


class OffsetNodes:
    """The offset nodes of one group, read and written in one ZooKeeper session.

    Args:
        connect: "host:port,host:port/chroot".
        group: the group's name.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(self, connect: str, group: str) -> None:
        require_kazoo()
        self._connect = connect
        self._group = group
        self._session = ZookeeperSession(connect, "aiokafka08.consumer.kazoo")

    async def open(self, timeout_s: float) -> None:
        """Open the session.

        Raises:
            IllegalArgumentError: the group's name can't be the name of a node.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: the chroot doesn't exist.
        """
        check_node_name("group_id", self._group)
        await self._session.open(min(timeout_s, SESSION_TIMEOUT_S))

    async def close(self) -> None:
        """Close the session; safe to call twice."""
        await self._session.close()

    async def read(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition; None where there is no node.

        Raises:
            KafkaTimeoutError: ZooKeeper didn't respond within `timeout_s`.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: a node holds something else than an offset; names the node.
        """
        return await self._run(
            lambda client, deadline: self._read(client, partitions, deadline), timeout_s
        )

    async def write(
        self, offsets: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, KafkaError]:
        """Write these offsets and return the partitions that failed, each with its error.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
        """
        return await self._run(
            lambda client, deadline: self._write(client, offsets, deadline), timeout_s
        )

    # --- in a thread ------------------------------------------------------------------------------

    async def _run(self, work: Callable[[KazooClient, float], T], timeout_s: float) -> T:
        client = await self._session.client()
        if client is None:
            raise IllegalStateError(
                f"offsets of group {self._group!r} in ZooKeeper: the session isn't open"
            )
        deadline = environment.monotonic() + timeout_s

        def run() -> T:
            with translate_errors(self._connect):
                return work(client, deadline)

        return await environment.run_in_thread(run)

    def _read(
        self, client: KazooClient, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | None]:
        from kazoo.exceptions import NoNodeError

        requests = {tp: client.get_async(self._path(tp)) for tp in partitions}
        offsets: dict[TopicPartition, int | None] = {}
        for tp, request in requests.items():
            try:
                data, _ = result_of(request, deadline)
            except NoNodeError:
                offsets[tp] = None
            else:
                offsets[tp] = decode_offset(self._connect, self._path(tp), data)
        return offsets

    def _write(
        self, client: KazooClient, offsets: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, KafkaError]:
        from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

        values = {tp: b"%d" % offset for tp, offset in offsets.items()}
        requests = {tp: client.set_async(self._path(tp), value) for tp, value in values.items()}
        failed: dict[TopicPartition, KafkaError] = {}
        for tp, request in requests.items():
            path, value = self._path(tp), values[tp]
            try:
                try:
                    result_of(request, deadline)
                except NoNodeError:
                    try:
                        result_of(client.create_async(path, value, makepath=True), deadline)
                    except NodeExistsError:  # another client created it in between
                        result_of(client.set_async(path, value), deadline)
            except KazooException as error:
                failed[tp] = KafkaUnavailableError(f"{type(error).__name__} {error}".rstrip())
            except KafkaTimeoutError as error:
                failed[tp] = error
        return failed

    def _path(self, tp: TopicPartition) -> str:
        return f"/consumers/{self._group}/offsets/{tp.topic}/{tp.partition}"


def decode_offset(connect: str, path: str, data: bytes) -> int | None:
    """Return the offset in a node's data; None for a negative one.

    A negative offset counts as none: brokers accept and write them (docs/brokers.md 8.4).

    Raises:
        KafkaUnavailableError: the node holds something else; names the node.
    """
    offset = int(data) if _NUMBER.fullmatch(data) else LARGEST + 1
    if offset > LARGEST:
        raise KafkaUnavailableError(
            f"ZooKeeper {connect}: the node {path} holds {data[:100]!r}; expected an offset. Write "
            "an offset to the node, or delete it"
        )
    return offset if offset >= 0 else None
