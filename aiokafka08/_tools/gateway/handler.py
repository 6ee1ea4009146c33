"""`GatewayHandler`: decide how each request of a client is handled.

A request passes as it is, or is translated, or is answered or refused by the gateway. `access` says
what isn't allowed. `gateway` makes a handler per connection; `upstream` has the connection to the
broker.

Invariants:

- Frames go to the broker in the order in which the client sent them.
- A request that is refused without a response ends the connection once the requests before it are
  answered; in front of a broker of 0.9 the connection stays open. Brokers do the same with requests
  that they don't know.
- A broker of 0.8 or 0.9 never gets a request of an API that came later: 0.9 then loses responses of
  other connections (docs/brokers.md 2.2).
- At the entry for clients of other gateways (`peers`) no group, log or transaction is listed. The
  entry isn't a broker of its own, so a client that asks all brokers would count these twice.
- Requests of replicas, those that only brokers send, those that change the cluster, and what
  `access` doesn't allow never reach the target.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka08 import environment
from aiokafka08._core.concurrency.remembered import Remembered
from aiokafka08._core.limited_log import one_line
from aiokafka08._core.net.config import Address
from aiokafka08._core.net.connect import is_own_shortage
from aiokafka08._core.net.probe import find_line
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.server.connection import ConnectionHandler, Exchange, ServerConnection
from aiokafka08._core.server.sasl import MAX_TOKEN_BYTES, AuthenticationFailed
from aiokafka08._core.server.work import Work, finish, offload
from aiokafka08._tools.gateway import access, addresses, api_versions, headers, topic_creation
from aiokafka08._tools.gateway.access import ConnectionAccess, Limited
from aiokafka08._tools.gateway.addresses import has_addresses, read_addresses, replace_addresses
from aiokafka08._tools.gateway.client_security import SASL_VERSIONS, ClientLogin, certificate_name
from aiokafka08._tools.gateway.clients import Fate
from aiokafka08._tools.gateway.exchanges import GatewayExchange, apart
from aiokafka08._tools.gateway.headers import API_VERSIONS, CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.layouts import Api, TakesLongError, apis
from aiokafka08._tools.gateway.messages import find_in_request, read_request, response_frame
from aiokafka08._tools.gateway.peers import has_no_own
from aiokafka08._tools.gateway.shared_state import SharedState
from aiokafka08._tools.gateway.target_connection import CONNECT_TIMEOUT_S
from aiokafka08._tools.gateway.translated_requests import TranslatedRequests
from aiokafka08._tools.gateway.translation import request_end
from aiokafka08._tools.gateway.upstream import Answer, Upstream, connect, respond
from aiokafka08.errors import KafkaError, KafkaProtocolError
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.types import Buffer

T = TypeVar("T")

_log: Final = logging.getLogger("aiokafka08.gateway")

LOGIN_S: Final = 20.0
"""How long a client may take to authenticate."""
FAILED_LOGIN_S: Final = 0.1
"""Delay of the answer to a failed login, so that guessing takes time. Brokers have the same
(connection.failed.authentication.delay.ms)."""

_VERSIONS_S: Final = 10.0
"""How long a broker's versions are remembered for clients that haven't authenticated."""

_SHOWN_CHARACTERS: Final = 255  # how much of a client id the log shows

_DESCRIBE_QUORUM: Final = 55
_ACKS: Final = frozenset({"Acks"})
_SOFTWARE: Final = frozenset({"software name", "software version"})


class RefusedError(Exception):
    """A request that the gateway doesn't pass on."""


@dataclass(slots=True)
class BrokerRoute:
    """The broker to which a listener leads.

    Attributes:
        node_id: the broker's id.
        address: the broker's present address.
        unreachable: called when a connection to the broker couldn't be opened.
        line: the broker's line; None: it isn't known.
        versions: the broker's responses to ApiVersions, by version and without correlation ids, for
            clients that haven't authenticated.
    """

    node_id: int
    address: Address
    unreachable: Callable[[], None]
    line: BrokerLine | None = None
    versions: Remembered[int, bytes] = field(default_factory=lambda: Remembered(_VERSIONS_S))


