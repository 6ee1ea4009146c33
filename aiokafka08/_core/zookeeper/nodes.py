"""Read and decode nodes that any program may have written, and report those that can't be read.

Invariant: a node that holds something else than expected, or whose ACL refuses this client, becomes
an error that names the node and a remedy. If the node's data was read, the error also shows the
data, and says what was expected. Such a node never keeps other nodes from being read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08 import environment
from aiokafka08._core.zookeeper.results import result_of, wait_for_last
from aiokafka08._wording import shorten
from aiokafka08.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaUnavailableError,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

K = TypeVar("K")
V = TypeVar("V")

NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}|1[0-9]{9}|2(?:0[0-9]|1[0-3])[0-9]{7}")
"""The name of a node of a partition or a broker: a number below 2,140,000,000, so of 32 bits."""
_PARTITION_STATE: Final = "/brokers/topics/[^/]+/partitions/[^/]+/state"
# The remedy for an unreadable node, by the first pattern that matches its path. Invariant: no
# remedy harms a running cluster, or makes an offset look as if it had never existed. Brokers and
# consumers that run own the ephemeral nodes, and the other nodes have no copy.
_REMEDIES: Final = (
    (
        f"/consumers/[^/]+/offsets/[^/]+/(?:{NUMBER.pattern})",
        "Write the offset by a group reset: a deleted node counts as no offset",
    ),
    (
        "/consumers/[^/]+/offsets/.*",
        "No consumer of Kafka 0.8 reads it. Find out what wrote it, and whether it is an offset "
        "(Kafka 0.7 named nodes <broker>-<partition>), before you delete it",
    ),
    (
        "/consumers/[^/]+/(ids|owners)/.*",
        "Stop the consumer that wrote it: its nodes go with its session. Delete a node that stays "
        "only while no consumer of the group runs, else two may read the same partition",
    ),
    (
        f"/brokers/ids/(?:{NUMBER.pattern})",
        "Restart this broker, which writes the node anew; a deleted node would take it out of the "
        "cluster while it runs",
    ),
    ("/brokers/ids/.*", "No broker wrote it, and controllers fail on it: delete it"),
    (
        "/controller",
        "Restart the broker that is the controller, by its controller.log: the next controller "
        "writes the node anew",
    ),
    (
        "/controller_epoch",
        "Write the largest controller_epoch of the nodes /brokers/topics/<topic>/partitions/"
        "<partition>/state: the next controller fails on it",
    ),
    (
        _PARTITION_STATE,
        "Write the leader and the in-sync replicas that the brokers' metadata names, with both "
        "epochs of the leader's state-change.log, and restart the leader: the next controller "
        "fails on it",
    ),
    (
        "/brokers/topics/[^/]+",
        "Write the replicas that the brokers' metadata names, of all partitions, before the next "
        "controller, which fails on it. Don't delete it: it is the topic",
    ),
    (
        "/config/topics/[^/]+",
        "Write all settings of the topic anew: brokers don't start with it. Without the node the "
        "brokers' defaults apply, which may delete messages",
    ),
    (
        "/admin/reassign_partitions",
        "The controller deletes it when a reassignment ends: delete it only if none runs",
    ),
    (
        "/cluster/id",
        "Write the cluster id that the brokers log at their start: brokers make a new one in the "
        "place of a deleted node",
    ),
    (".*", "Find out what wrote it before you change it"),
)
# How many nodes are requested at a time
_IN_FLIGHT: Final = 1000


@dataclass(frozen=True, slots=True)
class UnreadableNode:
    """What an error about a node has in its `args`: the node, and the remedy."""

    path: str
    remedy: str


def remedy_of(error: KafkaError) -> str | None:
    """Return the remedy with which the text of an error about a node ends, else None."""
    nodes = (arg for arg in error.args if isinstance(arg, UnreadableNode))
    return next((node.remedy for node in nodes), None)


def decode_node(
    connect: str, path: str, data: bytes | None, decode: Callable[[bytes], V], expected: str
) -> V | KafkaError:
    """Return the decoded data of a node, or the error that says that it holds something else.

    `decode` may raise any of the errors that are caught below. `expected` is what the error calls
    the right data, such as "an offset".
    """
    # kafka-node creates nodes without data: kazoo then returns None.
    data = data or b""
    try:
        return decode(data)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return unreadable(connect, path, data, expected)


def unreadable(connect: str, path: str, data: bytes, expected: str) -> KafkaError:
    return _error(connect, path, f"holds {shorten(data)}; expected {expected}")


def wrongly_named(connect: str, path: str, noun: str) -> KafkaError:
    return _error(connect, path, f"isn't named after a {noun}")


def refused(connect: str, path: str) -> KafkaError:
    """Return the error about a node whose ACL refuses this client."""
    is_of_group = path.startswith("/consumers/")
    kind = GroupAuthorizationFailedError if is_of_group else ClusterAuthorizationFailedError
    remedy = (
        "Change the ACL, or give an identity that it allows (zookeeper_options; for commands "
        "zookeeper.username and zookeeper.password). getAcl of zkCli.sh shows it; a new node needs "
        "that of its parent"
    )
    node = f"the node {shown_path(path)}" if path else "a node"  # kazoo doesn't always name it
    text = f"the ACL of {node} refuses this client"
    return kind(f"ZooKeeper {connect}: {text}. {remedy}", UnreadableNode(path, remedy))


def _error(connect: str, path: str, text: str) -> KafkaError:
    remedy = next(text for pattern, text in _REMEDIES if re.fullmatch(pattern, path, re.DOTALL))
    return KafkaUnavailableError(
        f"ZooKeeper {connect}: the node {shown_path(path)} {text}. {remedy}",
        UnreadableNode(path, remedy),
    )


def shown_path(path: str) -> str:
    """Return a path as an error shows it: escaped if it wouldn't be readable."""
    return path if path.isprintable() and "  " not in path else repr(path)


