"""What Kafka keeps in ZooKeeper, read and written directly with kazoo.

Writing a topic's nodes is what the Java tools do as well, and a hundred times quicker than they
start. Each call opens a connection of its own (a few ms on loopback): no session of ours is left
to expire, and no thread to shout, while a test pauses or stops ZooKeeper.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.brokers.errors import HarnessError, HarnessTimeoutError

_CONNECT_TIMEOUT = 15.0
# What goes wrong is raised here; kazoo's own lines about it only dirty the output of tests.
_silent = logging.getLogger("tests.brokers.kazoo")
_silent.setLevel(logging.CRITICAL + 1)


class Registry:
    """The Kafka part of one ZooKeeper."""

    def __init__(self, connect: str) -> None:
        self._connect = connect

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """A started kazoo client, for whatever has no method here."""
        client = KazooClient(hosts=self._connect, timeout=10.0, logger=_silent)
        try:
            try:
                client.start(timeout=_CONNECT_TIMEOUT)
            except KazooTimeoutError as error:
                raise HarnessTimeoutError(f"ZooKeeper at {self._connect} is silent") from error
            yield client
        finally:
            try:
                client.stop()
            except AttributeError:
                pass  # kazoo's own where a signal interrupted its start; it has stopped anyway
            client.close()

    def broker_ids(self) -> set[int]:
        """The brokers with a live session (or one that has not expired yet)."""
        with self.client() as client:
            try:
                return {int(name) for name in client.get_children("/brokers/ids")}
            except NoNodeError:
                return set()

    def controller(self) -> int | None:
        """The broker that is the controller."""
        found = self._read("/controller")
        return None if found is None else int(found["brokerid"])

    def remove_broker(self, node_id: int) -> None:
        """Remove a dead broker's nodes as the end of its session will do, but now."""
        with self.client() as client:
            paths = [f"/brokers/ids/{node_id}"]
            try:
                if json.loads(client.get("/controller")[0])["brokerid"] == node_id:
                    paths.append("/controller")
            except NoNodeError:
                pass
            for path in paths:
                try:
                    client.delete(path)
                except NoNodeError:
                    pass

    def partition_states(self, topic: str) -> dict[int, dict[str, Any]]:
        """Leader, isr and epochs of each partition that has a state yet."""
        found = {}
        base = f"/brokers/topics/{topic}/partitions"
        with self.client() as client:
            try:
                for name in client.get_children(base):
                    found[int(name)] = json.loads(client.get(f"{base}/{name}/state")[0])
            except NoNodeError:  # the controller writes the nodes one after the other
                pass
        return found

    def partition_state(self, topic: str, partition: int) -> dict[str, Any]:
        """The state of one partition, which must exist."""
        state = self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        if state is None:
            raise HarnessError(f"ZooKeeper has no state of partition {partition} of {topic!r}")
        return state

    def has_topic(self, topic: str) -> bool:
        """Whether the topic is known (a deletion may be under way)."""
        with self.client() as client:
            return client.exists(f"/brokers/topics/{topic}") is not None

    def write_topic(
        self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str] | None
    ) -> None:
        """Create the topic's nodes; the controller sees the second one and elects leaders."""
        partitions = {str(partition): list(nodes) for partition, nodes in assignment.items()}
        with self.client() as client:
            if client.exists(f"/brokers/topics/{topic}") is not None:
                raise HarnessError(f"topic {topic!r} exists already")
            if config is not None:
                # First the config: the leader reads it when it creates its log. Overwrite what a
                # deleted topic of this name may have left.
                value = json.dumps({"version": 1, "config": dict(config)}).encode()
                try:
                    client.create(f"/config/topics/{topic}", value, makepath=True)
                except NodeExistsError:
                    client.set(f"/config/topics/{topic}", value)
            value = json.dumps({"version": 1, "partitions": partitions}).encode()
            client.create(f"/brokers/topics/{topic}", value, makepath=True)

    def ask_to_delete_topic(self, topic: str) -> None:
        """Tell the controller to delete a topic."""
        with self.client() as client:
            client.create(f"/admin/delete_topics/{topic}", b"", makepath=True)

    def _read(self, path: str) -> dict[str, Any] | None:
        with self.client() as client:
            try:
                value: dict[str, Any] = json.loads(client.get(path)[0])
            except NoNodeError:
                return None
            return value
