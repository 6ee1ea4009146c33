"""Credentials, TLS and ACLs of a secured ZooKeeper: check `zookeeper_options` for kazoo.

The names of the options are kazoo's. Kerberos isn't among them: kazoo supports SASL only
through the package pure-sasl, and has no public call that sends another implementation's tokens.

Invariant: a password is in no error, log line or `repr`. A wrong or contradictory option raises an
error when the client is created; an unreadable file raises one before the client connects.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiokafka08._core.properties import (
    TlsOptions,
    choice,
    nonempty,
    parse_boolean,
    tls_options,
)
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError

if TYPE_CHECKING:
    import ssl

_DIGEST_MD5: Final = "DIGEST-MD5"
_TLS: Final = ("ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname")
OPTIONS: Final = ("auth_data", "sasl_options", "use_ssl", *_TLS, "set_acl")
"""The keys of `zookeeper_options`; all but the last are arguments of `kazoo.client.KazooClient`."""

PREFIX: Final = "zookeeper."
_PROPERTIES: Final = (
    "username",
    "password",
    "sasl.mechanism",
    "set.acl",
    "ssl.client.enable",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
PROPERTIES: Final = tuple(PREFIX + name for name in _PROPERTIES)
"""The properties of configuration files that set `zookeeper_options`."""


@dataclass(frozen=True, slots=True)
class ZookeeperSecurity:
    """How sessions of ZooKeeper authenticate, and how their nodes are protected."""

    # The identity in errors, such as "digest user 'alice'"; None: no authentication
    identity: str | None = None
    # Whether new nodes may be changed by this identity only, and read by all
    sets_acl: bool = False
    _auth_data: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    _sasl: Mapping[str, str] | None = field(default=None, repr=False)
    _tls: TlsOptions | None = field(default=None, repr=False)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context of TLS connections; None without TLS.

        Raises:
            KafkaConfigurationError: a file can't be read, or isn't PEM.
        """
        from aiokafka08._core.net.tls import ssl_context  # `--help` imports no ssl

        return ssl_context(self._tls, prefix="zookeeper_options: ")

    def client_arguments(self) -> dict[str, Any]:
        """Return arguments of kazoo's client.

        Raises:
            KafkaConfigurationError: the package pure-sasl is needed, and isn't installed.
        """
        arguments: dict[str, Any] = {}
        if self._auth_data:
            arguments["auth_data"] = list(self._auth_data)
        if self._sasl is not None:
            if importlib.util.find_spec("puresasl") is None:
                raise KafkaConfigurationError(
                    f"zookeeper_options: sasl_options with {_DIGEST_MD5}: kazoo needs the package "
                    "pure-sasl. Install it: pip install pure-sasl; or use auth_data, if the ACLs "
                    "have the scheme digest"
                )
            arguments["sasl_options"] = dict(self._sasl)  # kazoo adds to it
        if (tls := self._tls) is not None:
            arguments |= {
                "use_ssl": True,
                "ca": tls.cafile,
                "certfile": tls.certfile,
                "keyfile": tls.keyfile or tls.certfile,  # kazoo ignores one without the other
                "keyfile_password": tls.password,
                "verify_certs": tls.verify,
                "check_hostname": tls.check_hostname and tls.verify,
            }
        if self.sets_acl:
            from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

            arguments["default_acl"] = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]  # as Kafka sets them
        return arguments


OPEN: Final = ZookeeperSecurity()
"""Without `zookeeper_options`."""


def parse_security(options: object, connect: str | None) -> ZookeeperSecurity:
    """Check the option `zookeeper_options` of a client.

    Raises:
        IllegalArgumentError: a value is wrong.
        KafkaConfigurationError: the options contradict each other, or ask for Kerberos.
    """
    if options is None:
        return OPEN
    if not isinstance(options, Mapping):
        raise IllegalArgumentError("zookeeper_options: expected a dict with kazoo's arguments")
    if connect is None:
        raise KafkaConfigurationError(
            "zookeeper_options: have no effect without zookeeper_connect. Set it too"
        )
    for name in options:
        if name not in OPTIONS:
            raise IllegalArgumentError(
                f"zookeeper_options: {shorten(name)}; expected one of {', '.join(OPTIONS)}"
            )
    auth_data = tuple(_credential(one) for one in _auth_list(options.get("auth_data")))
    sasl = _sasl(options.get("sasl_options"))
    flags = {
        name: _flag(name, options.get(name, default))
        for name, default in (("use_ssl", False), ("verify_certs", True), ("set_acl", False))
    }
    given = [name for name in _TLS if options.get(name) is not None]
    if given and not flags["use_ssl"]:
        raise KafkaConfigurationError(
            f"zookeeper_options: {given[0]} has no effect without use_ssl=True"
        )
    certfile = _text("certfile", options.get("certfile"))
    identities = [
        *([f"SASL user {sasl['username']!r}"] if sasl else []),
        *(f"{scheme} user {value.partition(':')[0]!r}" for scheme, value in auth_data),
        *([f"the owner of the certificate {certfile!r}"] if certfile else []),
    ]
    if flags["set_acl"] and not identities:
        raise KafkaConfigurationError(
            "zookeeper_options: set_acl=True needs an identity that may change the nodes. Set "
            "auth_data, sasl_options or certfile too"
        )
    tls = TlsOptions(
        cafile=_text("ca", options.get("ca")),
        certfile=certfile,
        keyfile=_text("keyfile", options.get("keyfile")),
        password=_text("keyfile_password", options.get("keyfile_password")),
        check_hostname=_flag("check_hostname", options.get("check_hostname", True)),
        verify=flags["verify_certs"],
    )
    return ZookeeperSecurity(
        identity=" and ".join(identities) or None,
        sets_acl=flags["set_acl"],
        _auth_data=auth_data,
        _sasl=sasl,
        _tls=tls if flags["use_ssl"] else None,
    )


