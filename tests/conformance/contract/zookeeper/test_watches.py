"""Watches, and what a client learns of its connection and its session."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from tests.conformance.contract.zookeeper.conftest import Ensemble


class Watch:
    """A function that keeps the events it is called with."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str | None]] = []

    def __call__(self, event: Any) -> None:
        self.events.append((event.type, event.path))


@pytest.fixture
def clients(ensemble: Ensemble) -> tuple[Any, Any]:
    """One that watches, and one that changes things."""
    one, two = ensemble.client(), ensemble.client()
    one.create(ensemble.root)
    return one, two


def _settle(ensemble: Ensemble, client: Any, other: Any) -> None:
    """Wait until the client has got all events so far: those of a new watch come last."""
    last = Watch()
    path = f"{ensemble.root}-settled"
    client.exists(path, watch=last)
    other.create(path)
    ensemble.wait_for(lambda: last.events)
    other.delete(path)


def test_data_watch_is_called_once(ensemble: Ensemble, clients: tuple[Any, Any]) -> None:
    client, other = clients
    watch = Watch()
    client.get(ensemble.root, watch=watch)
    other.set(ensemble.root, b"1")
    other.set(ensemble.root, b"2")
    _settle(ensemble, client, other)
    assert watch.events == [("CHANGED", ensemble.root)]


def test_same_watch_on_a_node_is_called_once(ensemble: Ensemble, clients: tuple[Any, Any]) -> None:
    client, other = clients
    watch = Watch()
    client.get(ensemble.root, watch=watch)
    client.exists(ensemble.root, watch=watch)
    other.delete(ensemble.root)
    _settle(ensemble, client, other)
    assert watch.events == [("DELETED", ensemble.root)]


def test_deletion_calls_watches_of_data_and_children(
    ensemble: Ensemble, clients: tuple[Any, Any]
) -> None:
    client, other = clients
    watch = Watch()
    client.get(ensemble.root, watch=watch)
    client.get_children(ensemble.root, watch=watch)
    other.delete(ensemble.root)
    _settle(ensemble, client, other)
    assert watch.events == [("DELETED", ensemble.root)] * 2


def test_exists_watches_a_missing_node(ensemble: Ensemble, clients: tuple[Any, Any]) -> None:
    client, other = clients
    watch, failed = Watch(), Watch()
    path = f"{ensemble.root}/new"
    assert client.exists_async(path, watch=watch).get(timeout=10) is None
    for request in (client.get, client.get_children):
        with pytest.raises(NoNodeError):
            request(path, watch=failed)
    other.create(path)
    _settle(ensemble, client, other)
    assert watch.events == [("CREATED", path)]
    assert failed.events == []


def test_child_watch_sees_names_but_no_data(ensemble: Ensemble, clients: tuple[Any, Any]) -> None:
    client, other = clients
    other.create(f"{ensemble.root}/a")
    first, second = Watch(), Watch()
    client.get_children(ensemble.root, watch=first)
    other.set(f"{ensemble.root}/a", b"x")
    other.create(f"{ensemble.root}/a/below")
    _settle(ensemble, client, other)
    assert first.events == []
    other.create(f"{ensemble.root}/b")
    ensemble.wait_for(lambda: first.events)
    client.get_children(ensemble.root, watch=second)
    other.delete(f"{ensemble.root}/b")
    _settle(ensemble, client, other)
    assert first.events == second.events == [("CHILD", ensemble.root)]


def test_watch_path_is_without_chroot(ensemble: Ensemble, clients: tuple[Any, Any]) -> None:
    client, other = clients
    watch = Watch()
    client.chroot = ensemble.root
    client.exists("/new", watch=watch)
    other.create(f"{ensemble.root}/new")
    ensemble.wait_for(lambda: watch.events)
    assert watch.events == [("CREATED", "/new")]


def test_lost_connection_calls_all_watches(ensemble: Ensemble, clients: tuple[Any, Any]) -> None:
    """kazoo doesn't set them again: the caller must look again."""
    client, other = clients
    client.create(f"{ensemble.root}/e", ephemeral=True)
    states: list[str] = []
    client.add_listener(lambda state: states.append(str(state)))
    watch, session = Watch(), client.client_id
    client.get(ensemble.root, watch=watch)
    client.get_children(ensemble.root, watch=watch)
    ensemble.break_connection(client)
    ensemble.wait_for(lambda: states[-1:] == ["CONNECTED"] and watch.events)
    assert states == ["SUSPENDED", "CONNECTED"]
    assert set(watch.events) == {("NONE", None)}
    assert client.client_id == session
    assert other.exists(f"{ensemble.root}/e") is not None
    called = len(watch.events)
    other.set(ensemble.root, b"x")
    _settle(ensemble, client, other)
    assert len(watch.events) == called


def test_ended_session_is_replaced_by_a_new_one(
    ensemble: Ensemble, clients: tuple[Any, Any]
) -> None:
    client, other = clients
    client.create(f"{ensemble.root}/e", ephemeral=True)
    states: list[str] = []
    client.add_listener(lambda state: states.append(str(state)))
    mine, theirs, session = Watch(), Watch(), client.client_id
    client.get_children(ensemble.root, watch=mine)
    other.exists(f"{ensemble.root}/e", watch=theirs)
    ensemble.end_session(client)
    ensemble.wait_for(lambda: states[-1:] == ["CONNECTED"] and mine.events and theirs.events)
    assert states == ["SUSPENDED", "LOST", "CONNECTED"]
    assert theirs.events == [("DELETED", f"{ensemble.root}/e")]
    assert mine.events[-1] == ("NONE", None) or mine.events == [("CHILD", ensemble.root)]
    assert client.client_id != session
    assert client.get_children(ensemble.root) == []
    assert client.create(f"{ensemble.root}/e", ephemeral=True)
