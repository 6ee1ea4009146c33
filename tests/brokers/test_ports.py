"""`ports`: which ports brokers get."""

from __future__ import annotations

import socket

import pytest

from tests.brokers import ports


@pytest.fixture(autouse=True)
def nothing_given_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_left", [])


def test_ports_are_unique() -> None:
    """So a broker that is down finds its port free when it starts again."""
    given = [ports.free_port() for _ in range(800)]
    assert len(set(given)) == len(given)


def test_port_in_use_is_skipped() -> None:
    taken = ports.free_port()
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in {ports.free_port() for _ in range(5000)}


def test_parallel_workers_get_distinct_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    for worker in ("0", "1", "2"):
        monkeypatch.setattr(ports, "_WORKER", worker)
        monkeypatch.setattr(ports, "_left", [])
        given.append({ports.free_port() for _ in range(1000)})
    assert not given[0] & given[1] | given[1] & given[2] | given[0] & given[2]
