"""`open_target`: connect to a broker of the target, with the TLS and SASL of the options.

All connections of the gateway to the target are made here: those that serve clients, and its own.

Invariant: a connection that is returned is authenticated. A failure is a `KafkaError` that says
what is wrong, without secrets.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka08._core.net import config
from aiokafka08._core.net.authentication import AuthenticatedStream, open_session
from aiokafka08._core.net.config import Address, BootstrapServers, NetConfig, address_text
from aiokafka08._core.net.connect import is_own_shortage
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.api import ApiKey

CLIENT_ID: Final = "aiokafka08-gateway"
CONNECT_TIMEOUT_S: Final = 10.0

_VERSION: Final = BrokerVersion(BrokerLine.V0_10, {ApiKey.SASL_AUTHENTICATE: range(1)})
"""The version to assume before a broker was asked for its versions. With it, SASL begins with the
request SaslHandshake, not with a bare token."""


def target_network(targets: BootstrapServers, **options: Any) -> NetConfig:
    """Return the options for connections to these brokers, by default without TLS and SASL.

    Args:
        targets: addresses of brokers.
        options: options of this package's clients, in place of their defaults.

    Raises:
        KafkaError: an option is wrong, or an extra isn't installed.
    """
    values = {**config.NETWORK_DEFAULTS, **options, "bootstrap_servers": targets}
    return config.net_config(**{**values, "client_id": CLIENT_ID})


async def open_target(address: Address, network: NetConfig) -> AuthenticatedStream:
    """Connect to a broker, within `CONNECT_TIMEOUT_S`.

    Raises:
        KafkaError: the broker can't be reached, or refuses the gateway.
    """
    return await open_session(address, network, _VERSION, CONNECT_TIMEOUT_S)


async def why_unreachable(address: Address, network: NetConfig, *, own: bool = True) -> str | None:
    """Return why a broker can't be reached, or refuses the gateway; None if neither is so.

    With `own=False`, also return None if this machine lacks descriptors, ports or memory.
    """
    try:
        session = await open_target(address, network)
    except KafkaError as error:
        if not own and is_own_shortage(error):
            return None
        return error.text.removeprefix(f"{address_text(address)}: ")
    await session.stream.close()
    return None
