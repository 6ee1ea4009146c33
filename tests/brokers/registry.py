"""Read and write Kafka's nodes in ZooKeeper, with kazoo.

The Java tools write the same nodes of a topic, but take a hundred times as long to start. Each call
opens a new session (a few ms on loopback), so that none expires, and no kazoo thread logs errors,
while a test pauses or stops ZooKeeper.
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
# Errors are raised here; kazoo's log lines about them would only clutter the output of tests.
_silent = logging.getLogger("tests.brokers.kazoo")
_silent.setLevel(logging.CRITICAL + 1)


class Registry:
    """Kafka's nodes in one ZooKeeper."""

    def __init__(self, connect: str) -> None:
        self._connect = connect

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """Return a started kazoo client, for nodes without a method here."""
        client = KazooClient(hosts=self._connect, timeout=10.0, logger=_silent)
        try:
            try:
                client.start(timeout=_CONNECT_TIMEOUT)
            except KazooTimeoutError as error:
                raise HarnessTimeoutError(
                    f"ZooKeeper at {self._connect}: no response within {_CONNECT_TIMEOUT:g} s"
                ) from error
            yield client
        finally:
            try:
                client.stop()
            except AttributeError:
                pass  # a bug of kazoo after a signal during its start; it has stopped anyway
            client.close()

    def broker_ids(self) -> set[int]:
        """Return the brokers whose session has not expired."""
        with self.client() as client:
            try:
                return {int(name) for name in client.get_children("/brokers/ids")}
            except NoNodeError:
                return set()

    def controller(self) -> int | None:
        """Return the node id of the controller."""
        found = self._read("/controller")
        return None if found is None else int(found["brokerid"])

    def remove_broker(self, node_id: int) -> None:
        """Remove the nodes of a killed broker now, before its session expires."""
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
        """Return leader, isr and epochs of each partition that has a state."""
        with self.client() as client:
            return read_partition_states(client, topic)

    def partition_state(self, topic: str, partition: int) -> dict[str, Any]:
        """Return the state of one partition, which must exist."""
        state = self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        if state is None:
            raise HarnessError(f"topic {topic!r}, partition {partition}: no state in ZooKeeper")
        return state

    def has_topic(self, topic: str) -> bool:
        """Return True if the topic exists; its deletion may be in progress."""
        with self.client() as client:
            return client.exists(f"/brokers/topics/{topic}") is not None

    def request_topic_deletion(self, topic: str) -> None:
        """Create the node that makes the controller delete a topic."""
        with self.client() as client:
            client.create(f"/admin/delete_topics/{topic}", b"", makepath=True)

    def write_nodes(self, nodes: Mapping[str, bytes]) -> None:
        """Create nodes that don't exist, with those above them."""
        if not nodes:
            return
        with self.client() as client:
            for path, value in nodes.items():
                client.create(path, value, makepath=True)

    def _read(self, path: str) -> dict[str, Any] | None:
        with self.client() as client:
            try:
                value: dict[str, Any] = json.loads(client.get(path)[0])
            except NoNodeError:
                return None
            return value


def read_partition_states(client: KazooClient, topic: str) -> dict[int, dict[str, Any]]:
    """Return leader, isr and epochs of each partition that has a state."""
    found = {}
    base = f"/brokers/topics/{topic}/partitions"
    try:
        for name in client.get_children(base):
            found[int(name)] = json.loads(client.get(f"{base}/{name}/state")[0])
    except NoNodeError:  # the controller writes the nodes one by one
        pass
    return found


def write_topic(
    client: KazooClient,
    topic: str,
    assignment: Mapping[int, Sequence[int]],
    config: Mapping[str, str] | None,
) -> None:
    """Create the nodes of a topic. At the second one the controller elects leaders."""
    if client.exists(f"/brokers/topics/{topic}") is not None:
        raise HarnessError(f"topic {topic!r}: exists already. Delete it, or choose another name")
    if config is not None:
        # The config comes first: the leader reads it when it creates the log. A deleted topic of
        # the same name may have left one, which is overwritten.
        value = json.dumps({"version": 1, "config": dict(config)}).encode()
        try:
            client.create(f"/config/topics/{topic}", value, makepath=True)
        except NodeExistsError:
            client.set(f"/config/topics/{topic}", value)
    partitions = {str(partition): list(nodes) for partition, nodes in assignment.items()}
    value = json.dumps({"version": 1, "partitions": partitions}).encode()
    client.create(f"/brokers/topics/{topic}", value, makepath=True)
