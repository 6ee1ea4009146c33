"""`GatewayOptions`: where the gateway listens, for whom, and to which cluster it leads; checked.

Invariant: a gateway that other machines can reach serves only clients that are allowed: its options
need allowed networks, or TLS and a way to authenticate, or say that it is open.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._core.net.config import Address, NetConfig, parse_bootstrap_servers
from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._tools.gateway.access import ALL, Access
from aiokafka08._tools.gateway.client_security import read_users, server_context
from aiokafka08._tools.gateway.option_table import DEFAULT_LISTEN, OPTIONS, flag
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_REQUEST_BYTES: Final = 100 << 20
"""The default of brokers (socket.request.max.bytes)."""
MAX_RESPONSE_BYTES: Final = 256 << 20
MAX_HELD_BYTES: Final = 1 << 30
MAX_BROKERS: Final = 256

HIGHEST_PORT: Final = 0xFFFF
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?")
_HOST_CHARACTERS: Final = 255

DEFAULTS: Final[Mapping[str, Any]] = {option.key: option.default for option in OPTIONS}

_NOT_OBSERVING: Final = (
    "topics.include", "topics.exclude", "groups.include", "groups.exclude", "read_only",
    "isolation",
)  # fmt: skip
"""Options of translated and limited requests."""


@dataclass(frozen=True, slots=True)
class OptionNames:
    """How errors name options: by their flags, or by file and key.

    Attributes:
        path: the file; None: there is none.
        flags: the keys of options that were given by flags.
        section: the prefix of the keys in the file, such as "listeners.billing."
    """

    path: Path | None = None
    flags: frozenset[str] = frozenset()
    section: str = ""

    def shown(self, key: str, value: object) -> str:
        """Return an option with the value that is wrong."""
        if self.path is None or key in self.flags:
            return f"{flag(key)} {value}"
        return f"{self.path}: {self.section}{key}={shorten(value)}"

    def name_in_error(self, key: str) -> str:
        """Return an option without its value, at the beginning of an error."""
        if self.path is None or key in self.flags:
            return flag(key)
        return f"{self.path}: {self.section}{key}"

    def name(self, key: str) -> str:
        """Return what to change, in the rest of an error."""
        return flag(key) if self.path is None else key

    def file(self, key: str, values: Mapping[str, Any]) -> Path | None:
        """Return the path of an option; None if it isn't given. In a file it is relative to it."""
        path: str | None = values[key]
        if path is None or self.path is None or key in self.flags:
            return None if path is None else Path(path)
        return self.path.parent / path


