"""Fixtures of the network layer's tests: configurations and recorded events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08._core.net.config import NETWORK_DEFAULTS, NetConfig, net_config
from aiokafka08._core.net.limits import NetLimits
from aiokafka08.telemetry import Event, Telemetry

MakeConfig = Callable[..., NetConfig]


@pytest.fixture
def make_config() -> MakeConfig:
    """A configuration with short times; arguments as of `net_config`, and `limits`."""

    def make(
        bootstrap_servers: Any = "127.0.0.1:1", limits: NetLimits | None = None, **options: Any
    ) -> NetConfig:
        defaults: dict[str, Any] = {
            **NETWORK_DEFAULTS,
            "client_id": "tests",
            "request_timeout_ms": 5000,
            "retry_backoff_ms": 20,
            "security_protocol": "PLAINTEXT" if options.get("ssl_context") is None else "SSL",
        }
        config = net_config(bootstrap_servers=bootstrap_servers, **defaults | options)
        return config if limits is None else replace(config, limits=limits)

    return make


class Recorder(Telemetry):
    """A telemetry that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        super().__init__(self.events.append)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if type(event) is kind]


@pytest.fixture
def telemetry() -> Recorder:
    return Recorder()
