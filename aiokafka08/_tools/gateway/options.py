"""`GatewayOptions`: where the gateway listens, for whom, and to which cluster it leads; checked.

Invariant: a gateway that other machines can reach serves only allowed clients. Its options have to
name networks, or have TLS and a way to authenticate, or say `open`, which allows all.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.config_file import require_private
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

_EXCLUDED_BY_OBSERVE: Final = (
    "topics.include", "topics.exclude", "groups.include", "groups.exclude", "read_only", "isolation"
)  # fmt: skip
"""Options that `observe` excludes, because they translate or limit requests."""
_TLS_FILES: Final = ("tls_cert", "tls_key", "tls_client_ca")


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

    def wrong(self, key: str, value: object, text: str) -> IllegalArgumentError:
        """Return the error for the value of an option."""
        shown = f" {value}" if self._is_flag(key) else f"={shorten(value)}"
        return IllegalArgumentError(f"{self.name_in_error(key)}{shown}: {text}")

    def conflict(self, key: str, other: str, why: str) -> IllegalArgumentError:
        """Return the error for an option that doesn't go together with another one."""
        text = f"{self.name_in_error(key)} and {other}: the first {why}. Leave one out"
        return IllegalArgumentError(text)

    def name_in_error(self, key: str) -> str:
        """Return the name that an error begins with: the flag, or the file and the key."""
        return flag(key) if self._is_flag(key) else f"{self.path}: {self.section}{key}"

    def name(self, key: str) -> str:
        """Return the option's name for the rest of an error: the key with a file, else the flag."""
        return flag(key) if self.path is None else key

    def file(self, key: str, values: Mapping[str, Any]) -> Path | None:
        """Return the path of an option, or None. In a file it is relative to that file's folder."""
        folder = Path() if self.path is None or key in self.flags else self.path.parent
        name: str | None = values[key]
        return None if name is None else folder / name

    def _is_flag(self, key: str) -> bool:
        return self.path is None or key in self.flags


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
        is_observing: whether every request passes unchanged, to a target that takes old versions
            itself.
        access: which topics, groups and requests clients may use.
        tls: the TLS of the listeners; None: none.
        users: the users of SASL; None: clients needn't authenticate.
        peers: the addresses of all gateways to the same cluster, as clients reach them.
        zookeeper: "host:port,host:port/chroot" of the ZooKeeper in which the gateway keeps brokers
            and topics current; None: none.
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
    def own_address(self) -> Address:
        """The address by which other gateways name this one."""
        return self.advertise, self.listen[1]

    def is_allowed(self, host: str) -> bool:
        """Return whether a client at this address is served."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.allowed)


def gateway_options(
    to: str | None, listen: str = DEFAULT_LISTEN, names: OptionNames = FLAG_NAMES, **others: Any
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
        text = "missing; expected brokers of the target, such as kafka4-1:9092"
        raise IllegalArgumentError(f"{names.name_in_error('to')}: {text}")
    for key in _EXCLUDED_BY_OBSERVE if values["observe"] else ():
        if values[key] != DEFAULTS[key]:
            raise names.conflict("observe", names.name(key), "passes all requests as they are")
    try:
        ((host, port),) = parse_bootstrap_servers(listen)
        address = ipaddress.ip_address(host)
    except ValueError:
        text = "expected ADDRESS:PORT with one IP address, such as 127.0.0.1:9092"
        raise names.wrong("listen", listen, text) from None
    tls, users = _tls(values, names), names.file("users", values)
    needs_certificates = tls is not None and tls.verify_mode is ssl.CERT_REQUIRED
    is_authenticated = needs_certificates or (tls is not None and users is not None)
    networks = tuple(_networks(values, names))
    if address.is_loopback:
        networks += (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
    elif values["open"] or (is_authenticated and not networks):
        networks = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
    elif not networks:
        text = "without TLS and a login each client that reaches this address can use the target. "
        text += f"Name the clients' networks by {names.name('allow')}, or say {names.name('open')}"
        raise names.wrong("listen", listen, text)
    advertise = values["advertise"]
    if advertise is None and address.is_unspecified:
        text = "clients can't connect to this address. Name the host by which they reach the "
        text += f"gateway by {names.name('advertise')}"
        raise names.wrong("listen", listen, text)
    if advertise is not None and not _is_host(advertise):
        text = "expected a host name or an IP address, without a port"
        raise names.wrong("advertise", advertise, text)
    peers, zookeeper = ",".join(values["peers"]), values["zookeeper"]
    if zookeeper is not None:  # a wrong chroot is found when it is used
        _servers("zookeeper", zookeeper.partition("/")[0], names)
    topics, groups = _patterns("topics", values, names), _patterns("groups", values, names)
    return GatewayOptions(
        target_network(_servers("to", to, names)),
        (str(address), port),
        str(address) if advertise is None else advertise,
        networks,
        values["isolation"] == "read_committed",
        values["observe"],
        Access(topics, groups, values["read_only"]),
        tls,
        None if users is None else read_users(users),
        _servers("peers", peers, names) if peers else (),
        zookeeper,
        target_config=names.file("target_config", values),
        names=names,
    )


def _is_host(text: str) -> bool:
    """Return whether a text can be the host that clients connect to."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text)) and len(text) <= _HOST_CHARACTERS