def options_of_properties(properties: Mapping[str, str], prefix: str = "") -> dict[str, Any] | None:
    """Return `zookeeper_options` for properties, by the names in `PROPERTIES`; None without any.

    Args:
        properties: all properties, by their names.
        prefix: the text before a property's name in errors (default "").

    Raises:
        IllegalArgumentError: a property has a wrong value, or needs another one.
    """
    given = {name: properties[PREFIX + name] for name in _PROPERTIES if PREFIX + name in properties}
    if not given:
        return None
    prefix += PREFIX
    options: dict[str, Any] = {}
    for name, other in (("username", "password"), ("password", "username")):
        if name not in given and other in given:
            raise IllegalArgumentError(
                f"{prefix}{name}: missing; {prefix}{other} needs it. Set it too, or none of them"
            )
    if "username" in given:
        user, password = nonempty(f"{prefix}username", given["username"]), given["password"]
        if not password:
            raise IllegalArgumentError(
                f"{prefix}password: empty; expected the password of {user!r}. Set it, or remove "
                f"{prefix}username and {prefix}password"
            )
        if "sasl.mechanism" in given:
            mechanism = choice(
                f"{prefix}sasl.mechanism", given["sasl.mechanism"], {_DIGEST_MD5: _DIGEST_MD5}
            )
            options["sasl_options"] = {
                "mechanism": mechanism,
                "username": user,
                "password": password,
            }
        else:
            options["auth_data"] = [("digest", f"{user}:{password}")]
    elif "sasl.mechanism" in given:
        raise IllegalArgumentError(
            f"{prefix}sasl.mechanism: has no effect without {prefix}username. Kerberos isn't "
            "supported for ZooKeeper"
        )
    if "set.acl" in given:
        options["set_acl"] = parse_boolean(f"{prefix}set.acl", given["set.acl"])
    is_tls = parse_boolean(f"{prefix}ssl.client.enable", given.get("ssl.client.enable", "false"))
    if is_tls:
        tls = tls_options(given, prefix)
        options |= {
            "use_ssl": True,
            "ca": tls.cafile,
            "certfile": tls.certfile,
            "keyfile": tls.keyfile,
            "keyfile_password": tls.password,
            "verify_certs": tls.verify,
            "check_hostname": tls.check_hostname,
        }
    elif unused := [name for name in given if "ssl." in name and name != "ssl.client.enable"]:
        raise IllegalArgumentError(
            f"{prefix}{unused[0]}: has no effect without {prefix}ssl.client.enable=true"
        )
    return options


def _auth_list(value: object) -> Iterable[object]:
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _wrong_auth_data()
    return value


def _credential(one: object) -> tuple[str, str]:
    match one:
        case ("digest", str(value)) if value.partition(":")[0] and value.partition(":")[2]:
            return "digest", value
        case ("sasl", _):
            raise IllegalArgumentError(
                "zookeeper_options: auth_data with the scheme sasl; use sasl_options instead"
            )
    raise _wrong_auth_data()


def _wrong_auth_data() -> IllegalArgumentError:
    """Return the error, which shows no value: it may be a secret."""
    return IllegalArgumentError(
        "zookeeper_options: auth_data=…: expected a list such as [('digest', 'user:password')]"
    )


def _sasl(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    names = ("mechanism", "username", "password")
    mechanism = value.get("mechanism") if isinstance(value, Mapping) else None
    if mechanism == "GSSAPI":
        raise KafkaConfigurationError(
            "zookeeper_options: sasl_options with GSSAPI: Kerberos isn't supported for ZooKeeper, "
            f"only for brokers. Expected {_DIGEST_MD5}, auth_data, or a ZooKeeper that lets this "
            "client in without authentication"
        )
    if (
        not isinstance(value, Mapping)
        or mechanism != _DIGEST_MD5
        or set(value) != set(names)
        or not all(isinstance(value[name], str) and value[name] for name in names)
    ):
        raise IllegalArgumentError(
            "zookeeper_options: sasl_options=…: expected {'mechanism': 'DIGEST-MD5', 'username': "
            "'…', 'password': '…'}"
        )
    return {name: value[name] for name in names}


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise IllegalArgumentError(f"zookeeper_options: {name}: expected True or False")
    return value


def _text(name: str, value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise IllegalArgumentError(f"zookeeper_options: {name}: expected a non-empty text")
    return value
