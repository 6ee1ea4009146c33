"""OAUTHBEARER (RFC 7628): a token of the program's `AbstractTokenProvider`. Brokers from 2.0 on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aiokafka08._core.limited_log import one_line
from aiokafka08._core.sasl.mechanism import Mechanism, Steps
from aiokafka08.errors import AuthenticationFailedError, IllegalArgumentError

_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")


class OAuthBearer(Mechanism):
    """See `Mechanism`."""

    name = "OAUTHBEARER"
    description = "OAUTHBEARER"
    starts_raw = False
    refusal_hint = "Check the token: its expiry, scope and signature"
    wait = "sasl_oauth_token_provider hasn't returned a token"
    hint = "the token, and that OAUTHBEARER is in the broker's sasl.enabled.mechanisms"

    def __init__(self, provider: Any) -> None:
        if not callable(getattr(provider, "token", None)):
            raise IllegalArgumentError(
                f"sasl_oauth_token_provider: {type(provider).__name__}; expected an "
                "aiokafka08.abc.AbstractTokenProvider, since sasl_mechanism is OAUTHBEARER"
            )
        self._provider = provider

    async def begin(self, host: str) -> Steps:
        """Begin with a new token of the provider."""
        try:
            token = await self._provider.token()
            extensions: Mapping[str, str] = getattr(self._provider, "extensions", dict)()
        except Exception as error:  # raised by the program's code; its text may hold the token
            raise AuthenticationFailedError(
                f"sasl_oauth_token_provider raised {type(error).__name__}"
            ) from None
        if not isinstance(token, str) or not _VALUE.fullmatch(token):
            raise AuthenticationFailedError(
                "sasl_oauth_token_provider: the token isn't a text of printable ASCII, which RFC "
                "7628 expects"
            )
        if problem := _problem(extensions):
            raise AuthenticationFailedError(f"sasl_oauth_token_provider: {problem}")
        return self._steps({"auth": f"Bearer {token}", **extensions})

    def _steps(self, pairs: Mapping[str, str]) -> Steps:
        shown = "".join(f"\x01{name}={value}" for name, value in pairs.items())
        answer = yield f"n,,{shown}\x01\x01".encode()
        if answer:  # a JSON with the reason; \1 asks the broker to end the authentication
            reason = one_line(answer.decode(errors="replace"))
            yield b"\x01"
            raise AuthenticationFailedError(f"the broker refuses the token: {reason}")
        return None


def _problem(extensions: Any) -> str | None:
    """Return what is wrong with extensions, without their values; None: nothing."""
    if not isinstance(extensions, Mapping):
        return f"extensions: expected a mapping of texts, got {type(extensions).__name__}"
    for name, value in extensions.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"extension {name!r}: expected a name of ASCII letters"
        if name == "auth":  # KIP-342
            return "extension 'auth': the name is reserved for the token"
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            return f"extension {name!r}: expected a text of printable ASCII"
    return None
