"""Choose the SASL mechanism by the options of a client.

Invariant: a wrong or contradictory option, or a missing extra, is an error when the client is
created.
"""

from __future__ import annotations

from typing import Final

from aiokafka08._core.sasl.mechanism import Mechanism
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError

MECHANISMS: Final = ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def make_mechanism(
    *,
    sasl_mechanism: str,
    sasl_plain_username: str | None,
    sasl_plain_password: str | None,
    sasl_kerberos_service_name: str,
    sasl_kerberos_domain_name: str | None,
    sasl_oauth_token_provider: object,
    sasl_kerberos_keytab: str | None,
    sasl_kerberos_principal: str | None,
) -> Mechanism:
    """Return the mechanism that the options of a client describe.

    Raises:
        IllegalArgumentError: the mechanism is unknown, or one of its options is missing or wrong.
        KafkaConfigurationError: the mechanism needs an extra that isn't installed.
    """
    name = str(sasl_mechanism).upper()
    # Each module is imported here, so that a client without SASL imports none of them.
    if name == "GSSAPI":
        from aiokafka08._core.sasl.gssapi import Gssapi

        return Gssapi(
            _text("sasl_kerberos_service_name", sasl_kerberos_service_name),
            _optional("sasl_kerberos_domain_name", sasl_kerberos_domain_name),
            _optional("sasl_kerberos_keytab", sasl_kerberos_keytab),
            _optional("sasl_kerberos_principal", sasl_kerberos_principal),
        )
    if name == "OAUTHBEARER":
        from aiokafka08._core.sasl.oauthbearer import OAuthBearer

        return OAuthBearer(sasl_oauth_token_provider)
    if name not in MECHANISMS:
        raise IllegalArgumentError(
            f"sasl_mechanism={shorten(sasl_mechanism)}: expected one of {', '.join(MECHANISMS)}"
        )
    username = _text("sasl_plain_username", sasl_plain_username)
    password = _text("sasl_plain_password", sasl_plain_password)
    if name == "PLAIN":
        from aiokafka08._core.sasl.plain import Plain

        return Plain(username, password)
    from aiokafka08._core.sasl.scram import Scram

    return Scram(name, username, password)


def _text(option: str, value: object) -> str:
    """Return a value that must be a text; the error doesn't show it, since it may be secret."""
    if not isinstance(value, str) or not value or "\0" in value:
        shown = "None" if value is None else "empty" if value == "" else "a wrong value"
        raise IllegalArgumentError(
            f"{option}: {shown}; expected a non-empty text without NUL, since SASL is used"
        )
    return value


def _optional(option: str, value: object) -> str | None:
    return None if value is None else _text(option, value)
