"""Kerberos with a real KDC, MIT's; the broker's side of GSSAPI is the test's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer, environment
from aiokafka08._core.sasl.gssapi import Gssapi
from aiokafka08.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    NoBrokersAvailable,
)
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.kdc import REALM, Kdc
from tests.support.debian_tools import skipped_if_missing
from tests.support.gssapi_wheel import require_gssapi
from tests.support.stream_server import StreamServer
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

BROKER = "kafka/localhost"
HOST = "localhost"
OFFER = b"\1\0\0\0"


@pytest.fixture(scope="module")
def realm() -> Iterator[Kdc]:
    require_real_brokers()
    require_gssapi()
    with skipped_if_missing("MIT Kerberos", "krb5-kdc krb5-user"), Kdc() as running:
        running.add_principal(BROKER)
        running.add_principal("client")
        running.add_principal("short", ticket_s=6)
        yield running


@pytest.fixture
def kdc(realm: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kdc:
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "no-cache"))
    return realm


def client(kdc: Kdc, keytab_of: str = "client", **options: Any) -> Gssapi:
    given = {"service": "kafka", "domain": None, "principal": None, **options}
    given.setdefault("keytab", str(kdc.keytab(keytab_of)))
    return Gssapi(**given)


class BrokerSide:
    """Answers the client's tokens as brokers do; it wraps `offer`, or sends `raw` instead."""

    def __init__(self, kdc: Kdc, offer: bytes = OFFER, raw: bytes | None = None) -> None:
        import gssapi

        store: Any = {"keytab": f"FILE:{kdc.keytab(BROKER)}"}
        accepting = gssapi.Credentials(usage="accept", store=store)
        self._context = gssapi.SecurityContext(creds=accepting, usage="accept")
        self._offer = offer
        self._raw = raw

    def answer(self, token: bytes) -> bytes:
        if not self._context.complete:
            reply = self._context.step(token)
            if reply:
                return bytes(reply)
        return self._raw or bytes(self._context.wrap(self._offer, False).message)

    def choice(self, wrapped: bytes) -> tuple[str, bytes]:
        name = str(self._context.initiator_name)
        return name, bytes(self._context.unwrap(wrapped).message)


async def authenticate(mechanism: Gssapi, broker: BrokerSide, host: str = HOST) -> bytes | None:
    """Run the steps and return the client's last token."""
    steps = await mechanism.begin(host)
    try:
        token = next(steps)
        while True:
            token = steps.send(broker.answer(token))
    except StopIteration as stop:
        last: bytes | None = stop.value
        return last


async def test_client_proves_its_principal_and_chooses_no_layer(kdc: Kdc) -> None:
    broker = BrokerSide(kdc)
    last = await authenticate(client(kdc), broker)
    assert last is not None
    assert broker.choice(last) == (f"client@{REALM}", OFFER)


