"""SaslAuthenticate (36): one step of the SASL mechanism that SaslHandshake 1 has chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import Bytes, Int16, Int64, NullableString, Since


@dataclass(slots=True)
class SaslAuthenticateResponse(Response):
    error_code: Int16
    error_message: NullableString
    auth_bytes: Bytes
    session_lifetime_ms: Annotated[Int64, Since(1, absent=0)] = 0  # 0: the session doesn't expire


@dataclass(slots=True)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Brokers know it from 1.0 on, version 1 from 2.2 on."""

    api = ApiKey.SASL_AUTHENTICATE
    versions = range(2)
    response = SaslAuthenticateResponse

    auth_bytes: Bytes
