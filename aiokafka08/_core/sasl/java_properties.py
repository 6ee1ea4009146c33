"""Parse the SASL properties of Java's clients and of librdkafka into arguments of this client.
Pure.

`sasl.jaas.config` is read as Java reads it: one login module with its options.

Invariant: no error text contains the value of a property that may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aiokafka08._core.properties import choice, parse_boolean
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError

SASL: Final = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
)

SASL_WITHOUT_EFFECT: Final = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
)
"""Properties without effect: this client renews tickets by itself, at 80 % of their life."""

SASL_OF_OTHERS: Final = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)
"""Properties of Java's clients that this client doesn't support, like all of `sasl.oauthbearer.`"""

ARGUMENTS: Final = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.kerberos.keytab": "sasl_kerberos_keytab",
    "sasl.kerberos.principal": "sasl_kerberos_principal",
}
_MECHANISMS: Final = ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS: Final = re.compile(
    r"\s*(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)"
    r"(?P<options>(?:\s+\w[\w.]*\s*=\s*(?:\"(?:\\.|[^\"\\])*\"|[^\s\";]+))*)\s*;\s*",
    re.IGNORECASE,
)
_JAAS_OPTION: Final = re.compile(r"(\w[\w.]*)\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|([^\s\";]+))")


def is_known(name: str) -> bool:
    """Return whether a property that begins with `sasl.` belongs to Java or librdkafka."""
    known = (*SASL, *SASL_WITHOUT_EFFECT, *SASL_OF_OTHERS)
    return name in known or name.startswith("sasl.oauthbearer.")


class Secret(str):
    """A text that isn't shown by `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


def is_sasl(properties: Mapping[str, str]) -> bool:
    """Return True if `security.protocol` asks for SASL."""
    return "SASL" in properties.get("security.protocol", "").upper()


def sasl_options(properties: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Return the arguments of a client for the SASL properties; none without SASL.

    Args:
        properties: the properties, without a prefix, by Java's names.
        prefix: the text before a property's name in errors (default "").

    Raises:
        IllegalArgumentError: a property has a wrong value.
    """
    if not is_sasl(properties):
        return {}
    found: dict[str, Any] = {}
    default = "GSSAPI"  # as in Java and librdkafka, unlike aiokafka
    if (text := properties.get("sasl.jaas.config")) is not None:
        found, default = _jaas(f"{prefix}sasl.jaas.config", text)
    for name, argument in ARGUMENTS.items():
        if name in properties:
            found[argument] = properties[name]
    if "sasl_plain_password" in found:
        found["sasl_plain_password"] = Secret(found["sasl_plain_password"])
    mechanism = properties.get("sasl.mechanism", default)
    names = {name: name for name in _MECHANISMS}
    return {"sasl_mechanism": choice(f"{prefix}sasl.mechanism", mechanism, names), **found}


def _jaas(option: str, text: str) -> tuple[dict[str, str], str]:
    """Return the arguments in a login module's options, and the mechanism that it is for."""
    match = _JAAS.fullmatch(text)
    if match is None:
        raise IllegalArgumentError(
            f"{option}=…: can't be read; expected one login module, as Java's: 'org.apache.kafka"
            '.common.security.plain.PlainLoginModule required username="…" password="…";\''
        )
    options = {
        name.lower(): bare or re.sub(r"\\(.)", r"\1", quoted)
        for name, quoted, bare in _JAAS_OPTION.findall(match["options"])
    }
    module = match["module"].rpartition(".")[2]
    if module in ("PlainLoginModule", "ScramLoginModule"):
        if parse_boolean(f"{option}: tokenauth", options.get("tokenauth", "false")):
            raise IllegalArgumentError(f"{option}: tokenauth=true; expected no delegation token")
        names = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
        mechanism = "PLAIN" if module == "PlainLoginModule" else "SCRAM-SHA-256"
    elif module == "Krb5LoginModule":
        names = {
            "principal": "sasl_kerberos_principal",
            "servicename": "sasl_kerberos_service_name",
        }
        if parse_boolean(f"{option}: useKeyTab", options.get("usekeytab", "false")):
            names["keytab"] = "sasl_kerberos_keytab"
        mechanism = "GSSAPI"
    else:
        raise IllegalArgumentError(
            f"{option}: the login module {shorten(module)} isn't supported; expected "
            "PlainLoginModule, ScramLoginModule or Krb5LoginModule"
        )
    return {names[name]: value for name, value in options.items() if name in names}, mechanism