class GatewayHandler(ConnectionHandler):
    """See the module.

    Args:
        connection: the client's connection.
        shared: the state that all connections share.
        route: the broker to which the client has connected.
        is_entry: whether the client has connected to the entry (`peers`), and not to the listener
            of that broker.

    Attributes: see `ClientHandler`.
    """

    exchange_class = GatewayExchange

    def __init__(
        self,
        connection: ServerConnection,
        shared: SharedState,
        route: BrokerRoute,
        *,
        is_entry: bool = False,
    ) -> None:
        self.connection = connection
        self.shared = shared
        self._options = options = shared.options
        self._route = route
        self._is_entry = is_entry
        self._line = BrokerLine.V0_10  # the broker's line, if the gateway observes
        self._access = ConnectionAccess(options.access, is_observing=options.is_observing)
        self._holding: set[str] = set()  # why no requests are begun
        self.upstream = self.new_upstream(f"node {route.node_id}", self._upstream_lost)
        self._translated = TranslatedRequests(self)
        self._login = ClientLogin(options.users)
        self._certificate_name = certificate_name(connection.certificate)
        self._connecting: asyncio.Task[None] | None = None
        self._login_ends: asyncio.TimerHandle | None = None
        if self._login.is_complete:
            self._begin_connecting()
        else:
            connection.limit_frames(MAX_TOKEN_BYTES)
            self._login_ends = asyncio.get_running_loop().call_later(LOGIN_S, self._login_is_late)

    # --- the connection to the broker -------------------------------------------------------------

    def _begin_connecting(self) -> asyncio.Task[None]:
        if self._connecting is None:
            self.hold("connecting", True)
            self._connecting = self.shared.tasks.start(self._connect())
        return self._connecting

    async def _connect(self) -> None:
        route, target = self._route, (self._route.address, self._options.network)
        try:
            await connect(self.upstream, *target)
            if self._options.is_observing:
                if (line := route.line) is None:
                    line = await find_line(self.upstream, *target, CONNECT_TIMEOUT_S)
                self._line = route.line = line
        except KafkaError as error:
            self.warn(f"no connection to node {route.node_id} at {error.text}")
            self.shared.measurements.upstream_failed(route.node_id, "connect")
            self.connection.abort()
            if not is_own_shortage(error):
                route.unreachable()
            return
        self.hold("connecting", False)

    def new_upstream(self, name: str, lost: Callable[[Exception | None], None]) -> Upstream:
        """Return a connection to a broker, not yet opened; for `lost` see `Upstream`."""
        return Upstream(
            name,
            self.shared.upstreams,
            self.shared.resources,
            self._options.max_response_bytes,
            lambda is_writable: self.hold(name, not is_writable),
            lost,
            self.warn,
        )

    def hold(self, reason: str, holds: bool) -> None:
        """Begin no requests while at least one reason holds (`holds=True`)."""
        if holds:
            self._holding.add(reason)
            self.connection.hold_requests()
        else:
            self._holding.discard(reason)
            if not self._holding:
                self.connection.resume_requests()

    def _upstream_lost(self, error: Exception | None) -> None:
        if not self.connection.is_lost:
            self._route.line = None  # the broker may be of another release when it is back
        if error is not None:
            text = error.text if isinstance(error, KafkaError) else str(error)
            self.warn(f"connection to node {self._route.node_id} lost: {text}")
            self.shared.measurements.upstream_failed(self._route.node_id, "lost")
        self.connection.close_unanswered()

    # --- what the connection of the client calls --------------------------------------------------

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        head: RequestHead | None = None
        try:
            if self._login.awaits_token:
                self._answer_login(None, self._login.take_token(frame), exchange)
                return
            head = headers.read_head(frame)
            if head.key in SASL_VERSIONS:
                self._log_in(head, frame, exchange)
            elif self._login.is_complete or head.key == API_VERSIONS:
                yield from self._handle(head, frame, exchange)
            else:
                raise RefusedError("the client hasn't authenticated")
        except (RefusedError, KafkaProtocolError, AuthenticationFailed) as error:
            if not self._login.is_complete and not (head and _is_known(head)):
                head = None  # the frame may be a token, and its client id a password
            # A broker of 0.9 neither responds to such a request nor closes the connection.
            text, closes = str(error), self._line is not BrokerLine.V0_9
            self.refuse(head, error.text if isinstance(error, KafkaError) else text, closes=closes)
            exchange.end()

    def pause_writing(self) -> None:
        self.upstream.pause_reading()

    def resume_writing(self) -> None:
        self.upstream.resume_reading()

    def evicted(self, reason: str) -> None:
        self._report("closed", self.connection.host, f"closed, {reason}")

    def failed(self, error: Exception) -> None:
        _log.error("%s: closed by an internal error", self.connection.peer, exc_info=error)

    def lost(self) -> None:
        for begun in (self._connecting, self._login_ends):
            if begun is not None:
                begun.cancel()
        self.connection.abort()  # ends the work for the client's requests
        self._translated.close()
        self.upstream.close()

    def ended(self) -> None:
        # They refer to this object, and full garbage collections are rare (`short_holds`).
        del self._translated, self.upstream, self._connecting

    # --- the login --------------------------------------------------------------------------------

    def _log_in(self, head: RequestHead, frame: memoryview, exchange: Exchange) -> None:
        if head.version not in SASL_VERSIONS[head.key]:
            raise RefusedError(f"expected version 0 to {SASL_VERSIONS[head.key][-1]}")
        self._answer_login(head, self._login.answer(head, frame), exchange)

    def _answer_login(
        self, head: RequestHead | None, answer: list[Buffer], exchange: Exchange
    ) -> None:
        failure = self._login.failure
        if head is not None:
            self.count(head, Fate.REFUSED if failure else Fate.PASSED)
        if failure:
            self._login_failed(failure, answer, exchange)
            return
        exchange.respond(answer)
        if self._login.is_complete and self._login_ends is not None:
            self._login_ends.cancel()
            self._login_ends = None
            self.connection.limit_frames(None)
            self._begin_connecting()

    def _login_failed(self, failure: str, answer: list[Buffer], exchange: Exchange) -> None:
        """Respond and close the connection after a delay; no further frame of it is handled."""

        def close() -> None:
            exchange.respond(answer)
            self.connection.close()

        assert self._login_ends is not None
        self._login_ends.cancel()
        self._login_ends = asyncio.get_running_loop().call_later(FAILED_LOGIN_S, close)
        self.hold("login", True)
        mechanism = self._login.mechanism
        self.shared.measurements.login_failed(mechanism)
        self._report("login", (self.connection.host, mechanism), failure)

    def _login_is_late(self) -> None:
        text = f"closed: the client hasn't authenticated within {LOGIN_S:g} s"
        self._report("login", self.connection.host, text)
        self.connection.abort()

    # --- requests ---------------------------------------------------------------------------------

    def _handle(self, head: RequestHead, frame: memoryview, exchange: Exchange) -> Work[None]:
        assert isinstance(exchange, GatewayExchange)
        api = apis().get(head.key)
        if api is None:
            raise RefusedError("the API isn't known")
        exchange.answered = self._answered(api, environment.monotonic())
        if self._options.is_observing and not self._login.is_complete:
            yield self._begin_connecting()
        if self._line < BrokerLine.V0_10 and head.key > ApiKey.LIST_GROUPS:
            raise RefusedError("brokers of 0.8 and 0.9 don't know this API")
        if head.key == API_VERSIONS:
            self._send_api_versions(api, head, frame, exchange)
        elif self._is_entry and has_no_own(api, head.version):
            self.count(head, Fate.PASSED)
            respond(exchange, response_frame(api, head, {}))
        elif self._is_known(api, head.version):
            yield from self._allowed(api, head, frame, exchange)
        else:
            raise RefusedError(_why_unknown(api, head.version))

    def _allowed(
        self, api: Api, head: RequestHead, frame: memoryview, exchange: GatewayExchange
    ) -> Work[None]:
        """Translate or pass what is allowed of a request, and answer the rest."""
        checked, size, limited = frame, len(frame), None
        if not self._access.passes(api, head, frame):
            limited = yield from apart(size, lambda: self._access.check(api, head, checked))
        if limited is not None:
            if limited.request is None:
                yield from self._answer(head, limited, size, exchange)
                return
            frame = memoryview(b"".join(limited.request))
            exchange.change, exchange.failed = limited.respond, self._unreadable
        changed = headers.read_head(frame)
        is_old = head.version not in api.versions
        if is_old and not self._options.is_observing:
            self.count(head, Fate.TRANSLATED)
            yield from self._translated.run(changed, frame, exchange)
        else:
            self.count(head, Fate.STRANDED if is_old else Fate.PASSED)
            passes = self._pass
            if not self._options.is_observing and topic_creation.may_create(changed, frame):
                passes = self._pass_creating
            passes(api, changed, frame, exchange)
        if limited is not None and limited.refused:
            self.refuse(head, limited.refused, closes=not limited.expects_response)

    def _answer(
        self, head: RequestHead, limited: Limited, size_bytes: int, exchange: Exchange
    ) -> Work[None]:
        """Answer a request of this size without the target."""
        if limited.expects_response:
            made = yield from apart(size_bytes, lambda: limited.respond(memoryview(b"")))
            respond(exchange, made)
        else:
            exchange.end()
        # If there is no response, the end of the connection shows the client the refusal.
        self.refuse(head, limited.refused, closes=not limited.expects_response)

    def _unreadable(self, error: KafkaProtocolError) -> None:
        self.warn(f"a response of node {self._route.node_id}: {error.text}")
        self.connection.close_unanswered()

    def _answered(self, api: Api, began: float) -> Callable[[], None]:
        """Return a function to call with the response: it measures how long the client waited."""
        return lambda: self.shared.measurements.answered(api.name, environment.monotonic() - began)

    def _send_api_versions(
        self, api: Api, head: RequestHead, frame: memoryview, exchange: Exchange
    ) -> None:
        if head.version not in api.versions:
            self.count(head, Fate.REFUSED)
            respond(exchange, api_versions.unsupported_version(head))
            return
        software = " ".join(name for _, name in find_in_request(api, head, frame, _SOFTWARE))
        self.count(head, Fate.PASSED, software=software.encode(errors="replace").decode())
        known = self._route.versions.get(head.version)
        if known is not None and not self._login.is_complete:
            answer = memoryview(bytes(frame[4:8]) + known)
            respond(exchange, api_versions.offered(head.version, answer, self._versions))
            return
        self._begin_connecting()

        def answered(answer: memoryview) -> Work[list[Buffer]]:
            self._route.versions.note(head.version, bytes(answer[CORRELATION_BYTES:]))
            return finish(api_versions.offered(head.version, answer, self._versions))

        self.upstream.send(head.correlation_id, [frame], exchange, answered)

    def _is_known(self, api: Api, version: int) -> bool:
        """Return whether requests of a version pass, or are translated or answered."""
        return version in self._versions(api) or api_versions.is_translated(api.key, version)

    def _versions(self, api: Api) -> range:
        """Return the versions of an API that may pass, or that the gateway answers."""
        if self._options.is_observing and not api.is_between_brokers:
            return SASL_VERSIONS.get(api.key) or range(api.versions[-1] + 1)
        return SASL_VERSIONS.get(api.key) or self._options.access.versions(api)

    def count(self, head: RequestHead, fate: Fate | None, **more: Any) -> None:
        """Count a request; `more` is as in `ClientTable.count`.

        With `fate=None` count only its messages and errors, since the request itself was counted
        when it came.
        """
        counted = None
        if fate is not None:
            api = apis().get(head.key)
            # All unknown APIs share an entry, and so do all unknown versions of an API. Otherwise a
            # client could make the table large.
            is_known = api is not None and self._is_known(api, head.version)
            counted = api.name if api else "unknown", head.version if is_known else -1, fate
        self.shared.count(
            head.client_id, self.connection.host, counted, principal=self._principal, **more
        )

    @property
    def _principal(self) -> str:
        return self._login.user or self._certificate_name

    def _pass(self, api: Api, head: RequestHead, frame: memoryview, exchange: Exchange) -> None:
        expects_response = (
            head.key != ApiKey.PRODUCE or read_request(api, head, frame, wanted=_ACKS)["Acks"] != 0
        )
        # Brokers of 0.8 and 0.9 respond in layout 0, whatever version is asked for.
        version = head.version if self._line is BrokerLine.V0_10 else 0
        answer = self._replaced(api, version) if has_addresses(api, version) else None
        self.upstream.send(
            head.correlation_id, [frame], exchange, answer, expects_response=expects_response
        )
        exchange.release()

    def _pass_creating(
        self, api: Api, head: RequestHead, frame: memoryview, exchange: Exchange
    ) -> None:
        """Pass a request that may create topics; if unknown, ask the broker whether it does so."""
        creates = self.shared.creation.get(self._route.node_id)
        kept = frame if creates is None else memoryview(b"")
        # Nested functions that refer to each other would keep the frame until the garbage collector
        # finds them.
        answered = partial(self._answer_creating, api, head, kept, exchange, creates)
        self.upstream.send(head.correlation_id, [frame], exchange, answered)
        exchange.release(len(kept))

    def _answer_creating(
        self, api: Api, head: RequestHead, frame: memoryview, exchange: Exchange,
        creates: bool | None, answer: memoryview,
    ) -> Work[list[Buffer] | None]:  # fmt: skip
        to_come = yield from apart(
            len(answer), lambda: topic_creation.with_topics_to_come(api, head.version, answer)
        )
        if to_come is not None and creates is None:
            asked = topic_creation.ask_creation(self._route.node_id, request_end(head, frame))
            noted = partial(self._note_creation, api, head, frame, exchange)
            self.upstream.send(head.correlation_id, asked, exchange, noted)
            return None
        return (yield from self._replaced(api, head.version)((creates and to_come) or answer))

    def _note_creation(
        self, api: Api, head: RequestHead, frame: memoryview, exchange: Exchange, answer: memoryview
    ) -> Work[list[Buffer] | None]:
        node_id = self._route.node_id
        self.shared.creation.note(node_id, topic_creation.reads_creation(node_id, answer))
        self._pass_creating(api, head, frame, exchange)
        return finish(None)

    def _replaced(self, api: Api, version: int) -> Answer:
        """Return the function that replaces the addresses in a response."""
        # The addresses in DescribeQuorum are for controllers, not for clients: the gateway mustn't
        # connect to them.
        is_quorum = api.key == _DESCRIBE_QUORUM
        address_of = self.shared.known_address_of if is_quorum else self.shared.address_of

        def replaced(answer: memoryview) -> Work[list[Buffer] | None]:
            try:
                values = read_addresses(api, version, answer, is_quick=True)
            except TakesLongError:
                values = yield from offload(lambda: read_addresses(api, version, answer))
            if values is None:
                return [answer]
            nodes = addresses.node_ids(api, version, values)
            if not is_quorum and (learning := self.shared.learn(nodes)) is not None:
                yield learning
            return replace_addresses(api, version, answer, values, address_of, self.shared.peers)

        return replaced

    def refuse(self, head: RequestHead | None, reason: str, *, closes: bool = True) -> None:
        """Log a refused request (None: it can't be named), and end the connection after it."""
        api = None if head is None else apis().get(head.key)
        name = api.name if api else "a request" if head is None else f"API {head.key}"
        version = "?" if head is None else head.version
        client_id = None if head is None else head.client_id
        if client_id is not None:
            client_id = client_id[:_SHOWN_CHARACTERS]
        if head is not None:
            self.count(head, Fate.REFUSED)
        text = f"client id {client_id!r}: {name} version {version} is refused: {reason}"
        self._report("refused", (self.connection.host, api), text)
        if closes:
            self.connection.close()

    def warn(self, text: str) -> None:
        """Log a problem with the target, once for all clients that have it."""
        self._report("target", one_line(text), text)

    def _report(self, kind: str, key: Hashable, text: str) -> None:
        # Each new key is logged, and kept for a minute. So a key has no value that a client can
        # make up, such as its id.
        self.shared.log.report(key, f"{self.connection.peer}: {text}", kind)


def _why_unknown(api: Api, version: int) -> str:
    """Return why a request has no answer."""
    if api.is_between_brokers:
        return access.BETWEEN_BROKERS_TEXT
    if version not in api.versions:
        return (
            f"expected version {api.versions[0]} to {api.versions[-1]}, or one that is translated"
        )
    if api.name in api_versions.CHANGES:
        return access.CHANGE_TEXT
    return "it could name topics that aren't allowed in ways not looked at"


def _is_known(head: RequestHead) -> bool:
    """Return whether there are requests of this version."""
    api = apis().get(head.key)
    return api is not None and head.version <= api.versions[-1]
