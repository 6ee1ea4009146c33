"""The server's side of SASL: PLAIN and SCRAM, of one connection. No I/O.

A server that has users gives each connection a `SaslSession`, and closes the connection if the
session raises `AuthenticationFailed`. The embedded cluster and the gateway do so.

Invariant: no secret is in an error or a `repr()`; a session knows its user only when it is
complete.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator, Mapping
from functools import cache
from typing import Final

from aiokafka08.protocol.types import Buffer

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MAX_TOKEN_BYTES: Final = 512 << 10
"""The largest request or token before the authentication is complete."""

_PLAIN_PARTS: Final = 3
"""The name to act as, the user and the password."""

_Credential = tuple[bytes, bytes, bytes, int]
_Steps = Generator[bytes, bytes, tuple[bytes, str]]
"""Receives the client's tokens, yields the server's, and returns its last one and the user."""


class AuthenticationFailed(Exception):
    """The server closes the connection; the text is for its own log, and has no secret.

    Attributes:
        user: who the client says it is; "" if it hasn't said it.
    """

    def __init__(self, text: str, user: str = "") -> None:
        super().__init__(text)
        self.user = user


class SaslUsers:
    """The users of a server, and their credentials for each mechanism.

    Args:
        passwords: the passwords of the users, by name.
        hiding_key: a secret. With it, SCRAM refuses an unknown user only at the last step, as it
            refuses a wrong password. Without it, SCRAM refuses an unknown user at the first step,
            as brokers do (default None).

    Raises:
        ModuleNotFoundError: the package scramp isn't installed.
    """

    def __init__(self, passwords: Mapping[str, str], *, hiding_key: bytes | None = None) -> None:
        try:
            import scramp
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "sasl: the package scramp isn't installed. pip install 'aiokafka08[sasl]'",
                name=error.name,
            ) from error
        self._passwords = dict(passwords)
        self._hiding_key = hiding_key
        self._scram = {
            name: scramp.ScramMechanism(name) for name in MECHANISMS if name.startswith("SCRAM-")
        }
        self._credential = cache(self._make_credential)  # made at first use: a few ms each

    def authenticate(self, mechanism: str) -> _Steps:
        """Return the server's steps of a mechanism."""
        if mechanism == "PLAIN":
            return self._plain()
        return self._scram_steps(mechanism)

    def _plain(self) -> _Steps:
        token = yield b""
        texts = token.decode(errors="replace").split("\0")
        if len(texts) != _PLAIN_PARTS or not all(texts[1:]):
            raise AuthenticationFailed(f"PLAIN: malformed token of {len(token)} bytes")
        acts_as, user, password = texts
        if acts_as not in ("", user):
            raise AuthenticationFailed("PLAIN: the user asks to act as another one", user)
        # Compare for an unknown user too, so that the time doesn't show whether the user exists.
        # "" never fits, because the client's password isn't empty.
        known = self._passwords.get(user, "")
        if not hmac.compare_digest(known.encode(), password.encode()):
            raise AuthenticationFailed("PLAIN: wrong user name or password", user)
        return b"", user

    def _scram_steps(self, mechanism: str) -> _Steps:
        import scramp

        named = ""

        def credential(user: str) -> _Credential | None:
            nonlocal named
            named = user
            if user in self._passwords:
                return self._credential(mechanism, user)
            if self._hiding_key is None:
                return None
            salt = hmac.digest(self._hiding_key, f"{mechanism} {user}".encode(), "sha256")
            return (salt, *self._credential(mechanism, None)[1:])

        server = self._scram[mechanism].make_server(credential)
        try:
            server.set_client_first((yield b"").decode())
            server.set_client_final((yield server.get_server_first().encode()).decode())
            final: str = server.get_server_final()
            return final.encode(), named
        except (scramp.ScramException, UnicodeDecodeError) as error:
            # The text of a UnicodeDecodeError has what the client sent.
            raise AuthenticationFailed(f"{mechanism}: {type(error).__name__}", named) from None

    def _make_credential(self, mechanism: str, user: str | None) -> _Credential:
        """Return the credential of a user; for None, one that no password of a client matches."""
        if user is None:
            assert self._hiding_key is not None
            password = hmac.digest(self._hiding_key, b"password", "sha256").hex()
        else:
            password = self._passwords[user]
        made: _Credential = self._scram[mechanism].make_auth_info(password)
        return made


class SaslSession:
    """The authentication of one connection."""

    def __init__(self, users: SaslUsers) -> None:
        self._users = users
        self._steps: _Steps | None = None
        self.user: str | None = None
        """Who the client is; None before the authentication is complete."""
        self.refused: str | None = None
        """The requested mechanism, if the server lacks it. The server responds and disconnects."""

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""
        return self.user is not None

    @property
    def awaits_token(self) -> bool:
        """Whether the next frame is a token and not a request."""
        return self._steps is not None and not self.is_complete

    def choose(self, mechanism: str) -> bool:
        """Begin with a mechanism; return False if the server doesn't have it."""
        if mechanism not in MECHANISMS:
            self.refused = mechanism
            return False
        self._steps = self._users.authenticate(mechanism)
        next(self._steps)
        return True

    def receive(self, token: Buffer) -> bytes:
        """Take a token of the client; return the server's.

        Raises:
            AuthenticationFailed: the client isn't who it says it is, or the token is malformed.
        """
        assert self._steps is not None
        try:
            return self._steps.send(bytes(token))
        except StopIteration as end:
            answer: bytes
            answer, self.user = end.value
            return answer
