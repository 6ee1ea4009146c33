"""`open_range_router`: a router for programs that read ranges of offsets without a consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka08._core.net.config import NETWORK_DEFAULTS, NetConfig, net_config
from aiokafka08._core.net.router import Router
from aiokafka08.telemetry import Telemetry


def router_config(network: Mapping[str, Any]) -> NetConfig:
    """Return the checked options of a router.

    `network` has a client's arguments about its connections; others have the client's defaults.
    Raises KafkaError if a value is wrong, or isn't supported.
    """
    return net_config(**{**NETWORK_DEFAULTS, **network})


@asynccontextmanager
async def open_range_router(network: Mapping[str, Any]) -> AsyncIterator[Router]:
    """Yield a started router for `range_reader.read_range`; it sees all topics, and creates none.

    Raises as `router_config`, and KafkaError if no broker responds.
    """
    config = router_config(network)
    router = Router(config, Telemetry(client_id=config.client_id))
    router.metadata.all_topics, router.metadata.may_create_topics = True, False
    await router.start()
    try:
        yield router
    finally:
        await router.stop()
