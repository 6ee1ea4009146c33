"""SaslHandshake: refused, as by a real broker on a listener without SASL.

`handlers.handle` dispatches the requests to `sasl_handshake`.
"""

from __future__ import annotations

from aiokafka08.errors import IllegalSaslStateError
from aiokafka08.protocol.requests.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka08.testing.handlers.outcome import HandlerResult, Reply, RequestContext


def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> HandlerResult:
    """Respond with IllegalSaslState, and with the default of `sasl.enabled.mechanisms`."""
    return Reply(SaslHandshakeResponse(IllegalSaslStateError.errno, ["GSSAPI"]))