FLAG_NAMES: Final = OptionNames()


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """See the module.

    Attributes:
        network: addresses of brokers of the target, and how to connect to them.
        listen: the address of the listener for the first broker; the others have the ports after
            it.
        advertise: the host name that clients get for all brokers.
        allowed: the networks whose clients are served.
        is_read_committed: whether clients that fetch in old versions get no records of aborted and
            open transactions.
        is_observing: whether all passes as it is, to a target that takes old requests itself.
        access: which topics, groups and requests clients may use.
        tls: the TLS of the listeners; None: none.
        users: who clients may be by SASL; None: there is no SASL.
        peers: the addresses of all gateways to the same cluster, as clients reach them.
        zookeeper: "host:port,host:port/chroot" of the ZooKeeper that is kept current; None: none.
        max_request_bytes: a larger request ends its connection.
        max_response_bytes: a larger response of the target ends its connection.
        max_held_bytes: the most that all connections together may hold in memory.
        name: the listener's name in the file; "" for the one without a name.
        target_config: the file with the properties for TLS and SASL to the target; None: none.
        names: how errors name the options.
    """

    network: NetConfig
    listen: Address
    advertise: str
    allowed: tuple[Network, ...]
    is_read_committed: bool = False
    is_observing: bool = False
    access: Access = ALL
    tls: ssl.SSLContext | None = None
    users: SaslUsers | None = None
    peers: tuple[Address, ...] = ()
    zookeeper: str | None = None
    max_request_bytes: int = MAX_REQUEST_BYTES
    max_response_bytes: int = MAX_RESPONSE_BYTES
    max_held_bytes: int = MAX_HELD_BYTES
    name: str = ""
    target_config: Path | None = None
    names: OptionNames = FLAG_NAMES

    @property
    def targets(self) -> tuple[Address, ...]:
        """Addresses of brokers of the target."""
        return self.network.bootstrap

    @property
    def own_address(self) -> Address:
        """The address by which other gateways name this one."""
        return self.advertise, self.listen[1]

    def is_allowed(self, host: str) -> bool:
        """Return whether a client at this address is served."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.allowed)


def gateway_options(
    to: str | None,
    listen: str = DEFAULT_LISTEN,
    *,
    names: OptionNames = FLAG_NAMES,
    **others: Any,
) -> GatewayOptions:
    """Return the checked options of a listener; files of certificates and users are read.

    Args:
        to: brokers of the target, as "host:port,host:port"; None is an error.
        listen: "address:port"; the address is one of this machine's, or 0.0.0.0 or [::] for all.
        names: how errors name the options.
        others: the other options by their keys; those that are missing have their defaults.

    Raises:
        IllegalArgumentError: a value can't be used; the text names the option.
    """
    values = {**DEFAULTS, **others}
    if to is None:
        where = flag("to") if names.path is None else f"{names.path}: to"
        raise IllegalArgumentError(
            f"{where}: missing; expected brokers of the target, such as kafka4-1:9092"
        )
    for key in _NOT_OBSERVING if values["observe"] else ():
        if values[key] != DEFAULTS[key]:
            raise IllegalArgumentError(
                f"{names.name_in_error('observe')} and {names.name(key)}: the first passes all "
                "requests as they are. Leave one out"
            )
    shown = names.shown("listen", listen)
    try:
        ((host, port),) = parse_bootstrap_servers(listen)
        address = ipaddress.ip_address(host)
    except ValueError:
        raise IllegalArgumentError(
            f"{shown}: expected ADDRESS:PORT with one IP address, such as 127.0.0.1:9092"
        ) from None
    tls, users = _tls(values, names), names.file("users", values)
    is_authenticated = tls is not None and (
        users is not None or tls.verify_mode is ssl.CERT_REQUIRED
    )
    networks = tuple(_networks(values, names))
    if address.is_loopback:
        networks += (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
    elif values["open"] or (is_authenticated and not networks):
        networks = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
    elif not networks:
        raise IllegalArgumentError(
            f"{shown}: without TLS and a login each client that reaches "
            "this address can use the target. Name the clients' networks by "
            f"{names.name('allow')}, or say {names.name('open')}"
        )
    advertise = str(address) if values["advertise"] is None else values["advertise"]
    if values["advertise"] is not None and not _is_host(advertise):
        raise IllegalArgumentError(
            f"{names.shown('advertise', advertise)}: expected a host name or an IP address, "
            "without a port"
        )
    if values["advertise"] is None and address.is_unspecified:
        raise IllegalArgumentError(
            f"{shown}: clients can't connect to this address. Name the host by which they reach "
            f"the gateway by {names.name('advertise')}"
        )
    peers, zookeeper = values["peers"], values["zookeeper"]
    if zookeeper is not None:  # a wrong chroot is found when it is used
        _servers("zookeeper", zookeeper.partition("/")[0], names)
    return GatewayOptions(
        target_network(_servers("to", to, names)),
        (str(address), port),
        advertise,
        networks,
        values["isolation"] == "read_committed",
        values["observe"],
        Access(
            _patterns("topics", values, names),
            _patterns("groups", values, names),
            values["read_only"],
        ),
        tls,
        None if users is None else read_users(users),
        _servers("peers", ",".join(peers), names) if peers else (),
        zookeeper,
        target_config=names.file("target_config", values),
        names=names,
    )


def _is_host(text: str) -> bool:
    """Whether clients may connect to it."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text)) and len(text) <= _HOST_CHARACTERS


def _servers(key: str, text: str, names: OptionNames) -> tuple[Address, ...]:
    try:
        return parse_bootstrap_servers(text)
    except IllegalArgumentError as error:
        detail = error.text.removeprefix("bootstrap_servers").removeprefix(": ")
        raise IllegalArgumentError(f"{names.shown(key, text)}: {detail}") from None


def _networks(values: Mapping[str, Any], names: OptionNames) -> Iterator[Network]:
    """Yield the networks that `allow` names."""
    if values["open"] and values["allow"]:
        raise IllegalArgumentError(
            f"{names.name_in_error('open')} and {names.name('allow')} {values['allow'][0]}: the "
            "first serves everybody, whatever the second says. Leave one out"
        )
    for text in values["allow"]:
        try:
            yield ipaddress.ip_network(text)
        except ValueError as error:
            raise IllegalArgumentError(
                f"{names.shown('allow', text)}: {error}; expected a network such as 10.0.0.0/24, "
                "or an address"
            ) from None


def _tls(values: Mapping[str, Any], names: OptionNames) -> ssl.SSLContext | None:
    """Return the TLS of the listeners; None: none."""
    cert, key, client_ca = (
        names.file(option, values) for option in ("tls_cert", "tls_key", "tls_client_ca")
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


def _patterns(section: str, values: Mapping[str, Any], names: OptionNames) -> NamePatterns | None:
    """Return the names that are allowed; None: all."""
    include, exclude = (
        compile_patterns(names.name_in_error(f"{section}.{key}"), values[f"{section}.{key}"])
        for key in ("include", "exclude")
    )
    everything = (re.compile(".*", re.DOTALL),)
    return NamePatterns(include or everything, exclude) if include or exclude else None


def listener_port(options: GatewayOptions, index: int) -> int:
    """Return the port of the listener with this index. With peers, the entry has the first port.

    Raises:
        IllegalArgumentError: there is no such port.
    """
    port = options.listen[1] + index + bool(options.peers)
    if port > HIGHEST_PORT:
        raise IllegalArgumentError(
            f"--listen: port {options.listen[1]} leaves none for broker number {index + 1}; "
            "expected a lower one"
        )
    return port
