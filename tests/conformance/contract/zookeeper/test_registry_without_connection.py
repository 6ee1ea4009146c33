"""A registry whose client has no connection for a while, in a session that goes on."""

from __future__ import annotations

import pytest

from aiokafka08._core.zookeeper.scala_registry import ScalaRegistry
from aiokafka08.errors import KafkaConnectionError
from tests.conformance.contract.zookeeper.conftest import SESSION_S, SimulatedEnsemble

TOPICS = frozenset({"t"})


def test_member_tried_without_connection_is_registered_once() -> None:
    """Without a connection the session isn't known; taken for another one, it kept the old node."""
    ensemble = SimulatedEnsemble()
    client = ensemble.client()
    registry = ScalaRegistry(
        client, "zookeeper:2181", "g", SESSION_S, lambda: None, "c", lambda *_: None
    )
    registry.register_and_read(TOPICS)
    ensemble.server.disconnect(1, [client])
    with pytest.raises(KafkaConnectionError):
        registry.register_and_read(TOPICS)
    ensemble.wait_for(lambda: client.client_id is not None)
    registry.register_and_read(TOPICS)
    assert client.get_children_async("/consumers/g/ids").get() == [registry.member]
