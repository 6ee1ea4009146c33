"""Connecting to a host name when the name can't be resolved."""

from __future__ import annotations

import ssl
import threading
from typing import NoReturn

import pytest

from aiokafka08._core.net.connect import connection_error, ip_addresses, timeout_text
from aiokafka08.errors import KafkaConnectionError
from tests._core.net.conftest import MakeConfig


@pytest.mark.asyncio_loop
async def test_resolving_without_a_thread_fails_retriably(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio resolves names in threads, and the process may have reached its limit of them."""

    def refuse(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    text = "localhost:9092: can't resolve the name: can't start new thread"
    with pytest.raises(KafkaConnectionError, match=text) as caught:
        await ip_addresses(("localhost", 9092), make_config("localhost"), 10)
    assert caught.value.retriable


async def test_broker_without_an_address_is_not_this_machine(make_config: MakeConfig) -> None:
    """Brokers of 0.8 name a newer one that listens for TLS only so (docs/brokers.md 4.14)."""
    for port in (-1, 9092):
        with pytest.raises(KafkaConnectionError, match="listens for TLS or SASL only") as caught:
            await ip_addresses(("", port), make_config("localhost"), 10)
        assert caught.value.retriable


def test_timeout_is_told_in_milliseconds(make_config: MakeConfig) -> None:
    config, address = make_config("kafka1"), ("kafka1", 9092)
    assert timeout_text(address, config, 1.5) == "kafka1:9092: no connection within 1500 ms"


def test_only_a_lost_handshake_is_named_as_one(make_config: MakeConfig) -> None:
    address, reset = ("kafka1", 9092), ConnectionResetError(104, "Connection reset by peer")
    plain = make_config("kafka1")
    tls = make_config("kafka1", security_protocol="SSL", ssl_context=ssl.create_default_context())
    assert "TLS" not in str(connection_error(address, plain, reset))
    assert "Check that the port is a TLS listener" in str(connection_error(address, tls, reset))
    for other in (ConnectionRefusedError(111, "refused"), OSError(113, "No route to host")):
        assert "TLS" not in str(connection_error(address, tls, other))
