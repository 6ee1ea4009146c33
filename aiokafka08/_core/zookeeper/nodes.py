"""Read and decode nodes, and keep apart those that can't be read: the only place that decodes.

Anybody may have written a node: an old tool, an admin's hand, a broker that died in between. So
each module of `_core.zookeeper` gives its decoder to `decode_node`, or reads through a
`NodeReader`.

Invariant: a node that holds something else than expected, or whose ACL refuses this client, is an
error of its own, which names the node, what it holds and what is expected. It never keeps another
node from being read, and a decoder never raises another exception.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08 import environment
from aiokafka08._core.zookeeper.results import result_of, wait_for_last
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

NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
"""The name of a node of a partition or a broker."""
_IN_FLIGHT: Final = 1000
"""How many nodes are requested at a time."""
_SHOWN: Final = 100
"""How many bytes of a node an error shows."""


def decode_node(
    connect: str, path: str, data: bytes, decode: Callable[[bytes], V], expected: str
) -> V | KafkaError:
    """Return what a node holds, or the error that says that it holds something else.

    Args:
        connect: the address of ZooKeeper, for the error.
        path: the node.
        data: its data.
        decode: decodes the data; it may raise what reading a foreign value raises.
        expected: what the node should hold, for the error, such as "an offset".
    """
    try:
        return decode(data)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return unreadable(connect, path, data, expected)


def unreadable(connect: str, path: str, data: bytes, expected: str) -> KafkaError:
    """Return the error about a node that holds something else than expected."""
    more = "…" if len(data) > _SHOWN else ""
    return KafkaUnavailableError(
        f"ZooKeeper {connect}: the node {shown_path(path)} holds {data[:_SHOWN]!r}{more}; expected "
        f"{expected}"
    )


def refused(connect: str, path: str) -> KafkaError:
    """Return the error about a node whose ACL refuses this client."""
    is_of_group = path.startswith("/consumers/")
    kind = GroupAuthorizationFailedError if is_of_group else ClusterAuthorizationFailedError
    return kind(f"ZooKeeper {connect}: the ACL of the node {shown_path(path)} refuses this client")


def shown_path(path: str) -> str:
    """Return a path as an error shows it: as it is, or escaped if that wouldn't be readable."""
    return path if path.isprintable() and "  " not in path else repr(path)


def json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a node's data.

    Raises:
        ValueError: it holds something else.
    """
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    return fields


class NodeReader:
    """Read many nodes in one session, many at a time. It blocks.

    Args:
        client: of an open session.
        connect: the address of ZooKeeper, for errors.
        timeout_s: seconds to wait for the responses to a thousand requests.

    Attributes:
        errors: the nodes that can't be read, by path, each with its error.
    """

    def __init__(self, client: KazooClient, connect: str, timeout_s: float) -> None:
        self.errors: dict[str, KafkaError] = {}
        self._client = client
        self._connect = connect
        self._timeout_s = timeout_s

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return the names of the children of each node; missing nodes are left out.

        Raises:
            KafkaTimeoutError: ZooKeeper doesn't respond in time.
        """
        return self._request_all(self._client.get_children_async, paths)

    def data(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the data of each node; missing nodes are left out. Raises as `children`."""
        results = self._request_all(self._client.get_async, paths)
        return {path: data for path, (data, _) in results.items()}

    def decoded(
        self, paths: Mapping[K, str], decode: Callable[[bytes], V], expected: str
    ) -> dict[K, V]:
        """Return what each node holds; missing and unreadable ones are left out.

        Args:
            paths: the nodes.
            decode, expected: as for `decode_node`.

        Raises:
            KafkaTimeoutError: ZooKeeper doesn't respond in time.
        """
        data = self.data(paths.values())
        values: dict[K, V] = {}
        for key, path in paths.items():
            if path not in data:
                continue
            value = decode_node(self._connect, path, data[path], decode, expected)
            if isinstance(value, KafkaError):
                self.errors[path] = value
            else:
                values[key] = value
        return values

    def _request_all(self, send: Callable[[str], Any], paths: Iterable[str]) -> dict[str, Any]:
        from kazoo.exceptions import NoAuthError, NoNodeError

        waiting = list(paths)
        results: dict[str, Any] = {}
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
                    self.errors[path] = refused(self._connect, path)
        return results
