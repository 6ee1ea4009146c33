"""`deletion_state` while the controller deletes the topic between its two reads."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from aiokafka08._core.zookeeper.topic_nodes import TopicNodes
from tests.support.zookeeper import UncheckedZookeeper


class DeletingController:
    """ZooKeeper; between two reads the controller deletes the topic and then the request."""

    def __init__(self) -> None:
        self.nodes = {"/brokers/topics/t", "/admin/delete_topics/t"}

    def exists(self, path: str) -> object:
        found = object() if path in self.nodes else None
        self.nodes.clear()
        return found


def test_deletion_between_the_reads_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that exists without a request would be one that the brokers refuse to delete."""
    nodes, controller = TopicNodes(UncheckedZookeeper("localhost:1"), 1.0), DeletingController()

    def session() -> Any:
        return contextlib.nullcontext(controller)

    monkeypatch.setattr(nodes, "_session", session)
    assert nodes.deletion_state("t") == (False, True)
    assert nodes.deletion_state("t") == (False, False)
