"""A target that refuses the gateway while it runs: the log has the reason, clients are refused.

When it takes the gateway again, clients are served. `tests/sasl/test_gateway_on_brokers.py` has the
same with real brokers, and what ends the start.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from pathlib import Path

import pytest

from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08.helpers import create_ssl_context
from aiokafka08.protocol.api import ApiKey
from tests._tools.gateway.gateways import (
    RawClient,
    ScriptedBroker,
    first_port,
    make_certificate,
    running,
)
from tests._tools.gateway.test_target_sessions import SaslBroker, network_to
from tests.brokers.ports import accepts
from tests.support.waiting import until

pytestmark = pytest.mark.fast

CLOSED = "node 0: not listening until it can be reached"


async def until_refused(gateway: Gateway, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """Connect a client, which is closed; then others are refused. The log says why, once."""
    async with await RawClient.connect(first_port(gateway)) as client:
        assert await client.is_closed()
    await until(lambda: CLOSED in caplog.text, "the port is closed")
    assert not await asyncio.to_thread(accepts, first_port(gateway))
    (line,) = [one for one in caplog.messages if reason in one]
    assert "no connection to node 0 at " in line


async def until_served(gateway: Gateway) -> None:
    """Wait until the port is open again."""
    await until(lambda: gateway.is_listening, "the port is open", 30)
    assert await asyncio.to_thread(accepts, first_port(gateway))


async def test_password_that_the_target_refuses_closes_the_port_until_it_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        SaslBroker() as broker,
        running("unused:1", network=network_to(broker)) as gateway,
    ):
        accepted, text = broker.answer, b"Invalid username or password"

        def refused(frame: bytes) -> bytes:
            if frame[1] != ApiKey.SASL_AUTHENTICATE:
                return bytes(accepted(frame))
            return frame[4:8] + struct.pack(f">hh{len(text)}siq", 58, len(text), text, 0, 0)

        broker.answer = refused
        reason = f"PLAIN as user 'alice': the broker refuses: {text.decode()}"
        await until_refused(gateway, reason, caplog)
        broker.answer = accepted
        await until_served(gateway)
    assert "alice-secret" not in caplog.text


async def test_certificate_of_another_authority_closes_the_port_until_it_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known, other = tmp_path / "known", tmp_path / "other"
    for folder in (known, other):
        folder.mkdir()
        await asyncio.to_thread(make_certificate, folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def show(folder: Path) -> None:
        tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    show(known)
    trusted = create_ssl_context(cafile=str(known / "cert.pem"))
    async with ScriptedBroker(lambda frame: b"", tls) as broker:
        network = target_network(broker.address, security_protocol="SSL", ssl_context=trusted)
        async with running("unused:1", network=network) as gateway:
            show(other)
            await until_refused(gateway, "certificate verify failed: self-signed", caplog)
            show(known)
            await until_served(gateway)
