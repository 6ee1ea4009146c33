"""`old_release`: whether the target is of 0.8 to 0.10, asked of all bootstrap addresses at once.

Invariant: only a broker that is known to be of 0.8 to 0.10 makes a target old. librdkafka may
connect where this package's client can't: to brokers of other makers, with other TLS settings.
"""

from __future__ import annotations

import asyncio
import ssl
from enum import Enum

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.old_target import has_unknown_security, target_network
from aiokafka08.consumer.range_router import router_config
from aiokafka08.errors import (
    CertificateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from aiokafka08.net.config import Address, NetConfig
from aiokafka08.net.probe import probe_version
from aiokafka08.net.versions import BrokerLine
from aiokafka08.properties import shorten

_OTHERS_S = 2.0
"""How long the other addresses may take once one has answered."""


class _Modern(Enum):
    """What an address tells that isn't known to be old."""

    PROVEN = "0.11 or later"
    UNPROVEN = "no release that this client knows"


async def old_release(config: BridgeConfig) -> str | None:
    """Return the release of a target below 0.11; None if the target isn't known to be old.

    One old broker among the bootstrap addresses makes the target old: it may be in an upgrade. All
    parts of a process get what the first one has found for `config`, or a copy of it. An answer
    that proves nothing isn't kept, nor 0.8 without the line: 0.8.0 and 0.8.1 can't be targets.

    Args:
        config: the file of the bridge.

    Raises:
        TargetUnavailableError: no broker of the target responds.
    """
    found = config.target.found
    if not found.is_known and not has_unknown_security(config.target.properties):
        try:
            network = router_config(target_network(config, probe=True))
        except KafkaError:
            return None
        answer = await _ask_all(config.target.bootstrap, network)
        release = answer if isinstance(answer, str) else None
        if answer is _Modern.UNPROVEN or release == str(BrokerLine.V0_8):
            return release
        found.keep(release)
    return found.release


async def _ask_all(bootstrap: str, network: NetConfig) -> str | _Modern:
    """Return the release of an old broker, or else what the others say."""
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(_ask(address, network)) for address in network.bootstrap]
    waiting, answers = set(asked), set[_Modern]()
    deadline: float | None = None
    try:
        while waiting and (deadline is None or loop.time() < deadline):
            left_s = None if deadline is None else deadline - loop.time()
            done, waiting = await asyncio.wait(
                waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for answer in (one.result() for one in done):
                if isinstance(answer, str):
                    return answer
                if isinstance(answer, _Modern):
                    answers.add(answer)
                    deadline = deadline or loop.time() + _OTHERS_S
    finally:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if not answers:
        failed = [error for one in asked if isinstance(error := one.result(), KafkaError)]
        reasons = "; ".join(error.text for error in failed)
        given = shorten(bootstrap)
        raise TargetUnavailableError(f"target.bootstrap={given}: no broker responds: {reasons}")
    return _Modern.PROVEN if _Modern.PROVEN in answers else _Modern.UNPROVEN


async def _ask(address: Address, network: NetConfig) -> str | _Modern | KafkaError:
    """Return the release of an old broker, another answer, or why there is none."""
    responses: list[float] = []
    try:
        version = await probe_version(address, network, responded=responses.append, exact=True)
    except UnsupportedVersionError:
        return _Modern.PROVEN  # 4.x
    except KafkaError as error:
        return error if not responses and _is_away(error) else _Modern.UNPROVEN
    is_old = version.line < BrokerLine.V0_10 or version.release.startswith("0.10")
    return version.release if is_old else _Modern.PROVEN


def _is_away(error: KafkaError) -> bool:
    """Return whether nothing at the address has responded, not even with a TLS alert."""
    is_tls = isinstance(error.__cause__, ssl.SSLError | ConnectionResetError)
    if is_tls or isinstance(error, CertificateError):
        return False
    return isinstance(error, KafkaConnectionError | KafkaTimeoutError)
