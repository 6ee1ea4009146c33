"""Connecting to a host name when the name can't be resolved."""

from __future__ import annotations

import threading
from typing import NoReturn

import pytest

from aiokafka08.errors import KafkaConnectionError
from aiokafka08.net.connect import connect_to_any_ip, timeout_text
from tests.net.conftest import MakeConfig


async def test_resolving_without_a_thread_fails_retriably(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio resolves names in threads, and the process may have reached its limit of them."""

    def refuse(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    async def connect(ip: str) -> NoReturn:
        raise AssertionError(ip)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    text = "localhost:9092: can't resolve the name: can't start new thread"
    with pytest.raises(KafkaConnectionError, match=text) as caught:
        await connect_to_any_ip(("localhost", 9092), make_config("localhost"), connect, repr)
    assert caught.value.retriable


def test_timeout_is_told_in_milliseconds(make_config: MakeConfig) -> None:
    config, address = make_config("kafka1"), ("kafka1", 9092)
    assert timeout_text(address, config, 1.5) == "kafka1:9092: no connection within 1500 ms"
