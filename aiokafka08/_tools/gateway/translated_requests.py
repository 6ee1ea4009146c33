"""`TranslatedRequests`: carry out the translations of one client's old requests.

A translation is a chain of steps (`translation`). Most have one step, for the broker that the
client has chosen. Others ask another broker, such as the coordinator of a group, or the same one
again. `handler` has one `TranslatedRequests` for each connection.

Invariants:

- While a request with exclusive steps is carried out, none of the client's later ones is begun.
- A translation that takes long runs in the worker thread, whatever the sizes in its frame say
  (`Budget`). If the client has gone, it runs only for a request without a response.
- The connections to other brokers end with the client's connection. If one is lost during
  a request, the client's connection ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from aiokafka08._core.net.config import Address, address_text
from aiokafka08._core.server.connection import Exchange, ServerConnection
from aiokafka08._core.server.work import Work, offload
from aiokafka08._tools.gateway import old_offsets
from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.layouts import TakesLongError, apis
from aiokafka08._tools.gateway.old_fetch import FetchPositions, translate_fetch
from aiokafka08._tools.gateway.old_produce import translate_produce
from aiokafka08._tools.gateway.shared_state import SharedState
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08._tools.gateway.upstream import Upstream, connect, respond
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.types import Buffer

T = TypeVar("T")

_ITEM_BYTES: Final = 400
"""Memory for each topic or partition of a request. Fetches of one partition per topic need most."""
_ACKS_0: Final = b"\0\0"
_MAX_OTHERS: Final = 16
"""How many connections to other brokers a client may have; the oldest one ends."""
QUICK_BYTES: Final = 32 << 10
"""A larger frame is translated in the worker thread, since it may have many items."""


class ClientHandler(Protocol):
    """The handler of a client's connection, as `TranslatedRequests` sees it.

    Attributes:
        connection: the client's connection.
        shared: the state that the handlers of all clients share.
        upstream: the connection to the broker that the client has chosen.
    """

    connection: ServerConnection
    shared: SharedState
    upstream: Upstream

    def new_upstream(self, name: str, lost: Callable[[Exception | None], None]) -> Upstream:
        """Return a connection to another broker, not yet opened; for `lost` see `Upstream`."""

    def hold(self, reason: str, holds: bool) -> None:
        """Begin no more requests of the client while at least one reason holds (`holds=True`)."""

    def refuse(self, head: RequestHead, reason: str) -> None:
        """End the connection because of a request."""

    def warn(self, text: str) -> None:
        """Log a problem with the target."""

    def count(self, head: RequestHead, fate: None, *, messages: int, errors: int) -> None:
        """Count the messages that a request stores or returns, and its partitions with an error.

        `fate`, how the request was handled, is None, because it was counted when the request came.
        """


class TranslatedRequests:
    """See the module."""

    def __init__(self, client: ClientHandler) -> None:
        self._client = client
        self._positions = FetchPositions()
        self._listed_versions = old_offsets.ListedVersions()
        self._others: dict[Address, Upstream] = {}
        self._exclusive: Exchange | None = None
        self._asked: Upstream | None = None  # the one of `_others` that works for `_exclusive`
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def run(self, head: RequestHead, frame: memoryview, exchange: Exchange) -> Work[None]:
        """Carry out a request of a version that is translated.

        Raises:
            KafkaProtocolError: the request isn't whole.
        """
        acks = bytes(frame[head.body_at : head.body_at + 2])
        expects_response = head.key != ApiKey.PRODUCE or acks != _ACKS_0
        translate = partial(self._translate, head, frame)
        step = yield from self._run_or_offload(head, len(frame), translate, expects_response)
        if step is None:
            self._drop_responses(exchange)
            return
        if step.is_exclusive:
            self._exclusive = exchange
            self._client.hold("exclusive", True)
        exchange.release(len(frame) * step.is_exclusive + step.kept_items * _ITEM_BYTES)
        self._begin(head, step, exchange)

    def _translate(self, head: RequestHead, frame: memoryview, budget: Budget) -> Translation:
        """Translate a request of a version in `api_versions.TRANSLATED`. It may take long."""
        shared = self._client.shared
        match head.key:
            case ApiKey.PRODUCE:
                return translate_produce(head, frame, shared.limits, budget)
            case ApiKey.FETCH:
                committed = shared.options.is_read_committed
                return translate_fetch(head, frame, self._positions, is_read_committed=committed)
            case ApiKey.LIST_OFFSETS:
                return old_offsets.translate_list_offsets(head, frame, self._listed_versions)
            case _:
                return old_offsets.translate_offsets(head, frame, shared.coordinators)

    def close(self) -> None:
        """End: the client's connection is lost."""
        for begun in (self._connecting, self._waiting):
            if begun is not None:
                begun.cancel()
        for other in list(self._others.values()):
            other.close()
        # They refer to this object, and full garbage collections are rare (`short_holds`).
        self._others, self._asked = {}, None

    def _begin(self, head: RequestHead, step: Translation, exchange: Exchange) -> None:
        """Begin a step, at once or after its delay (`after_s`)."""
        if step.after_s:
            loop = asyncio.get_running_loop()
            self._waiting = loop.call_later(step.after_s, self._send_step, head, step, exchange)
        else:
            self._send_step(head, step, exchange)

    def _send_step(self, head: RequestHead, step: Translation, exchange: Exchange) -> None:
        broker = self._client.upstream if step.broker is None else self._others.get(step.broker)
        if broker is not None:
            self._send(broker, head, step, exchange)
        elif step.broker is not None:
            connecting = self._connect_and_send(step.broker, head, step, exchange)
            self._connecting = asyncio.create_task(connecting)

    def _send(
        self, upstream: Upstream, head: RequestHead, step: Translation, exchange: Exchange
    ) -> None:
        respond_to, expects_response = step.respond, step.expects_response
        if upstream is not self._client.upstream:
            # Set before the request is sent: if the connection is just closing, it drops the
            # request, and `lost` below then closes the client's connection. One value is enough,
            # because steps for other brokers are exclusive.
            self._asked = upstream

        def answer(frame: memoryview) -> Work[list[Buffer] | None]:
            call = partial(respond_to, frame)
            made = yield from self._run_or_offload(head, len(frame), call, expects_response)
            if made is None:
                self._drop_responses(exchange)
                return None
            self._client.connection.handler_bytes = self._positions.held_bytes
            if exchange is self._exclusive:
                self._asked = None
            if isinstance(made, Translation):
                self._begin(head, made, exchange)
                return None
            self._done(exchange)
            return made

        if (request := step.request) is not None:
            correlation_id, is_answered = head.correlation_id, step.is_answered
            upstream.send(correlation_id, request, exchange, answer, expects_response=is_answered)
        else:
            if step.expects_response:
                budget = Budget()
                made = step.respond(memoryview(b""), budget)
                assert not isinstance(made, Translation)
                self._count_results(head, budget)
                respond(exchange, made)
            else:
                exchange.end()
            self._done(exchange)
        if step.failure is not None:
            self._client.refuse(head, step.failure)

    def _count_results(self, head: RequestHead, budget: Budget) -> None:
        if budget.messages or budget.errors:
            self._client.count(head, None, messages=budget.messages, errors=budget.errors)

    def _drop_responses(self, exchange: Exchange) -> None:
        """Drop this response and all later ones: the client has disconnected."""
        self._client.connection.close_unanswered()
        exchange.end()

    def _done(self, exchange: Exchange) -> None:
        """Begin the later requests, if they have waited for this one."""
        if exchange is self._exclusive:
            self._exclusive = None
            self._client.hold("exclusive", False)

    async def _connect_and_send(
        self, broker: Address, head: RequestHead, step: Translation, exchange: Exchange
    ) -> None:
        name = f"broker {address_text(broker)}"

        def lost(error: Exception | None) -> None:
            is_needed = self._asked is not None and self._asked is known()
            if error is not None or is_needed:
                self._client.warn(f"connection to {name} lost: {error or 'closed'}")
            forget(is_needed=is_needed)

        def forget(*, is_needed: bool) -> None:
            if broker in self._others and self._others[broker] is known():
                del self._others[broker]
            self._client.hold(name, False)  # it may have been lost while it wasn't writable
            if is_needed:
                self._client.shared.coordinators.forget_value(broker)
                self._client.connection.close_unanswered()

        while len(self._others) >= _MAX_OTHERS:  # none of them is in use: steps are exclusive
            self._others.pop(next(iter(self._others))).close()
        other = self._client.new_upstream(name, lost)
        known = weakref.ref(other)  # a cycle, by its callback, would stay for a minute
        self._others[broker] = other
        try:
            await connect(other, broker, self._client.shared.options.network)
        except KafkaError as error:
            self._client.warn(f"no connection to broker {error.text}")
            forget(is_needed=True)
        else:
            self._send(other, head, step, exchange)

    def _run_or_offload(
        self, head: RequestHead, size: int, function: Callable[[Budget], T], expects_response: bool
    ) -> Work[T | None]:
        """Return the result of a pure function, run in place if it is quick, else in a thread.

        Return None instead if the client had disconnected before the thread began the work.
        Requests without a response are carried out all the same: their clients may close at once.
        """

        def measured(budget: Budget) -> T:
            with self._client.shared.measurements.converting(apis()[head.key].name, size):
                made = function(budget)
            self._count_results(head, budget)
            return made

        if size <= QUICK_BYTES:
            with contextlib.suppress(TakesLongError):
                return measured(Budget(is_quick=True))

        def run() -> T | None:
            has_gone = expects_response and self._client.connection.is_half_closed
            return None if has_gone else measured(Budget())

        return (yield from offload(run))
