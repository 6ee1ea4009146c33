"""`read_settings`: the options of a gateway, from a TOML file and from flags of the command line.

    listen = "10.0.0.5:9092"
    to = "kafka4-1:9092,kafka4-2:9092"
    allow = ["10.0.0.0/24"]
    [topics]
    include = ["orders", "clicks-.*"]

`option_table` has all options. A section `[listeners.NAME]` describes a further listener, such as
one with another principal. A flag overrides the file, but not the options in such a section.

Invariant: an error names the file and the key, or the flag, with the value and what is expected.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiokafka08._core.config_file import Key, check_document, named, read_file
from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway import options
from aiokafka08._tools.gateway.option_table import OPTIONS
from aiokafka08._tools.gateway.options import GatewayOptions, OptionNames, gateway_options
from aiokafka08.errors import IllegalArgumentError


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options as a file and flags have them; files that they name aren't read yet.

    Attributes:
        names: the file, and which options were given by flags.
        values: all options by their keys.
        listeners: the options in the section of each named listener, by its name.
    """

    names: OptionNames
    values: Mapping[str, Any]
    listeners: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """All options of a gateway, checked.

    Attributes:
        given: the options as they were given, which `listeners` is made from.
        listeners: the options of each listener; the first one has no name.
        state: the file of the table of ports; None: none.
        workers: how many processes share the ports.
        metrics: where to serve metrics, as it was given; None: nowhere.
        log_level: what is logged.
    """

    given: GivenOptions
    listeners: tuple[GatewayOptions, ...]
    state: Path | None
    workers: int
    metrics: str | None
    log_level: str

    @property
    def options(self) -> GatewayOptions:
        """The options of the listener without a name."""
        return self.listeners[0]


def read_settings(path: Path | None, given: Mapping[str, Any]) -> GatewaySettings:
    """Return the options of a file, overridden by those of the command line.

    Args:
        path: the file; None: there is none.
        given: the options by their keys; None, False and () stand for options not given.

    Raises:
        IllegalArgumentError: the file can't be read, or an option is wrong.
    """
    values: dict[str, Any] = dict(options.DEFAULTS)
    listeners: dict[str, dict[str, Any]] = {}
    if path is not None:
        text = read_file(path, "the TOML file of a gateway")
        with named(path):
            document = tomllib.loads(text)
            tables = document.pop("listeners", {})
            values |= _checked(document, of_all=True)
            sections = tables.values() if isinstance(tables, dict) else [tables]
            if not all(isinstance(one, dict) for one in sections):
                raise IllegalArgumentError("listeners: expected sections [listeners.NAME]")
            for name, table in tables.items():
                with named(f"listeners.{name}"):
                    listeners[name] = _checked(table, of_all=False)
    flags = {key: value for key, value in given.items() if value not in (None, False, ())}
    return check_given(GivenOptions(OptionNames(path, frozenset(flags)), values | flags, listeners))


def _checked(document: Mapping[str, Any], *, of_all: bool) -> dict[str, Any]:
    """Return the options in a file, or in a listener's section, by their keys.

    `of_all` allows the options that all listeners share, which a section must not have.
    """
    known: dict[str, dict[str, Key]] = {}
    for option in OPTIONS:
        section, _, name = option.key.rpartition(".")
        if of_all or not option.is_of_all:
            known.setdefault(section, {})[name] = Key(option.check)
    return {
        f"{section}.{name}".strip("."): value
        for section, values in check_document(document, known).items()
        for name, value in values.items()
        if value is not None
    }


def check_given(given: GivenOptions) -> GatewaySettings:
    """Return the options; files of certificates and users are read.

    Raises:
        IllegalArgumentError: see `read_settings`.
    """
    values, names = given.values, given.names
    listeners = [gateway_options(**values, names=names)]
    for name, own in given.listeners.items():
        section = f"listeners.{name}."
        if "listen" not in own:
            raise IllegalArgumentError(f"{names.path}: {section}listen: missing; expected a port")
        # A named listener inherits neither `zookeeper` nor `peers`; its peers are other listeners
        # than those of the unnamed one. Some of its own options also replace related ones that it
        # would inherit.
        inherited = {**values, "peers": (), "zookeeper": None}
        if own.keys() & {"allow", "open"}:
            inherited |= {"allow": (), "open": False}
        if "tls_cert" in own:
            inherited["tls_key"] = None
        own_names = OptionNames(names.path, names.flags - own.keys(), section)
        listeners.append(gateway_options(**{**inherited, **own}, names=own_names))
    by_address: dict[Address, GatewayOptions] = {}
    share = options.MAX_HELD_BYTES // (len(listeners) * values["workers"])
    for name, one in zip(("", *given.listeners), listeners, strict=True):
        if one.listen in by_address:
            where = one.names.name_in_error("listen")
            raise IllegalArgumentError(f"{where}: another listener has this port too")
        by_address[one.listen] = replace(one, name=name, max_held_bytes=share)
    checked, state = tuple(by_address.values()), names.file("state", values)
    others = values["workers"], values["metrics"], values["log_level"]
    return GatewaySettings(given, checked, state, *others)
