"""A ZooKeeper that opens a session and then responds no more: a call must end in its own time."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokafka08._core.zookeeper import session
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08._core.zookeeper.topic_states import read_cluster_nodes
from aiokafka08.errors import KafkaConnectionError, KafkaTimeoutError
from tests.brokers.waiting import wait_for
from tests.support.zookeeper import UncheckedZookeeper

TIMEOUT_S = 0.2
_SESSION_TIMEOUT_MS = 1500
"""kazoo gives the connection up after two thirds of it."""


@pytest.fixture
def lost() -> Iterator[str]:
    """A ZooKeeper that responds to nothing but the opening of a session."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_open_one_session, args=(server,))
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def _open_one_session(server: socket.socket) -> None:
    connection, _ = server.accept()
    while not connection.recv(1, socket.MSG_PEEK):  # it only looked whether the port is open
        connection.close()
        connection, _ = server.accept()
    server.close()
    with connection, connection.makefile("rb") as requests:
        _read_frame(requests)
        accepted = struct.pack(">iiqi16s?", 0, _SESSION_TIMEOUT_MS, 1, 16, bytes(16), False)
        connection.sendall(struct.pack(">i", len(accepted)) + accepted)
        requests.read()


def _read_frame(file: Any) -> None:
    file.read(*struct.unpack(">i", file.read(4)))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_children("/"),
        lambda client: client.delete("/a", recursive=True),
        lambda client: client.create("/a/b", b"", makepath=True),
    ],
    ids=["get_children", "delete", "create"],
)
def test_requests_of_a_block_end(lost: str, call: Callable[[Any], object]) -> None:
    with temporary_session(UncheckedZookeeper(lost), TIMEOUT_S, "test.kazoo") as client:
        with pytest.raises(KafkaTimeoutError, match="ZooKeeper doesn't respond in time"):
            call(client)
        wait_for(lambda: not client.connected, 10, "kazoo gives the connection up")
        with pytest.raises(KafkaTimeoutError):  # now kazoo keeps requests until it reconnects
            call(client)


def test_wrong_address_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller would wait for responses much longer, and for a session that can still come."""
    monkeypatch.setattr(session, "OPEN_TIMEOUT_S", 3600)
    with (
        pytest.raises(
            KafkaConnectionError,
            match=r"^\w+: ZooKeeper 127\.0\.0\.1:1 can't be reached: Connection refused$",
        ),
        temporary_session(UncheckedZookeeper("127.0.0.1:1"), 3600, "test.kazoo"),
    ):
        pass


def test_refused_address_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command opens one session after the other: `group describe` took four times two seconds."""
    monkeypatch.setattr(session, "_REFUSED_S", 2.0)
    zookeeper = UncheckedZookeeper("127.0.0.1:1")
    for least, most in ((2.0, 60.0), (0.0, 2.0)):
        began = time.monotonic()
        with (
            pytest.raises(KafkaConnectionError, match=r"Connection refused$"),
            temporary_session(zookeeper, 60, "test.kazoo"),
        ):
            pass
        assert least <= time.monotonic() - began < most


def test_a_slow_server_is_waited_for_though_others_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_REFUSED_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        opening = threading.Timer(0.5, _open_one_session, (server,))
        opening.start()
        address = f"127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}"
        with temporary_session(UncheckedZookeeper(address), 60, "test.kazoo") as client:
            assert client.connected
        opening.join()


def test_a_server_that_is_no_zookeeper_is_told_from_a_closed_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(KafkaConnectionError, match="accepts connections, but doesn't respond"),
            temporary_session(UncheckedZookeeper(address), TIMEOUT_S, "test.kazoo"),
        ):
            pass


def test_check_of_the_chroot_ends(lost: str) -> None:
    with (
        pytest.raises(KafkaTimeoutError, match="ZooKeeper doesn't respond in time"),
        temporary_session(UncheckedZookeeper(f"{lost}/kafka"), TIMEOUT_S, "test.kazoo"),
    ):
        pass


def test_read_of_all_topics_ends(lost: str) -> None:
    with pytest.raises(KafkaTimeoutError, match="ZooKeeper doesn't respond in time"):
        read_cluster_nodes(UncheckedZookeeper(lost), TIMEOUT_S)
