"""`ports`: which ports brokers get."""

from __future__ import annotations

import socket

import pytest

from tests.brokers import ports


@pytest.fixture(autouse=True)
def nothing_given_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_left", [])
    monkeypatch.setattr(ports, "_rows_left", [])


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


def test_rows_of_ports_are_of_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway's further listeners meet no port of another worker, nor of another gateway."""
    given = [ports.free_port() for _ in range(1000)]
    for worker in ("0", "1", "2"):
        monkeypatch.setattr(ports, "_WORKER", worker)
        monkeypatch.setattr(ports, "_rows_left", [])
        for first in [ports.free_ports() for _ in range(70)]:
            given += range(first, first + 8)
    assert len(set(given)) == len(given)


def test_row_with_a_port_in_use_is_skipped() -> None:
    first = ports.free_ports()
    with socket.create_server(("127.0.0.1", first + 7)):
        assert first not in {ports.free_ports() for _ in range(100)}
