"""`OPTIONS`: the table of all options of a gateway.

A row has the option's key in the file, its check and default, and its help on the command line.
`config` reads the file by this table, and the command `gateway` makes its flags from it.

Invariant: this module imports little, since `aiokafka08 gateway --help` needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka08._core.config_file import a_boolean, a_text, an_integer, one_of, texts

Check = Callable[[object], Any]
"""See `config_file.Key`."""

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
_CHECKS: Final[Mapping[type, Check]] = {str: a_text, bool: a_boolean, list: texts}


@dataclass(frozen=True, slots=True)
class Option:
    """An option.

    Attributes:
        key: its name in the file, with the section: "topics.include".
        kind: `str`, `bool`, `list` (of texts), a range of integers, or the texts that it may be.
        default: its value if it isn't given.
        metavar: the placeholder for a value in the help; "" for a flag without a value.
        help: the text of the help.
        is_of_all: whether it can't differ between listeners.
    """

    key: str
    kind: type | range | tuple[str, ...]
    default: Any
    metavar: str
    help: str
    is_of_all: bool = False

    @property
    def name(self) -> str:
        """The key as a Python name, for an argument of the command."""
        return self.key.replace(".", "_")

    @property
    def check(self) -> Check:
        """The check of its value in the file."""
        if isinstance(self.kind, range):
            return an_integer(self.kind[0], self.kind[-1])
        return one_of(*self.kind) if isinstance(self.kind, tuple) else _CHECKS[self.kind]


# fmt: off
OPTIONS: Final = (
    Option("to", str, None, "HOST:PORT,...", is_of_all=True,
        help="Brokers of the target, of Kafka 2.1 to 4.x; the gateway finds the others."),
    Option("target_config", str, None, "FILE",
        "Properties for TLS and SASL to the target, as a .conf of kcat, a .properties of Java, or "
        "a .toml of profiles (default: neither)."),
    Option("listen", str, DEFAULT_LISTEN, "ADDRESS:PORT",
        "Where to listen for the first broker; the others have the ports behind it (default: "
        f"{DEFAULT_LISTEN})."),
    Option("advertise", str, None, "HOST",
        "The host that clients get as that of all brokers (default: the address of --listen)."),
    Option("allow", list, (), "NETWORK",
        "Serve clients of this network, such as 10.0.0.0/24; may be repeated."),
    Option("open", bool, False, "", "Serve clients from everywhere; not with --allow."),
    Option("tls_cert", str, None, "FILE",
        "Serve clients by TLS, with this certificate (PEM) and those between it and its "
        "authority."),
    Option("tls_key", str, None, "FILE",
        "The private key of --tls-cert, without a password (default: it is in that file)."),
    Option("tls_client_ca", str, None, "FILE",
        "Serve only clients with a certificate of these authorities (PEM)."),
    Option("users", str, None, "FILE",
        "Serve only clients that authenticate by SASL as a user of this TOML file, which has lines "
        'as NAME = "PASSWORD".'),
    Option("topics.include", list, (), "PATTERN",
        "Let clients use topics whose whole name this regular expression matches, and no others; "
        "may be repeated (default: all)."),
    Option("topics.exclude", list, (), "PATTERN",
        "Let clients use no such topics; may be repeated."),
    Option("groups.include", list, (), "PATTERN",
        "Let clients use such groups, and no others; may be repeated (default: all)."),
    Option("groups.exclude", list, (), "PATTERN",
        "Let clients use no such groups; may be repeated."),
    Option("read_only", bool, False, "",
        "Let clients write nothing but the offsets of their groups."),
    Option("observe", bool, False, "",
        "Pass all requests as they are, and list which ones Kafka 4 would refuse: for a target of "
        "0.8 to 3.9, before its upgrade."),
    Option("peers", list, (), "HOST:PORT,...",
        "All gateways to the same cluster, as clients reach their --listen: clients go on at the "
        "others when one ends. The brokers have the ports behind --listen then. May be repeated."),
    Option("zookeeper", str, None, "HOST:PORT,.../CHROOT",
        "Keep brokers and topics of this ZooKeeper current, for Scala consumers and tools of 0.8 "
        "to 0.10.", is_of_all=True),
    Option("state", str, None, "FILE",
        "Keep there which broker has which port, so that a restart doesn't change it (default: "
        "the ports follow the brokers' ids at each start).", is_of_all=True),
    Option("workers", range(1, 65), 1, "COUNT",
        "How many processes share the ports, for more clients than one core can serve; Linux "
        "(default: 1).", is_of_all=True),
    Option("isolation", ("read_uncommitted", "read_committed"), "read_uncommitted", "",
        "With read_committed old clients get no records of aborted and open transactions "
        "(default: all, as from Kafka up to 3.9)."),
    Option("metrics", str, None, "[HOST]:PORT",
        "Serve /metrics, /clients and /healthz there, on 127.0.0.1 without HOST (default: not at "
        "all).", is_of_all=True),
    Option("log_level", ("debug", "info", "warning", "error"), "info", "",
        "What to log on stderr (default: info).", is_of_all=True),
)
# fmt: on


def flag(key: str) -> str:
    """Return the command-line flag of the option that has this key in a file."""
    section, dot, name = key.partition(".")
    words = key if not dot else section if name == "include" else f"{name}-{section}"
    return f"--{words.replace('_', '-')}"
