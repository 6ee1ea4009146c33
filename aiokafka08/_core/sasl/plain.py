"""PLAIN (RFC 4616): user name and password in clear text. Brokers from 0.10.0 on."""

from __future__ import annotations

from aiokafka08._core.sasl.mechanism import Mechanism, Steps


class Plain(Mechanism):
    """See `Mechanism`."""

    name = "PLAIN"
    starts_raw = False
    hint = "user name and password, and that PLAIN is in the broker's sasl.enabled.mechanisms"

    def __init__(self, username: str, password: str) -> None:
        self.description = f"PLAIN as user {username!r}"
        self._username = username
        self._token = f"\0{username}\0{password}".encode()

    @property
    def principal(self) -> str:
        """The user name."""
        return self._username

    async def begin(self, host: str) -> Steps:
        """Begin: one token, and the broker responds with an empty one."""
        return self._steps()

    def _steps(self) -> Steps:
        yield self._token
        return None
