"""A registry whose session ends while it registers the member."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08._core.zookeeper.scala_registry import ScalaRegistry
from tests.conformance.contract.zookeeper.conftest import SESSION_S, Ensemble


def test_member_created_in_next_session_is_deleted(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request to create the node is kept, and performed in the session after the one that the
    member is registered for.
    """
    client, other = ensemble.client(), ensemble.client()
    group = ensemble.root.removeprefix("/")
    registry = ScalaRegistry(
        client, "zookeeper:2181", group, SESSION_S, lambda: None, "c", lambda *_: None
    )
    before, create_async = client.client_id, client.create_async

    def create_in_next_session(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        ensemble.end_session(client)
        ensemble.wait_for(lambda: client.client_id not in (None, before))
        return create_async(*arguments, **options)

    monkeypatch.setattr(client, "create_async", create_in_next_session)
    for _ in range(2):  # the consumer registers again, since a session has ended
        registry.register_and_read(frozenset({"t"}))
    assert other.get_children(f"/consumers/{group}/ids") == [registry.member]