class NodeReader:
    """Read many nodes in one session, many at a time. It blocks.

    `timeout_s`: seconds to wait for the responses to each `_IN_FLIGHT` requests before
    KafkaTimeoutError.
    """

    def __init__(self, client: KazooClient, connect: str, timeout_s: float) -> None:
        # The nodes that can't be read, by path, each with its error
        self.errors: dict[str, KafkaError] = {}
        self._client = client
        self.connect = connect
        self._timeout_s = timeout_s

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return the names of the children of each node; missing nodes are left out."""
        return self._request_all(self._client.get_children_async, paths)

    def data(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the data of each node; missing nodes are left out."""
        results = self._request_all(self._client.get_async, paths)
        return {path: data or b"" for path, (data, _) in results.items()}

    def decoded(
        self, paths: Mapping[K, str], decode: Callable[[bytes], V], expected: str
    ) -> dict[K, V]:
        """Return the decoded nodes (`decode_node`); missing and unreadable ones are left out."""
        data = self.data(paths.values())
        values: dict[K, V] = {}
        for key, path in paths.items():
            if path not in data:
                continue
            value = decode_node(self.connect, path, data[path], decode, expected)
            if isinstance(value, KafkaError):
                self.errors[path] = value
            else:
                values[key] = value
        return values

    def _request_all(self, send: Callable[[str], Any], paths: Iterable[str]) -> dict[str, Any]:
        from kazoo.exceptions import NoAuthError, NoNodeError

        waiting = list(paths)
        results: dict[str, Any] = {}
        # ZooKeeper accepts many requests before it has responded to the first.
        for at in range(0, len(waiting), _IN_FLIGHT):
            deadline = environment.monotonic() + self._timeout_s
            sent = {path: send(path) for path in waiting[at : at + _IN_FLIGHT]}
            wait_for_last(sent, deadline)
            for path, request in sent.items():
                try:
                    results[path] = result_of(request, deadline)
                except NoNodeError:
                    pass
                except NoAuthError:
                    self.errors[path] = refused(self.connect, path)
        return results