async def test_ticket_cache_of_kinit_is_used(
    kdc: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mechanism = client(kdc, keytab=None)
    with pytest.raises(AuthenticationFailedError, match="there is no ticket"):
        await authenticate(mechanism, BrokerSide(kdc))
    cache = tmp_path / "cache"
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    kdc.kinit("client", cache)
    broker = BrokerSide(kdc)
    last = await authenticate(mechanism, broker)
    assert last is not None
    assert broker.choice(last)[0] == f"client@{REALM}"


@pytest.mark.parametrize(
    ("options", "host", "text"),
    [
        ({"service": "kafkaa"}, HOST, "'kafkaa/localhost': the KDC doesn't know the broker's"),
        ({}, "127.0.0.1", "'kafka/127.0.0.1': the KDC doesn't know the broker's principal"),
        ({"domain": "localhost@OTHER.TEST"}, HOST, "localhost@OTHER.TEST': "),
        ({"keytab": "/nowhere.keytab"}, HOST, "the keytab doesn't exist or can't be read"),
        ({"principal": "nobody"}, HOST, "the keytab has no key for the principal"),
        ({"principal": "client@ELSE.TEST"}, HOST, "the keytab has no key for the principal"),
    ],
)
async def test_cause_is_named(kdc: Kdc, options: dict[str, Any], host: str, text: str) -> None:
    with pytest.raises(AuthenticationFailedError) as caught:
        await authenticate(client(kdc, **options), BrokerSide(kdc), host)
    assert text in str(caught.value)


async def test_domain_name_replaces_the_host(kdc: Kdc) -> None:
    for domain in ("localhost", f"localhost@{REALM}"):
        assert await authenticate(client(kdc, domain=domain), BrokerSide(kdc), "10.0.0.1")


async def test_unknown_principal_is_named(kdc: Kdc) -> None:
    kdc.add_principal("gone")
    kdc.administer("delprinc -force gone")
    with pytest.raises(AuthenticationFailedError, match="doesn't know the client's principal"):
        await authenticate(client(kdc, "gone"), BrokerSide(kdc))


@pytest.mark.parametrize(
    ("offer", "raw", "text"),
    [
        (b"\6\0\0\0", None, "the broker's offer of layers is '06000000'"),
        (b"\1\0\0", None, "the broker's offer of layers is '010000'"),
        (b"", None, "the broker's offer of layers is ''"),
        (b"\1" * 10_000, None, "the broker's offer of layers is '0101010101010101'"),
        (OFFER, b"nonsense", "the broker is 'kafka/localhost': "),
        (OFFER, b"\x05\x04\x05\xff" + b"\0" * 40, "the broker is 'kafka/localhost': "),
    ],
)
async def test_wrong_wrap_is_a_typed_error(
    kdc: Kdc, offer: bytes, raw: bytes | None, text: str
) -> None:
    with pytest.raises(AuthenticationFailedError) as caught:
        await authenticate(client(kdc), BrokerSide(kdc, offer, raw))
    assert text in str(caught.value)


@pytest.mark.parametrize("token", [b"", b"\0", b"nonsense" * 1000, b"\x60\x82\xff\xff"])
async def test_wrong_token_is_a_typed_error(kdc: Kdc, token: bytes) -> None:
    steps = await client(kdc).begin(HOST)
    next(steps)
    with pytest.raises(AuthenticationFailedError, match="the broker is 'kafka/localhost': "):
        steps.send(token)


async def test_renewal_gets_tickets_that_outlive_an_outage_of_the_kdc(kdc: Kdc) -> None:
    """It comes at 80 % of the ticket's life, and has a ticket for the broker, too."""
    mechanism = client(kdc, "short")
    assert await authenticate(mechanism, BrokerSide(kdc))
    began = time.monotonic()
    due_s = await mechanism.renew()
    assert due_s <= 4.8
    await asyncio.sleep(due_s + 1)  # the life of the ticket, in whole seconds
    assert await mechanism.renew() <= 4.8
    with outage(kdc):
        await asyncio.sleep(began + 6.5 - time.monotonic())
        assert await authenticate(mechanism, BrokerSide(kdc))
        assert await authenticate(client(kdc, "short"), BrokerSide(kdc))  # of the same process


class Clock:
    """Time goes on, and makes leaps."""

    leaps_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.leaps_s

    async def leap_to_renewal(self, mechanism: Gssapi) -> None:
        """MIT Kerberos tells the life of a ticket in whole seconds: the time may be off by one."""
        self.leaps_s += await mechanism.renew() + 1


def is_calling() -> bool:
    return any(thread.name == "aiokafka08-call" for thread in threading.enumerate())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(environment, "monotonic", clock)
    return clock


async def test_new_connection_waits_for_no_renewal_while_its_ticket_lasts(
    kdc: Kdc, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    mechanism = client(kdc, keytab=str(kdc.add_principal("waiting")))
    assert await authenticate(mechanism, BrokerSide(kdc))
    await clock.leap_to_renewal(mechanism)
    kdc.pause()
    try:
        renewal = asyncio.create_task(mechanism.renew())
        await until(is_calling, "the KDC is asked")
        assert await authenticate(mechanism, BrokerSide(kdc))
        assert not renewal.done()
    finally:
        kdc.resume()
    assert await renewal > 60_000
    assert not caplog.records


async def test_renewal_that_fails_is_logged_once_and_tried_again(
    kdc: Kdc, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    keytab = kdc.add_principal("hopeful", ticket_s=1000)
    mechanism = client(kdc, keytab=str(keytab))
    assert await authenticate(mechanism, BrokerSide(kdc))
    assert 790 < await mechanism.renew() <= 800
    await clock.leap_to_renewal(mechanism)
    with outage(kdc):
        for expected_s in (20, 18):  # a tenth of what is left
            due_s = await mechanism.renew()
            assert expected_s - 1.5 < due_s <= expected_s
            clock.leaps_s += due_s
    text = "no KDC of the realm responds.* The present ticket expires in (199|200) s"
    assert re.search(text, caplog.text, re.DOTALL)
    assert len(caplog.records) == 1
    assert 790 < await mechanism.renew() <= 800
    clock.leaps_s += 800
    keytab.unlink()
    assert 18.5 < await mechanism.renew() <= 20
    assert "keytab doesn't exist" in caplog.records[1].getMessage()


async def test_refused_keytab_is_tried_less_and_less(
    kdc: Kdc, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The KDC may lock the principal: in between, callers get its answer without a request."""
    keytab = kdc.add_principal("dismissed")
    kdc.administer("delprinc -force dismissed")
    refused = pytest.raises(AuthenticationFailedError, match="doesn't know the client's principal")
    mechanism = client(kdc, keytab=str(keytab))
    with refused:
        await authenticate(mechanism, BrokerSide(kdc))
    for delay_s in (10, 20, 40, 80, 160, 300, 300):
        clock.leaps_s += delay_s - 5
        with outage(kdc):
            for other in (mechanism, client(kdc, keytab=str(keytab))):  # of the same process
                with refused:
                    await authenticate(other, BrokerSide(kdc))
        clock.leaps_s += 5
        with refused:
            await authenticate(mechanism, BrokerSide(kdc))
    keytab.unlink()
    assert kdc.add_principal("dismissed") == keytab
    assert await authenticate(mechanism, BrokerSide(kdc))  # another file: at once
    # The same for the renewal, which tells of it once.
    await clock.leap_to_renewal(mechanism)
    kdc.administer("delprinc -force dismissed")
    found: list[float] = []
    for _ in range(4):
        clock.leaps_s += 100_000  # the time that is left doesn't count any more
        found.append(await mechanism.renew())
        clock.leaps_s += found[-1]
    assert [round(due_s) for due_s in found] == [10, 20, 40, 80]
    assert len(caplog.records) == 1


async def test_renewal_of_the_cache_waits_for_kinit(
    kdc: Kdc, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    kdc.kinit("client", cache, "-l", "1000s")
    mechanism = client(kdc, keytab=None)
    assert await authenticate(mechanism, BrokerSide(kdc))
    await clock.leap_to_renewal(mechanism)
    kdc.kinit("client", cache, "-l", "190s")  # no more than the old one
    assert 18 < await mechanism.renew() <= 20
    kdc.kinit("client", cache, "-l", "2000s")
    clock.leaps_s += 20
    assert 1500 < await mechanism.renew() <= 1600
    with outage(kdc):  # the renewal has put the broker's ticket into the new cache
        assert await authenticate(mechanism, BrokerSide(kdc))


@contextlib.contextmanager
def outage(kdc: Kdc) -> Iterator[None]:
    kdc.stop()
    try:
        yield
    finally:
        kdc.start()
        os.environ.update(kdc.environment)


async def test_missing_kdc_may_pass(kdc: Kdc) -> None:
    keytab = str(kdc.add_principal("early"))  # no other client has a ticket of it
    with outage(kdc), pytest.raises(KafkaConnectionError, match="no KDC of the realm") as caught:
        await authenticate(client(kdc, keytab=keytab), BrokerSide(kdc))
    assert caught.value.retriable


async def test_hanging_kdc_is_a_timeout_and_holds_neither_loop_nor_stop(kdc: Kdc) -> None:
    keytab = kdc.add_principal("unlucky")  # no other client has a ticket of it

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with StreamServer(serve) as server:
        producer = AIOKafkaProducer(
            bootstrap_servers=server.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_keytab=str(keytab),
            request_timeout_ms=1000,
        )
        kdc.pause()
        try:
            async with asyncio.timeout(5):  # the library waits for ten seconds and more
                with pytest.raises(NoBrokersAvailable, match="no KDC of the realm has responded"):
                    await producer.start()
                await producer.stop()
        finally:
            kdc.resume()
