"""`read_settings`: the options of a gateway, from a TOML file and from flags of the command line.

    listen = "10.0.0.5:9092"
    to = "kafka4-1:9092,kafka4-2:9092"
    allow = ["10.0.0.0/24"]
    [topics]
    include = ["orders", "clicks-.*"]

`option_table` has all options. A flag overrides the file, but not what a section
`[listeners.NAME]` has of its own: a further listener, such as one with another principal.

Invariant: an error names the file and the key, or the flag, with the value and what is expected.
"""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.config_file import Key, check_document, named, read_file
from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.client_security import read_users, server_context
from aiokafka08._tools.gateway.option_table import OPTIONS, flag
from aiokafka08._tools.gateway.options import (
    MAX_HELD_BYTES,
    GatewayOptions,
    OptionNames,
    gateway_options,
)
from aiokafka08.errors import IllegalArgumentError

_NOT_OBSERVING: Final = (
    "topics.include", "topics.exclude", "groups.include", "groups.exclude", "read_only",
    "isolation",
)  # fmt: skip
"""Options of translated and limited requests."""


def _sections(*, of_all: bool) -> Mapping[str, Mapping[str, Key]]:
    """Return the sections and keys of a file, or those that its listeners may have."""
    return {
        section: {
            option.key.rpartition(".")[2]: Key(option.check, option.default)
            for option in OPTIONS
            if option.key.rpartition(".")[0] == section and (of_all or not option.is_of_all)
        }
        for section in ("", "topics", "groups")
    }


_SECTIONS: Final = _sections(of_all=True)
_LISTENER_SECTIONS: Final = _sections(of_all=False)


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options as a file and flags have them, without those files that they name.

    Attributes:
        path: the file; None: there is none.
        flags: the keys of options that were given by flags.
        values: all options by their keys.
        listeners: what listeners with a name have of their own, by the name.
    """

    path: Path | None
    flags: frozenset[str]
    values: Mapping[str, Any]
    listeners: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The options of a listener, checked.

    Attributes:
        options: those of the gateway itself.
        target_config: the file with the properties for TLS and SASL to the target; None: none.
        names: how to name options in errors.
    """

    options: GatewayOptions
    target_config: Path | None
    names: OptionNames


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """All options of a gateway, checked.

    Attributes:
        given: what they were read from.
        listeners: those of the listeners; the first one has no name.
        state: the file of the table of ports; None: none.
        workers: how many processes share the ports.
        metrics: where to serve metrics, as it was given; None: nowhere.
        log_level: one of `option_table.LOG_LEVELS`.
    """

    given: GivenOptions
    listeners: tuple[ListenerSettings, ...]
    state: Path | None
    workers: int
    metrics: str | None
    log_level: str

    @property
    def options(self) -> GatewayOptions:
        """The options of the listener without a name."""
        return self.listeners[0].options

    @property
    def names(self) -> OptionNames:
        """How to name its options in errors."""
        return self.listeners[0].names


def read_settings(path: Path | None, given: Mapping[str, Any]) -> GatewaySettings:
    """Return the options of a file, overridden by those of the command line.

    Args:
        path: the file; None: there is none.
        given: the options by their keys; None, False and () aren't given.

    Raises:
        IllegalArgumentError: the file can't be read, or an option is wrong.
    """
    values = {option.key: option.default for option in OPTIONS}
    listeners: dict[str, dict[str, Any]] = {}
    if path is not None:
        text = read_file(path, "the TOML file of a gateway")
        with named(path):
            document = tomllib.loads(text)
            tables = document.pop("listeners", {})
            values |= _flat(check_document(document, _SECTIONS))
            if not isinstance(tables, dict) or not all(map(_is_table, tables.values())):
                raise IllegalArgumentError("listeners: expected sections [listeners.NAME]")
            for name, table in tables.items():
                with named(f"listeners.{name}"):
                    checked = _flat(check_document(table, _LISTENER_SECTIONS))
                own = table.keys() | {
                    f"{section}.{key}"
                    for section in _LISTENER_SECTIONS
                    for key in table.get(section, ())
                }
                listeners[name] = {key: one for key, one in checked.items() if key in own}
    flags = {key: value for key, value in given.items() if value not in (None, False, ())}
    return check_given(GivenOptions(path, frozenset(flags), values | flags, listeners))


