"""Authenticate a new connection by SASL, before the probe of the version or any other request.

Invariant: the client reads at most `MAX_FRAME_BYTES` at a time, and sends at most `MAX_TOKENS`.
A refusal raises `AuthenticationFailedError`. If the broker only closes the connection, a second
attempt comes before that error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from aiokafka08._core.limited_log import one_line
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.connect import (
    PendingStep,
    connect_to_any_ip,
    ip_addresses,
    joined_details,
    timeout_text,
)
from aiokafka08._core.net.raw_stream import RawStream, connect_raw
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion, alive_request
from aiokafka08._core.sasl.failure import FailureKind, SaslFailure
from aiokafka08._core.sasl.mechanism import Mechanism, Steps
from aiokafka08.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka08.protocol.api import (
    Request,
    Response,
    decode_correlation_id,
    decode_response,
    encode_request,
)
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.sasl_authenticate import SaslAuthenticateRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest

R = TypeVar("R", bound=Response)

MAX_FRAME_BYTES: Final = 1 << 18
"""More than any answer of a broker to a token needs; ApiVersions takes less than a kilobyte."""

MAX_TOKENS: Final = 16
"""More than any mechanism sends; a hostile server could ask for ever."""

_CORRELATION_ID: Final = 1

# The version for `authenticate_again`, which is called only if the broker has limited the session.
# Such a broker has SaslAuthenticate 1, and V0_10 stands for 0.10 to 3.9.
_WITH_SESSIONS: Final = BrokerVersion.of(BrokerLine.V0_10)

_REFUSED: Final = SaslFailure(FailureKind.REFUSED)
# Longest sleep before the due time is checked again. A sleep doesn't count the time in which the
# machine is suspended, so this is the most by which a renewal can be late
_LONGEST_SLEEP_S: Final = 3600.0


class AuthenticatedStream(NamedTuple):
    """An authenticated connection."""

    stream: RawStream
    lifetime_s: float  # seconds after which the broker closes it; infinity if it doesn't


async def renew_credentials(mechanism: Mechanism) -> None:
    """Renew the credentials of a client whenever they are due; return if they never are again."""
    while True:
        due_s = await mechanism.renew()
        if due_s == math.inf:
            return
        await asyncio.sleep(min(due_s, _LONGEST_SLEEP_S))


class FrameStream(Protocol):
    """What an authentication needs of a connection; see `RawStream`."""

    def write(self, data: bytes) -> None:
        """Write one frame, size included."""

    async def read_frame(self, least: int, most: int) -> bytes | None:
        """Return the response to the last frame that was written; None: the broker has closed."""


class _ClosedByBrokerError(Exception):
    """The broker closed the connection without a response; the text names the request."""


async def open_authenticated(
    connect: Callable[[], Awaitable[RawStream]],
    address: Address,
    config: NetConfig,
    mechanism: Mechanism,
    version: BrokerVersion | None,
    progress: Callable[[PendingStep], object],
) -> AuthenticatedStream:
    """Connect and authenticate; `progress` is called with each step to wait for.

    Raises:
        AuthenticationFailedError: the broker refuses, or the client lacks what it needs.
        AuthenticationMethodNotSupported: the broker doesn't offer the mechanism.
        KafkaConnectionError: the connection was lost, or no KDC responds.
        KafkaProtocolError: the peer isn't a Kafka broker.
    """
    closed_at: list[str] = []
    knows_handshake = version is not None and version.supports(SaslAuthenticateRequest)
    # A raw authentication sends tokens as frames, with no Kafka request before them. Brokers accept
    # it for GSSAPI only (0.9 to 3.9, and HDP's 0.8.2), and those below 0.10 accept nothing else. So
    # GSSAPI begins raw, unless the version is known to have SaslAuthenticate. Otherwise both
    # attempts are the same, because a connection that closes without a reason may also have been
    # lost by chance.
    for is_raw in (mechanism.starts_raw and not knows_handshake, False):
        stream = await connect()
        conversation = _Conversation(stream, address, config, mechanism, progress)
        try:
            if is_raw:
                await conversation.send_raw()
                return AuthenticatedStream(stream, math.inf)
            return AuthenticatedStream(stream, await conversation.send_handshake(version))
        except _ClosedByBrokerError as closed:
            closed_at.append(str(closed))
            await stream.close()
        except BaseException:
            await stream.close()
            raise
    steps = " and ".join(dict.fromkeys(closed_at))
    too_old = ""
    if "ApiVersions" in closed_at and not mechanism.starts_raw:
        too_old = f", and that the broker is of 0.10 or later: before, there is no {mechanism.name}"
    failure = SaslFailure(FailureKind.REFUSED, f"Check {mechanism.hint}{too_old}")
    text = failure.described(f"the broker closed the connection on {steps}, without a reason")
    raise AuthenticationFailedError(
        f"{address_text(address)}: {mechanism.description}: {text}", failure
    )


async def open_session(
    address: Address, config: NetConfig, version: BrokerVersion | None, within_s: float
) -> AuthenticatedStream:
    """Connect to any IP address of a host; authenticate if the options have a mechanism.

    Args:
        address: host and port.
        config: the options of the network layer.
        version: what is known of the broker's version.
        within_s: how long it may take, in seconds.

    Raises:
        KafkaError: as `open_authenticated`; or it takes too long.
    """
    waits: list[PendingStep] = []

    async def connect(ip: str) -> AuthenticatedStream:
        new_stream = partial(connect_raw, ip, address, config)
        if (sasl := config.sasl) is None:
            return AuthenticatedStream(await new_stream(), math.inf)
        return await open_authenticated(new_stream, address, config, sasl, version, waits.append)

    def abort(session: AuthenticatedStream) -> None:
        session.stream.abort()

    try:
        async with asyncio.timeout(within_s):
            ips = await ip_addresses(address, config, within_s)
            return await connect_to_any_ip(address, config, ips, connect, within_s, abort)
    except TimeoutError:
        text = timeout_text(address, config, within_s)
        raise (waits[-1].timeout_error(f"{text}: ") if waits else KafkaTimeoutError(text)) from None


async def authenticate_again(
    stream: FrameStream, address: Address, config: NetConfig, mechanism: Mechanism
) -> float:
    """Authenticate again before a connection's session ends (KIP-368); return its new lifetime.

    Args:
        stream: the connection; no other requests may be written meanwhile.
        address: host and port, for the broker's principal and for errors.
        config: the options of the network layer.
        mechanism: the mechanism with its credentials.

    Raises:
        KafkaError: as `open_authenticated`.
    """
    conversation = _Conversation(stream, address, config, mechanism, lambda wait: None)
    try:
        return await conversation.send_handshake(_WITH_SESSIONS)
    except _ClosedByBrokerError as closed:
        raise KafkaConnectionError(
            f"{address_text(address)}: the broker closed the connection on {closed}, which was to "
            "prolong its session"
        ) from None


class _Conversation:
    """The authentication on one connection."""

    def __init__(
        self,
        stream: FrameStream,
        address: Address,
        config: NetConfig,
        mechanism: Mechanism,
        progress: Callable[[PendingStep], object],
    ) -> None:
        self._stream = stream
        self._host = address[0]
        self._where = address_text(address)
        self._client_id = config.client_id
        self._mechanism = mechanism
        self._progress = progress
        self._lifetime_ms = 0

    async def send_raw(self) -> None:
        """Authenticate with frames only, and have the broker show that it has accepted them."""
        await self._run(self._send_frame, self._send_last_frame)
        # The broker doesn't respond to the last token: it closes, or serves the next request.
        await self._request(alive_request(), 0, "the last token")

    async def send_handshake(self, version: BrokerVersion | None) -> float:
        """Authenticate by SaslHandshake; return the seconds that the session lasts."""
        if version is not None and version.supports(SaslHandshakeRequest):
            offered = {int(api): versions[-1] for api, versions in version.apis.items() if versions}
        else:
            response = await self._request(ApiVersionsRequest(), 0)
            offered = {api.api_key: api.max_version for api in response.api_versions}
        if SaslHandshakeRequest.api not in offered:
            raise self._failed("the broker doesn't know SaslHandshake; expected 0.10 or later")
        authenticate = offered.get(SaslAuthenticateRequest.api)
        handshake = await self._request(
            SaslHandshakeRequest(self._mechanism.name), 0 if authenticate is None else 1
        )
        if handshake.error_code == UnsupportedSaslMechanismError.errno:
            failure = SaslFailure(
                FailureKind.MECHANISM,
                "Set sasl_mechanism to one of them, or add it to the brokers' "
                "sasl.enabled.mechanisms",
            )
            text = failure.described(
                f"the broker doesn't offer the mechanism {self._mechanism.name}; it offers "
                f"{', '.join(handshake.mechanisms) or 'none'}"
            )
            raise AuthenticationMethodNotSupported(f"{self._where}: {text}", failure)
        if handshake.error_code == IllegalSaslStateError.errno:
            raise not_sasl(self._where, self._mechanism)
        if handshake.error_code:
            raise self._failed(f"SaslHandshake: {for_code(handshake.error_code).__name__}")
        # 0.10 and 0.11 take the tokens as frames. SaslAuthenticate, from 1.0 on, says why it failed
        # and how long the session lasts.
        if authenticate is None:
            await self._run(self._send_frame, self._send_last_frame)
        else:
            send = partial(
                self._send_token, min(authenticate, SaslAuthenticateRequest.versions[-1])
            )
            await self._run(send, send)
        return self._lifetime_ms / 1000 if self._lifetime_ms > 0 else math.inf

    async def _run(
        self,
        send: Callable[[bytes], Awaitable[bytes]],
        send_last: Callable[[bytes], Awaitable[object]],
    ) -> None:
        self._progress(self._wait())
        try:
            steps = await self._mechanism.begin(self._host)
        except AuthenticationFailedError as error:
            raise self._failed(error.text, error) from error.__cause__
        challenge: bytes | None = None
        for _ in range(MAX_TOKENS):
            token, is_last = await self._next_token(steps, challenge)
            if token is not None and is_last:
                await send_last(token)
            if token is None or is_last:
                return
            challenge = await send(token)
        raise self._failed(f"the broker asks for more than {MAX_TOKENS} tokens")

    async def _next_token(self, steps: Steps, challenge: bytes | None) -> tuple[bytes | None, bool]:
        step = partial(_next_step, steps, challenge)
        try:
            if self._mechanism.thread is None:
                return step()
            self._progress(self._wait())
            return await self._mechanism.thread.run(step)
        except AuthenticationFailedError as error:
            raise self._failed(error.text, error) from error.__cause__

    def _wait(self) -> PendingStep:
        text = f"{self._mechanism.description}: {self._mechanism.wait}"
        kind = self._mechanism.wait_kind
        return PendingStep(text, detail=None if kind is None else SaslFailure(kind))

    async def _send_frame(self, token: bytes) -> bytes:
        await self._send_last_frame(token)
        self._progress(PendingStep.for_response("a SASL token"))
        frame = await self._stream.read_frame(0, MAX_FRAME_BYTES)
        if frame is None:
            raise _ClosedByBrokerError("a SASL token")
        return frame

    async def _send_last_frame(self, token: bytes) -> None:
        self._stream.write(len(token).to_bytes(4, "big") + token)

    async def _send_token(self, version: int, token: bytes) -> bytes:
        response = await self._request(SaslAuthenticateRequest(token), version)
        if response.error_code:
            reason = response.error_message or for_code(response.error_code).__name__
            failure = SaslFailure(FailureKind.REFUSED, self._mechanism.refusal_hint)
            text = failure.described(f"the broker refuses: {one_line(reason)}")
            raise self._failed(text, failure=failure)
        self._lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    async def _request(self, request: Request[R], version: int, shown: str = "") -> R:
        name = shown or type(request).__name__.removesuffix("Request")
        self._progress(PendingStep.for_response(name))
        self._stream.write(
            b"".join(encode_request(request, version, _CORRELATION_ID, self._client_id))
        )
        frame = await self._stream.read_frame(4, MAX_FRAME_BYTES)
        if frame is None:
            raise _ClosedByBrokerError(name)
        if decode_correlation_id(frame) != _CORRELATION_ID:
            raise KafkaProtocolError(
                f"{self._where}: not a Kafka broker: its response has a wrong correlation id"
            )
        return decode_response(type(request), version, frame)

    def _failed(
        self,
        text: str,
        error: AuthenticationFailedError | None = None,
        failure: SaslFailure = _REFUSED,
    ) -> AuthenticationFailedError:
        """Return the error, with the address and, if the text lacks it, the identity."""
        error_class = AuthenticationFailedError if error is None else type(error)
        who = self._mechanism.description
        text = text if text.startswith(who) else f"{who}: {text}"
        details = [] if error is None else joined_details((error,))
        return error_class(f"{self._where}: {text}", *(details or [failure]))


def not_sasl(where: str, mechanism: Mechanism) -> AuthenticationFailedError:
    """Return the error about a listener that serves clients without SASL."""
    failure = SaslFailure(
        FailureKind.LISTENER,
        "Set security_protocol to 'PLAINTEXT' or 'SSL', or use the port of a SASL listener",
    )
    text = failure.described("the port isn't a SASL listener")
    return AuthenticationFailedError(f"{where}: {mechanism.description}: {text}", failure)


def _next_step(steps: Steps, challenge: bytes | None) -> tuple[bytes | None, bool]:
    """Return the next token (None: no further one) and whether it is the last one."""
    try:
        return (next(steps) if challenge is None else steps.send(challenge)), False
    except StopIteration as stop:
        return stop.value, True
