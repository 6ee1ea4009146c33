"""`read_settings`: the options of a gateway, from a TOML file and from flags of the command line.

    listen = "10.0.0.5:9092"
    to = "kafka4-1:9092,kafka4-2:9092"
    allow = ["10.0.0.0/24"]
    [topics]
    include = ["orders", "clicks-.*"]

`option_table` has all options. A flag overrides the file.

Invariant: an error names the file and the key, or the flag, with the value and what is expected.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.config_file import Key, check_sections, named, read_file
from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.client_security import read_users, server_context
from aiokafka08._tools.gateway.option_table import OPTIONS, flag
from aiokafka08._tools.gateway.options import GatewayOptions, OptionNames, gateway_options
from aiokafka08.errors import IllegalArgumentError

_NOT_OBSERVING: Final = (
    "topics.include", "topics.exclude", "groups.include", "groups.exclude", "read_only",
    "isolation",
)  # fmt: skip
"""Options of translated and limited requests."""

_SECTIONS: Final[Mapping[str, Mapping[str, Key]]] = {
    section: {
        option.key.rpartition(".")[2]: Key(option.check, option.default)
        for option in OPTIONS
        if option.key.rpartition(".")[0] == section
    }
    for section in ("", "topics", "groups")
}


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """All options of a gateway, checked.

    Attributes:
        options: those of the gateway itself.
        target_config: the file with the properties for TLS and SASL to the target; None: none.
        state: the file of the table of ports; None: none.
        metrics: where to serve metrics, as it was given; None: nowhere.
        log_level: one of `option_table.LOG_LEVELS`.
        names: how to name options in errors.
    """

    options: GatewayOptions
    target_config: Path | None
    state: Path | None
    metrics: str | None
    log_level: str
    names: OptionNames


def read_settings(path: Path | None, given: Mapping[str, Any]) -> GatewaySettings:
    """Return the options of a file, overridden by those of the command line.

    Args:
        path: the file; None: there is none.
        given: the options by their keys; None, False and () aren't given.

    Raises:
        IllegalArgumentError: the file can't be read, or an option is wrong.
    """
    values = {option.key: option.default for option in OPTIONS}
    if path is not None:
        text = read_file(path, "the TOML file of a gateway")
        with named(path):
            for section, keys in check_sections(text, _SECTIONS).items():
                values |= {f"{section}.{key}".strip("."): one for key, one in keys.items()}
    flags = {key: value for key, value in given.items() if value not in (None, False, ())}
    values |= flags
    names = OptionNames(path, frozenset(flags))
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
    return GatewaySettings(
        options,
        _file("target_config", values, names),
        _file("state", values, names),
        values["metrics"],
        values["log_level"],
        names,
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