def check_given(given: GivenOptions) -> GatewaySettings:
    """Return the options; files of certificates and users are read.

    Raises:
        IllegalArgumentError: see `read_settings`.
    """
    values, names = given.values, OptionNames(given.path, given.flags)
    listeners = [_listener("", values, names)]
    for name, own in given.listeners.items():
        section = f"listeners.{name}."
        if "listen" not in own:
            raise IllegalArgumentError(f"{given.path}: {section}listen: missing; expected a port")
        # Its peers are other listeners, and what it says of some options replaces others too.
        inherited = {**values, "peers": (), "zookeeper": None}
        if own.keys() & {"allow", "open"}:
            inherited |= {"allow": (), "open": False}
        if "tls_cert" in own:
            inherited["tls_key"] = None
        own_names = OptionNames(given.path, given.flags - own.keys(), section)
        listeners.append(_listener(name, {**inherited, **own}, own_names))
    by_address: dict[Address, ListenerSettings] = {}
    for one in listeners:
        if by_address.setdefault(one.options.listen, one) is not one:
            raise IllegalArgumentError(
                f"{one.names.name_in_error('listen')}: another listener has this port too"
            )
    share = MAX_HELD_BYTES // (len(listeners) * values["workers"])
    return GatewaySettings(
        given,
        tuple(
            replace(one, options=replace(one.options, max_held_bytes=share)) for one in listeners
        ),
        _file("state", values, names),
        values["workers"],
        values["metrics"],
        values["log_level"],
    )


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _flat(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of sections by their whole keys."""
    return {
        f"{section}.{key}".strip("."): one
        for section, keys in tables.items()
        for key, one in keys.items()
    }


def _listener(name: str, values: Mapping[str, Any], names: OptionNames) -> ListenerSettings:
    path = names.path
    if values["to"] is None:
        where = flag("to") if path is None else f"{path}: to"
        raise IllegalArgumentError(
            f"{where}: missing; expected brokers of the target, such as kafka4-1:9092"
        )
    if values["observe"]:
        for key in _NOT_OBSERVING:
            if values[key] != next(one.default for one in OPTIONS if one.key == key):
                raise IllegalArgumentError(
                    f"{names.name_in_error('observe')} and {names.name(key)}: the first passes all "
                    "requests as they are. Leave one out"
                )
    users = _file("users", values, names)
    options = gateway_options(
        values["to"],
        values["listen"],
        advertise=values["advertise"],
        allowed=values["allow"],
        is_open=values["open"],
        is_read_committed=values["isolation"] == "read_committed",
        tls=_tls(values, names),
        users=None if users is None else read_users(users),
        is_observing=values["observe"],
        access=Access(
            _patterns("topics", values, names),
            _patterns("groups", values, names),
            values["read_only"],
        ),
        peers=values["peers"],
        zookeeper=values["zookeeper"],
        names=names,
    )
    return ListenerSettings(
        replace(options, name=name), _file("target_config", values, names), names
    )


def _tls(values: Mapping[str, Any], names: OptionNames) -> ssl.SSLContext | None:
    """Return the TLS of the listeners; None: none."""
    cert, key, client_ca = (
        _file(option, values, names) for option in ("tls_cert", "tls_key", "tls_client_ca")
    )
    if cert is None:
        for option in ("tls_key", "tls_client_ca"):
            if values[option] is not None:
                raise IllegalArgumentError(
                    f"{names.shown(option, values[option])}: expected {names.name('tls_cert')} too"
                )
        return None
    try:
        return server_context(cert, key, client_ca)
    except OSError as error:
        files = ", ".join(str(file) for file in (cert, key, client_ca) if file is not None)
        raise IllegalArgumentError(
            f"{names.name_in_error('tls_cert')}: {files}: {error.strerror or error}; expected "
            "readable PEM files, and a private key without a password"
        ) from None


def _file(key: str, values: Mapping[str, Any], names: OptionNames) -> Path | None:
    """Return a path; one in the file of options is relative to it."""
    path: str | None = values[key]
    if path is None or names.path is None or key in names.flags:
        return None if path is None else Path(path)
    return names.path.parent / path


def _patterns(section: str, values: Mapping[str, Any], names: OptionNames) -> NamePatterns | None:
    """Return the names that are allowed; None: all."""
    include, exclude = values[f"{section}.include"], values[f"{section}.exclude"]
    if not include and not exclude:
        return None
    return NamePatterns(
        compile_patterns(names.name_in_error(f"{section}.include"), include)
        or (re.compile(".*", re.DOTALL),),
        compile_patterns(names.name_in_error(f"{section}.exclude"), exclude),
    )