def _servers(key: str, text: str, names: OptionNames) -> tuple[Address, ...]:
    try:
        return parse_bootstrap_servers(text)
    except IllegalArgumentError as error:
        detail = error.text.removeprefix("bootstrap_servers").removeprefix(": ")
        raise names.wrong(key, text, detail) from None


def _networks(values: Mapping[str, Any], names: OptionNames) -> Iterator[Network]:
    """Yield the networks that `allow` names."""
    for network in values["allow"]:
        if values["open"]:
            other = f"{names.name('allow')} {network}"
            raise names.conflict("open", other, "serves everybody, whatever the second says")
        try:
            yield ipaddress.ip_network(network)
        except ValueError as error:
            text = f"{error}; expected a network such as 10.0.0.0/24, or an address"
            raise names.wrong("allow", network, text) from None


def _tls(values: Mapping[str, Any], names: OptionNames) -> ssl.SSLContext | None:
    """Return the TLS of the listeners; None: none."""
    cert, key, client_ca = (names.file(option, values) for option in _TLS_FILES)
    if cert is None:
        for option in _TLS_FILES[1:]:
            if values[option] is not None:
                raise names.wrong(option, values[option], f"expected {names.name('tls_cert')} too")
        return None
    require_private(key or cert, "a private key")
    try:
        return server_context(cert, key, client_ca)
    except OSError as error:
        files = ", ".join(str(file) for file in (cert, key, client_ca) if file is not None)
        text = f"{names.name_in_error('tls_cert')}: {files}: {error.strerror or error}; expected "
        text += "readable PEM files, and a private key without a password"
        raise IllegalArgumentError(text) from None


def _patterns(section: str, values: Mapping[str, Any], names: OptionNames) -> NamePatterns | None:
    """Return the names that are allowed; None: all."""
    include, exclude = (
        compile_patterns(names.name_in_error(f"{section}.{key}"), values[f"{section}.{key}"])
        for key in ("include", "exclude")
    )
    everything = (re.compile(".*", re.DOTALL),)
    return NamePatterns(include or everything, exclude) if include or exclude else None


def listener_port(options: GatewayOptions, index: int) -> int:
    """Return the port of the listener with this index.

    With peers, the first port is that of the entry for clients that come from other gateways.

    Raises:
        IllegalArgumentError: there is no such port.
    """
    port = options.listen[1] + index + bool(options.peers)
    if port > HIGHEST_PORT:
        text = f"port {options.listen[1]} leaves none for broker number {index + 1}"
        raise IllegalArgumentError(f"--listen: {text}; expected a lower one")
    return port
