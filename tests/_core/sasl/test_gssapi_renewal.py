"""Renewal of credentials, with a library and a clock of the test's own: no KDC is needed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka08 import environment
from aiokafka08._core.sasl.gssapi import Gssapi

pytestmark = pytest.mark.fast

LIFE_S = 1000


class GSSError(Exception):
    min_code = -1765328228  # no KDC responds

    def gen_message(self) -> str:
        return "Cannot contact any KDC"


class Library(SimpleNamespace):
    """What of the package gssapi is used; credentials last `LIFE_S`, by `now`."""

    def __init__(self) -> None:
        library = self
        self.now, self.suspended_s, self.has_kdc = 0.0, 0.0, True

        class Credentials:
            name = "client@REALM"

            def __init__(self, **_: object) -> None:
                if not library.has_kdc:
                    raise GSSError
                self._expires = library.now + LIFE_S

            @property
            def lifetime(self) -> int:
                return max(int(self._expires - library.now), 0)

        class SecurityContext:
            complete = False

            def __init__(self, **_: object) -> None:
                """Any arguments."""

            def step(self) -> bytes:
                return b"token"

        super().__init__(
            Credentials=Credentials,
            SecurityContext=SecurityContext,
            MechType=SimpleNamespace(kerberos=None),
            NameType=SimpleNamespace(kerberos_principal=None),
            Name=lambda principal, kind: principal,
            exceptions=SimpleNamespace(
                GSSError=GSSError, ExpiredCredentialsError=type("Expired", (GSSError,), {})
            ),
        )


async def connect(mechanism: Gssapi) -> None:
    assert next(await mechanism.begin("kafka1")) == b"token"


async def test_renewal_that_fails_is_logged_again_after_a_connection_got_a_ticket(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    library: Any = Library()
    monkeypatch.setitem(sys.modules, "gssapi", library)
    monkeypatch.setattr(environment, "monotonic", lambda: library.now - library.suspended_s)
    caplog.set_level(logging.WARNING)
    keytab = tmp_path / "keytab"
    keytab.touch()
    mechanism = Gssapi("kafka", None, str(keytab), None)
    await connect(mechanism)
    for count in (1, 2):
        library.now += LIFE_S * 0.8
        library.has_kdc = False
        for _ in range(2):
            library.now += await mechanism.renew()
        assert len(caplog.records) == count
        library.now += LIFE_S  # the ticket expires
        library.has_kdc = True
        await connect(mechanism)
    library.suspended_s = LIFE_S * 0.9  # while it sleeps the machine's monotonic clock stands still
    library.now += LIFE_S * 0.9 + 10
    assert LIFE_S * 0.79 < await mechanism.renew() <= LIFE_S * 0.8
    assert len(caplog.records) == 2
