"""`refuse_old_target`: end before anything is copied if the target is below 0.11.

Invariant: only a broker that is known to be of 0.8 to 0.10 is refused. librdkafka may connect where
this package's client can't: to brokers of other makers, with SASL, with other TLS settings.
"""

# Releases below 0.11 have no transactions, in which the bridge writes. To librdkafka they look like
# an outage: it can't connect to 0.8 and 0.9 at all, and refuses 0.10 only when a producer starts.
# So this package's own client asks all bootstrap addresses at once for their releases.

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.tls import ssl_context
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.properties import TLS, is_tls, tls_options
from aiokafka08._core.ranges.range_router import router_config
from aiokafka08._wording import shorten
from aiokafka08.bridge.config import BridgeConfig, TargetConfig
from aiokafka08.bridge.errors import TargetUnreachableError
from aiokafka08.bridge.source.addresses import START_TIMEOUT_MS
from aiokafka08.errors import (
    CertificateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)

_log: Final = logging.getLogger("aiokafka08.bridge")

_TIMEOUT_MS: Final = 30_000
# How long the other addresses may take once one has responded.
_OTHERS_S: Final = 2.0
# Properties for TLS that this package's client knows, too.
_TLS_NAMES: Final = (
    *TLS,
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "enable.ssl.certificate.verification",
)


class _OldBroker(NamedTuple):
    """A broker that is known to be below 0.11."""

    address: Address
    release: str


async def refuse_old_target(config: BridgeConfig) -> None:
    """Verify that no bootstrap address of the target is known to be of a release below 0.11.

    Raises:
        UnsupportedVersionError: a broker is below 0.11.
        TargetUnreachableError: no broker of the target responds.
    """
    if _has_unknown_security(config.target.properties):
        return
    try:
        network = _network(config.target, config.client_id)
    except KafkaError as error:
        # Only a warning, since librdkafka may accept the property or its file all the same. On
        # 0.10 it then refuses to begin a transaction, but commands that only read or commit work.
        _log.warning(
            "%s: the target's release isn't checked; expected 0.11 or later, since the bridge "
            "writes in transactions: %s", config.client_id, error.text,
        )  # fmt: skip
        return
    # One old broker is enough, since the target may be in an upgrade.
    if (old := await _find_old(config.target.bootstrap, network)) is not None:
        raise UnsupportedVersionError(
            f"target.bootstrap={shorten(config.target.bootstrap)}: the broker at "
            f"{address_text(old.address)} is of {old.release}: expected 0.11 or later, since the "
            "bridge writes in transactions. Are the source and the target swapped? Else upgrade "
            "all brokers of the target, or name another cluster"
        )


def _has_unknown_security(properties: Mapping[str, str]) -> bool:
    """Return whether `target.properties` have SASL, or TLS settings that only librdkafka knows."""
    return any(
        name.startswith(("sasl.", "ssl.")) and name not in _TLS_NAMES for name in properties
    ) or properties.get("security.protocol", "").strip().upper().startswith("SASL")


def _network(target: TargetConfig, client_id: str) -> NetConfig:
    """Return the options of this package's client.

    Raises:
        KafkaError: a property for TLS has a wrong value, or its file can't be read.
    """
    properties, prefix = target.properties, "target.properties."
    tls = tls_options(properties, prefix) if is_tls(properties) else None
    return router_config(
        {
            "start_timeout_ms": START_TIMEOUT_MS,
            "request_timeout_ms": _TIMEOUT_MS,
            "bootstrap_servers": target.bootstrap,
            "client_id": client_id,
            "security_protocol": "PLAINTEXT" if tls is None else "SSL",
            "ssl_context": ssl_context(tls, prefix=prefix),
        }
    )


async def _find_old(bootstrap: str, network: NetConfig) -> _OldBroker | None:
    """Return a broker below 0.11; None if none is known to be.

    Raises:
        TargetUnreachableError: no broker responds.
    """
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(_ask(address, network)) for address in network.bootstrap]
    waiting, has_answer = set(asked), False
    deadline: float | None = None
    try:
        while waiting and (deadline is None or loop.time() < deadline):
            left_s = None if deadline is None else deadline - loop.time()
            done, waiting = await asyncio.wait(
                waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for answer in (task.result() for task in done):
                if isinstance(answer, _OldBroker):
                    return answer
                if answer is None:
                    # A broker that isn't known to be old has responded, so the target can be
                    # reached. Wait only a short time for the others.
                    has_answer, deadline = True, deadline or loop.time() + _OTHERS_S
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if not has_answer:
        failed = [error for task in asked if isinstance(error := task.result(), KafkaError)]
        reasons = "; ".join(error.text for error in failed)
        shown = shorten(bootstrap)
        raise TargetUnreachableError(f"target.bootstrap={shown}: no broker responds: {reasons}")
    return None


async def _ask(address: Address, network: NetConfig) -> _OldBroker | KafkaError | None:
    """Return the broker if it is below 0.11, the error if nothing has responded, else None."""
    responses: list[float] = []
    try:
        version = await probe_version(address, network, responded=responses.append, exact=True)
    except UnsupportedVersionError:
        return None  # 4.x
    except KafkaError as error:
        return error if not responses and _is_away(error) else None
    is_old = version.line < BrokerLine.V0_10 or version.release.startswith("0.10")
    return _OldBroker(address, version.release) if is_old else None


def _is_away(error: KafkaError) -> bool:
    """Return whether nothing at the address has responded, not even with a TLS alert."""
    is_tls = isinstance(error.__cause__, ssl.SSLError | ConnectionResetError)
    if is_tls or isinstance(error, CertificateError):
        return False
    return isinstance(error, KafkaConnectionError | KafkaTimeoutError)
