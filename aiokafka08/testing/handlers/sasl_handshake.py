"""SaslHandshake: begin the authentication of a connection.

`handlers.handle` dispatches the requests to `sasl_handshake`; `server` reads the tokens after it.
"""

from __future__ import annotations

from aiokafka08._core.server.sasl import MECHANISMS
from aiokafka08.errors import IllegalSaslStateError, UnsupportedSaslMechanismError
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aiokafka08.testing.handlers.outcome import HandlerResult, Reply, RequestContext


def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> HandlerResult:
    """Choose a mechanism; the answer lists those that the broker has.

    Models: a listener without SASL, and a connection that is authenticated, answer with
    IllegalSaslState. After UnsupportedSaslMechanism the connection is closed.
    Doesn't model: real brokers list GSSAPI too if they have it.
    """
    session = context.session
    if session is None:
        return Reply(SaslHandshakeResponse(IllegalSaslStateError.errno, ["GSSAPI"]))  # the default
    mechanisms = list(MECHANISMS)
    if session.is_complete:
        return Reply(SaslHandshakeResponse(IllegalSaslStateError.errno, mechanisms))
    if not session.choose(request.mechanism):
        return Reply(SaslHandshakeResponse(UnsupportedSaslMechanismError.errno, mechanisms))
    return Reply(SaslHandshakeResponse(0, mechanisms))
