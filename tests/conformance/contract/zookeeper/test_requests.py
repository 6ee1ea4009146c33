"""Requests on nodes: results, stats, and kazoo's exceptions."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

from tests.conformance.contract.zookeeper.conftest import Ensemble


@pytest.fixture
def client(ensemble: Ensemble) -> Any:
    client = ensemble.client()
    assert client.create(ensemble.root, b"root") == ensemble.root
    return client


def test_node_keeps_data_and_counts_writes(client: Any, ensemble: Ensemble) -> None:
    data, stat = client.get(ensemble.root)
    assert (data, stat.version, stat.ephemeralOwner) == (b"root", 0, 0)
    assert (stat.dataLength, stat.numChildren, stat.cversion) == (4, 0, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid
    assert stat.ctime == stat.mtime > 10**11
    written = client.set(ensemble.root, b"second")
    assert (written.version, written.dataLength) == (1, 6)
    assert written.czxid == stat.czxid < written.mzxid
    assert client.exists(ensemble.root) == written
    assert client.get_async(ensemble.root).get(timeout=10) == (b"second", written)


def test_children_are_listed_and_counted(client: Any, ensemble: Ensemble) -> None:
    for name in ("b", "a", "c"):
        client.create(f"{ensemble.root}/{name}")
    assert sorted(client.get_children(ensemble.root)) == ["a", "b", "c"]
    client.delete(f"{ensemble.root}/b")
    assert sorted(client.get_children_async(ensemble.root).get(timeout=10)) == ["a", "c"]
    stat = client.exists(ensemble.root)
    assert (stat.numChildren, stat.cversion, stat.version) == (2, 4, 0)
    assert stat.pzxid > stat.mzxid


def test_missing_node_is_an_error_except_for_exists(client: Any, ensemble: Ensemble) -> None:
    path = f"{ensemble.root}/none"
    assert client.exists(path) is None
    for request in (
        lambda: client.get(path),
        lambda: client.set(path, b""),
        lambda: client.delete(path),
        lambda: client.get_children(path),
        lambda: client.create(f"{path}/child"),
        lambda: client.get_async(path).get(timeout=10),
        lambda: client.delete_async(path).get(timeout=10),
    ):
        with pytest.raises(NoNodeError):
            request()
    assert client.delete(path, recursive=True) is True


def test_version_is_compared(client: Any, ensemble: Ensemble) -> None:
    client.set(ensemble.root, b"one", version=0)
    with pytest.raises(BadVersionError):
        client.set(ensemble.root, b"two", version=0)
    with pytest.raises(BadVersionError):
        client.delete(ensemble.root, version=0)
    assert client.get(ensemble.root)[0] == b"one"
    client.delete(ensemble.root, version=1)
    assert client.exists(ensemble.root) is None


def test_existing_node_and_full_node_are_kept(client: Any, ensemble: Ensemble) -> None:
    client.create(f"{ensemble.root}/a/b/c", b"deep", makepath=True)
    assert client.get(f"{ensemble.root}/a/b")[0] == b""
    for makepath in (False, True):
        with pytest.raises(NodeExistsError):
            client.create(f"{ensemble.root}/a/b/c", makepath=makepath)
    with pytest.raises(NotEmptyError):
        client.delete(f"{ensemble.root}/a")
    client.delete(f"{ensemble.root}/a", recursive=True)
    assert client.get_children(ensemble.root) == []


def test_sequence_counts_the_creations_of_the_parent(client: Any, ensemble: Ensemble) -> None:
    def create(name: str) -> str:
        path: str = client.create(f"{ensemble.root}/s/{name}", sequence=True, makepath=True)
        return path.removeprefix(f"{ensemble.root}/s/")

    assert create("change_") == "change_0000000000"
    client.create(f"{ensemble.root}/s/plain")
    assert create("change_") == "change_0000000002"
    client.delete(f"{ensemble.root}/s/change_0000000002")
    assert create("other_") == "other_0000000003"


def test_ephemeral_node_has_an_owner_and_no_children(client: Any, ensemble: Ensemble) -> None:
    path = f"{ensemble.root}/ids/me"
    client.create_async(path, b"x", ephemeral=True, makepath=True).get(timeout=10)
    assert client.get(path)[1].ephemeralOwner == client.client_id[0]
    assert client.exists(f"{ensemble.root}/ids").ephemeralOwner == 0
    with pytest.raises(NoChildrenForEphemeralsError):
        client.create(f"{path}/child")


def test_ephemeral_nodes_go_with_their_session(client: Any, ensemble: Ensemble) -> None:
    other = ensemble.client()
    other.create(f"{ensemble.root}/e", ephemeral=True)
    other.create(f"{ensemble.root}/p")
    other.stop()
    other.close()
    ensemble.wait_for(lambda: client.get_children(ensemble.root) == ["p"])


def test_chroot_is_put_before_each_path(client: Any, ensemble: Ensemble) -> None:
    inside = ensemble.client()
    inside.chroot = ensemble.root
    assert inside.create("/a/b", b"1", makepath=True) == "/a/b"
    assert inside.get_children("/") == ["a"]
    assert client.get(f"{ensemble.root}/a/b")[0] == b"1"
    assert inside.get("/")[0] == b"root"


def test_stopped_client_refuses_requests(client: Any, ensemble: Ensemble) -> None:
    client.stop()
    client.stop()
    client.close()
    assert client.client_id is None
    for request in (
        lambda: client.get(ensemble.root),
        lambda: client.set_async(ensemble.root, b"").get(timeout=10),
    ):
        with pytest.raises(ConnectionClosedError):
            request()


def test_functions_are_called_with_results(client: Any, ensemble: Ensemble) -> None:
    called: list[tuple[str, bool]] = []

    def link(name: str, request: Any) -> None:
        request.rawlink(lambda result: called.append((name, result.successful())))

    link("found", client.get_async(ensemble.root))
    ensemble.wait_for(lambda: called == [("found", True)])
    link("missing", client.get_async(f"{ensemble.root}/missing"))
    ensemble.wait_for(lambda: called[1:] == [("missing", False)])
    done = client.exists_async(ensemble.root)
    assert done.get(timeout=10)
    link("done", done)
    ensemble.wait_for(lambda: called[2:] == [("done", True)])
