"""`read_settings`: the options of a gateway, from a TOML file and from flags of the command line.

    listen = "10.0.0.5:9092"
    to = "kafka4-1:9092,kafka4-2:9092"
    allow = ["10.0.0.0/24"]
    [topics]
    include = ["orders", "clicks-.*"]

`OPTIONS` has each option once: its key in the file, its check and default, and what the command
line says about it. A flag overrides the file.

Invariant: an error names the file and the key, or the flag, with the value and what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.config_file import (
    Key,
    a_boolean,
    a_text,
    check_sections,
    named,
    one_of,
    read_file,
    texts,
)
from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.options import (
    DEFAULT_LISTEN,
    GatewayOptions,
    OptionNames,
    flag,
    gateway_options,
)
from aiokafka08.errors import IllegalArgumentError

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_ISOLATION: Final = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True)
class Option:
    """An option.

    Attributes:
        key: its name in the file, with the section: "topics.include".
        check: see `config_file.Key`.
        default: its value if it isn't given.
        metavar: what the help says for a value; "" for a flag without one.
        help: what it does.
        choices: the values, if there are few.
    """

    key: str
    check: Callable[[object], Any]
    default: Any
    metavar: str
    help: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its variable."""
        return self.key.replace(".", "_")

    @property
    def is_list(self) -> bool:
        """Whether its flag may be repeated."""
        return self.check is texts

    @property
    def is_flag(self) -> bool:
        """Whether its flag has no value."""
        return self.check is a_boolean


OPTIONS: Final = (
    Option(
        "to",
        a_text,
        None,
        "HOST:PORT,...",
        "Brokers of the target, of Kafka 2.1 to 4.x; the gateway finds the others.",
    ),
    Option(
        "listen",
        a_text,
        DEFAULT_LISTEN,
        "ADDRESS:PORT",
        "Where to listen for the first broker; the others have the ports behind it (default: "
        f"{DEFAULT_LISTEN}).",
    ),
    Option(
        "advertise",
        a_text,
        None,
        "HOST",
        "The host that clients get as that of all brokers (default: the address of --listen).",
    ),
    Option(
        "allow",
        texts,
        (),
        "NETWORK",
        "Serve clients of this network, such as 10.0.0.0/24; may be repeated.",
    ),
    Option("open", a_boolean, False, "", "Serve clients from everywhere; not with --allow."),
    Option(
        "topics.include",
        texts,
        (),
        "PATTERN",
        "Let clients use topics whose whole name this regular expression matches, and no others; "
        "may be repeated (default: all).",
    ),
    Option(
        "topics.exclude", texts, (), "PATTERN", "Let clients use no such topics; may be repeated."
    ),
    Option(
        "groups.include",
        texts,
        (),
        "PATTERN",
        "Let clients use such groups, and no others; may be repeated (default: all).",
    ),
    Option(
        "groups.exclude", texts, (), "PATTERN", "Let clients use no such groups; may be repeated."
    ),
    Option(
        "read_only",
        a_boolean,
        False,
        "",
        "Let clients write nothing but the offsets of their groups.",
    ),
    Option(
        "state",
        a_text,
        None,
        "FILE",
        "Keep there which broker has which port, so that a restart doesn't change it (default: "
        "the ports follow the brokers' ids at each start).",
    ),
    Option(
        "isolation",
        one_of(*_ISOLATION),
        _ISOLATION[0],
        "",
        "With read_committed old clients get no records of aborted and open transactions "
        "(default: all, as from Kafka up to 3.9).",
        _ISOLATION,
    ),
    Option(
        "metrics",
        a_text,
        None,
        "[HOST]:PORT",
        "Serve /metrics, /clients and /healthz there, on 127.0.0.1 without HOST (default: not at "
        "all).",
    ),
    Option(
        "log_level",
        one_of(*LOG_LEVELS),
        "info",
        "",
        "What to log on stderr (default: info).",
        LOG_LEVELS,
    ),
)

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
        state: the file of the table of ports; None: none.
        metrics: where to serve metrics, as it was given; None: nowhere.
        log_level: one of `LOG_LEVELS`.
        names: how to name options in errors.
    """

    options: GatewayOptions
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
    options = gateway_options(
        values["to"],
        values["listen"],
        advertise=values["advertise"],
        allowed=values["allow"],
        is_open=values["open"],
        is_read_committed=values["isolation"] == "read_committed",
        access=Access(
            _patterns("topics", values, names),
            _patterns("groups", values, names),
            values["read_only"],
        ),
        names=names,
    )
    state = values["state"]
    if state is not None:
        is_in_file = path is not None and "state" not in flags
        state = (path.parent if path is not None and is_in_file else Path()) / state
    return GatewaySettings(options, state, values["metrics"], values["log_level"], names)


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
