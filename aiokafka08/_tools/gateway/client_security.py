"""Authenticate the gateway's clients: the TLS of its listeners, the SASL users, and their logins.

`config` reads the files; `handler` has a `ClientLogin` for each connection. A client logs in by
SaslHandshake 0 and plain tokens, as clients of 0.10 do, or by SaslHandshake 1 and SaslAuthenticate.

Invariant: no password is in an error, a log line, `/clients` or a `repr()`. Until a login is
complete, no request of a client but ApiVersions reaches the target; its SASL requests never do. An
unknown user gets the same answers as a wrong password.
"""

from __future__ import annotations

import secrets
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiokafka08 import errors
from aiokafka08._core.config_file import named, read_file, require_private
from aiokafka08._core.server.sasl import MECHANISMS, AuthenticationFailed, SaslSession, SaslUsers
from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.translation import read_body
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError
from aiokafka08.protocol.api import ApiKey, encode_response
from aiokafka08.protocol.requests.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aiokafka08.protocol.types import Buffer

SASL_VERSIONS: Final[Mapping[int, range]] = {
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest.versions,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest.versions,
}
"""The requests that the gateway answers itself, and their versions."""

_TOKENS_IN_REQUESTS: Final = 1
"""The version of SaslHandshake after which the client sends its tokens in SaslAuthenticate."""


def server_context(cert: Path, key: Path | None, client_ca: Path | None) -> ssl.SSLContext:
    """Return the TLS context of the listeners.

    Args:
        cert: PEM file of the certificate, and of the intermediate ones up to its authority.
        key: PEM file of its private key, which has no password; None: it is in `cert`.
        client_ca: PEM file of the authorities whose certificates clients need; None: they need
            none.

    Raises:
        OSError: a file can't be read, or isn't such a PEM file.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key, password="")  # None prompts on the terminal
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def read_users(path: Path) -> SaslUsers:
    """Return the users of a TOML file that has their names and passwords.

    Raises:
        IllegalArgumentError: the file can't be read, other users can read it, or it has something
            other than users and passwords.
        KafkaConfigurationError: an extra isn't installed.
    """
    text = read_file(path, "the TOML file of users and their passwords")
    require_private(path, "passwords")
    with named(path):
        users = tomllib.loads(text)
        for user, password in users.items():
            if not isinstance(password, str) or not password or "\0" in user + password:
                raise IllegalArgumentError(f'{user!r}=…: expected user = "password"')
    if not users:
        raise IllegalArgumentError(f'{path}: no users; expected lines as user = "password"')
    try:
        return SaslUsers(users, hiding_key=secrets.token_bytes())
    except ModuleNotFoundError as error:
        raise KafkaConfigurationError(f"{path}: {error}") from None


def certificate_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the subject of a client's certificate; "" without one."""
    subject = () if certificate is None else certificate.get("subject", ())
    return ",".join(f"{name}={value}" for part in subject for name, value in part)


class ClientLogin:
    """The authentication of one connection.

    Args:
        users: who may log in; None: clients needn't.

    Attributes:
        mechanism: the one that the client has chosen; "" if the gateway doesn't have it.
        failure: why the login has failed, for the log; "" if it hasn't. The connection ends after
            the answer to a failed login.
    """

    def __init__(self, users: SaslUsers | None) -> None:
        self._session = None if users is None else SaslSession(users)
        self._version: int | None = None  # the version of the client's SaslHandshake, once it came
        self.mechanism = self.failure = ""

    @property
    def is_complete(self) -> bool:
        """Whether the client may use the target."""
        return self._session is None or self._session.is_complete

    @property
    def user(self) -> str:
        """The user; "" if there is none, or not yet."""
        return "" if self._session is None else self._session.user or ""

    @property
    def awaits_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self._version == 0 and not self.is_complete

    def take_token(self, frame: memoryview) -> list[Buffer]:
        """Return the answer to a token without a header; nothing if the login has failed."""
        token = self._receive(frame)
        return [] if self.failure else [len(token).to_bytes(4, "big"), token]

    def answer(self, head: RequestHead, frame: memoryview) -> list[Buffer]:
        """Return the answer to a request of SASL, of a version in `SASL_VERSIONS`.

        Raises:
            AuthenticationFailed: the request isn't expected now.
            KafkaProtocolError: it can't be read.
        """
        response = self._handshake if head.key == ApiKey.SASL_HANDSHAKE else self._authenticate
        return encode_response(response(head, frame), head.version, head.correlation_id)

    def _handshake(self, head: RequestHead, frame: memoryview) -> SaslHandshakeResponse:
        asked = read_body(SaslHandshakeRequest, head.version, frame, head.body_at)
        if self._session is None or self.is_complete:
            return SaslHandshakeResponse(errors.IllegalSaslStateError.errno, [])
        if self._version is not None:
            raise AuthenticationFailed("SaslHandshake comes twice")
        self._version = head.version
        if self._session.choose(asked.mechanism):
            self.mechanism = asked.mechanism
            return SaslHandshakeResponse(0, list(MECHANISMS))
        self.failure = f"login failed: unknown mechanism {shorten(asked.mechanism)}"
        return SaslHandshakeResponse(errors.UnsupportedSaslMechanismError.errno, list(MECHANISMS))

    def _authenticate(self, head: RequestHead, frame: memoryview) -> SaslAuthenticateResponse:
        asked = read_body(SaslAuthenticateRequest, head.version, frame, head.body_at)
        if self.is_complete:
            text = "SaslAuthenticate isn't expected"
            return SaslAuthenticateResponse(errors.IllegalSaslStateError.errno, text, b"")
        if self._version != _TOKENS_IN_REQUESTS:
            raise AuthenticationFailed("SaslAuthenticate comes without SaslHandshake 1")
        token = self._receive(asked.auth_bytes)
        if self.failure:
            text = "Authentication failed: Invalid username or password"  # as brokers say it
            return SaslAuthenticateResponse(errors.SaslAuthenticationFailed.errno, text, b"")
        return SaslAuthenticateResponse(0, None, token)

    def _receive(self, token: Buffer) -> bytes:
        """Return the answer to a token; nothing if the login has failed."""
        assert self._session is not None
        try:
            return self._session.receive(token)
        except AuthenticationFailed as error:
            user = f" as user {shorten(error.user)}" if error.user else ""
            self.failure = f"login{user} failed: {error}"
            return b""
