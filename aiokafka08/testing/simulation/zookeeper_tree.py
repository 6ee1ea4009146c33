"""The nodes of a simulated ZooKeeper: data, versions, ephemeral owners, children.

Pure: no session, no clock, no watch.

Invariant: each change returns the events that a real ZooKeeper triggers for it, in ZooKeeper's
order; a change that fails raises kazoo's exception and changes nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kazoo.exceptions import ZookeeperError

EventKind = Literal["CREATED", "DELETED", "CHANGED", "CHILD"]
# An event, by kazoo's name, and the path of the node.
WatchEvent = tuple[EventKind, str]


@dataclass(slots=True)
class TreeNode:
    """One node.

    Attributes:
        data: the bytes that clients have written.
        owner: the session of an ephemeral node; 0 for any other.
        created: transaction and time in ms of the creation.
        modified: transaction and time in ms of the last write.
        version: the number of writes since the creation.
        creations: the number of children ever created; the number of the next sequence node.
        changed_children: transaction of the last creation or deletion of a child.
        children: the children by name.
    """

    data: bytes
    owner: int
    created: tuple[int, int]
    modified: tuple[int, int]
    version: int = 0
    creations: int = 0
    changed_children: int = 0
    children: dict[str, TreeNode] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of the children, in an order that is neither sorted nor of creation."""
        return sorted(self.children, key=lambda name: (zlib.crc32(name.encode()), name))

    def stat(self) -> Any:
        """Return kazoo's ZnodeStat."""
        from kazoo.protocol.states import ZnodeStat

        return ZnodeStat(
            self.created[0],
            self.modified[0],
            self.created[1],
            self.modified[1],
            self.version,
            self.creations * 2 - len(self.children),  # cversion: creations and deletions
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.changed_children or self.created[0],
        )


class Tree:
    """The nodes by their paths.

    Attributes:
        last_transaction: the number of the last change.
    """

    def __init__(self) -> None:
        self.last_transaction = 0
        self._root = TreeNode(b"", 0, (0, 0), (0, 0))

    def contents(self) -> dict[str, bytes]:
        """Return the data of all nodes by their paths."""
        return {path: node.data for path, node in self._walk("/", self._root)}

    def find(self, path: str) -> TreeNode | None:
        """Return a node; None if it doesn't exist."""
        node = self._root
        for name in _names(path):
            child = node.children.get(name)
            if child is None:
                return None
            node = child
        return node

    def node(self, path: str) -> TreeNode:
        """Return a node that must exist.

        Raises:
            NoNodeError: it doesn't.
        """
        node = self.find(path)
        if node is None:
            raise _error("NoNodeError", path)
        return node

    def create(
        self, path: str, data: bytes, now_ms: int, *, owner: int = 0, sequence: bool = False
    ) -> tuple[str, list[WatchEvent]]:
        """Create a node; return its path and the events.

        Args:
            path: the path of the node; with `sequence` the beginning of it.
            data: its data.
            now_ms: the wall-clock time.
            owner: the session of an ephemeral node; 0 for any other.
            sequence: whether a number is appended that no sibling has had.

        Raises:
            NoNodeError: there is no parent.
            NoChildrenForEphemeralsError: the parent is ephemeral.
            NodeExistsError: the node exists.
        """
        parent_path, name = split(path)
        parent = self.node(parent_path)
        if sequence:
            name += f"{parent.creations:010d}"
        path = join(parent_path, name)
        if name in parent.children or not name:
            raise _error("NodeExistsError", path)
        if parent.owner:
            raise _error("NoChildrenForEphemeralsError", path)
        at = (self._next_transaction(), now_ms)
        parent.creations += 1
        parent.changed_children = at[0]
        parent.children[name] = TreeNode(data, owner, at, at)
        return path, [("CREATED", path), ("CHILD", parent_path)]

    def set(self, path: str, data: bytes, now_ms: int, version: int = -1) -> list[WatchEvent]:
        """Write a node's data; return the events.

        Args:
            path: the path of the node.
            data: the new data.
            now_ms: the wall-clock time.
            version: the version that it must have; -1: any.

        Raises:
            NoNodeError: there is no such node.
            BadVersionError: it has another version.
        """
        node = self.node(path)
        _check_version(node, path, version)
        node.data = data
        node.version += 1
        node.modified = (self._next_transaction(), now_ms)
        return [("CHANGED", path)]

    def delete(self, path: str, version: int = -1) -> list[WatchEvent]:
        """Delete a node without children; return the events.

        Raises:
            NoNodeError: there is no such node.
            BadVersionError: it has another version.
            NotEmptyError: it has children.
        """
        node = self.node(path)
        _check_version(node, path, version)
        if node.children:
            raise _error("NotEmptyError", path)
        parent_path, name = split(path)
        parent = self.node(parent_path)
        parent.changed_children = self._next_transaction()
        del parent.children[name]
        return [("DELETED", path), ("CHILD", parent_path)]

    def ephemerals(self, owner: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes."""
        return [path for path, node in self._walk("/", self._root) if node.owner == owner]

    def _walk(self, path: str, node: TreeNode) -> Iterator[tuple[str, TreeNode]]:
        yield path, node
        for name, child in node.children.items():
            yield from self._walk(join(path, name), child)

    def _next_transaction(self) -> int:
        self.last_transaction += 1
        return self.last_transaction


def split(path: str) -> tuple[str, str]:
    """Return the path of the parent and the name of the node."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def join(parent: str, name: str) -> str:
    """Return the path of a child."""
    return f"{parent.rstrip('/')}/{name}"


def _names(path: str) -> list[str]:
    if not path.startswith("/"):
        raise _error("BadArgumentsError", path)
    return [name for name in path.split("/") if name]


def _check_version(node: TreeNode, path: str, version: int) -> None:
    if version not in (-1, node.version):
        raise _error("BadVersionError", path)


def _error(name: str, path: str) -> ZookeeperError:
    """Return kazoo's exception; without kazoo there is no client that could see it."""
    from kazoo import exceptions

    error: ZookeeperError = getattr(exceptions, name)(f"{name}: {path}")
    return error
