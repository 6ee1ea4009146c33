"""SaslHandshake (17): choose the SASL mechanism of the connection."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import Int16, String


@dataclass(slots=True)
class SaslHandshakeResponse(Response):
    error_code: Int16
    mechanisms: list[String]


@dataclass(slots=True)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Raw frames of tokens follow version 0, SaslAuthenticate follows version 1 (from 1.0 on)."""

    api = ApiKey.SASL_HANDSHAKE
    versions = range(2)
    response = SaslHandshakeResponse

    mechanism: String
