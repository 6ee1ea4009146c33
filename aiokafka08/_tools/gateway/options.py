"""`GatewayOptions`: where the gateway listens, for whom, and to which cluster it leads; checked.

Invariant: a gateway that other machines can reach serves only clients that are allowed: its options
need allowed networks, or TLS and a way to authenticate, or say that it is open.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokafka08._core.net.config import Address, NetConfig, parse_bootstrap_servers
from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._tools.gateway.access import ALL, Access
from aiokafka08._tools.gateway.option_table import DEFAULT_LISTEN, flag
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


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """See the module.

    Attributes:
        network: addresses of brokers of the target, and how to connect to them.
        listen: the address of the listener for the first broker; the next ones have the ports
            behind it.
        advertise: the host that clients get as that of all brokers.
        allowed: the networks whose clients are served.
        is_read_committed: whether clients that fetch in old versions get no records of aborted and
            open transactions.
        is_observing: whether all passes as it is, to a target that takes old requests itself.
        access: which topics, groups and requests clients may use.
        tls: the TLS of the listeners; None: none.
        users: who clients may be by SASL; None: they don't authenticate so.
        peers: the addresses of all gateways to the same cluster, as clients reach them.
        zookeeper: "host:port,host:port/chroot" of the ZooKeeper that is kept current; None: none.
        max_request_bytes: a larger request ends its connection.
        max_response_bytes: a larger response of the target ends its connection.
        max_held_bytes: what all connections together may hold in memory.
        name: what a file calls the listener; "" for the one without a name.
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


@dataclass(frozen=True, slots=True)
class OptionNames:
    """How errors name options: by their flags, or by file and key.

    Attributes:
        path: the file; None: there is none.
        flags: the keys of options that were given by flags.
        section: what is before the keys in the file, such as "listeners.billing."
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
        """Return an option without its value, at the begin of an error."""
        if self.path is None or key in self.flags:
            return flag(key)
        return f"{self.path}: {self.section}{key}"

    def name(self, key: str) -> str:
        """Return what to change, in the rest of an error."""
        return flag(key) if self.path is None else key


FLAG_NAMES: Final = OptionNames()


def gateway_options(
    targets: str,
    listen: str = DEFAULT_LISTEN,
    *,
    advertise: str | None = None,
    allowed: Sequence[str] = (),
    is_open: bool = False,
    is_read_committed: bool = False,
    is_observing: bool = False,
    access: Access = ALL,
    tls: ssl.SSLContext | None = None,
    users: SaslUsers | None = None,
    peers: Sequence[str] = (),
    zookeeper: str | None = None,
    names: OptionNames = FLAG_NAMES,
) -> GatewayOptions:
    """Return checked options.

    Args:
        targets: brokers of the target, as "host:port,host:port".
        listen: "address:port"; the address is one of this machine's, or 0.0.0.0 or [::] for all.
        advertise: the host that clients get; None: the address of `listen`.
        allowed: networks, such as "10.0.0.0/24", or addresses.
        is_open: serve clients from everywhere.
        is_read_committed: see `GatewayOptions`.
        is_observing: see `GatewayOptions`.
        access: see `GatewayOptions`.
        tls: see `GatewayOptions`.
        users: see `GatewayOptions`.
        peers: other gateways, each as "host:port" or several of them.
        zookeeper: see `GatewayOptions`.
        names: how errors name the options.

    Raises:
        IllegalArgumentError: a value can't be used; the text names the option.
    """
    shown = names.shown("listen", listen)
    try:
        ((host, port),) = parse_bootstrap_servers(listen)
        address = ipaddress.ip_address(host)
    except ValueError:
        raise IllegalArgumentError(
            f"{shown}: expected ADDRESS:PORT with one IP address, such as 127.0.0.1:9092"
        ) from None
    if is_open and allowed:
        raise IllegalArgumentError(
            f"{names.name_in_error('open')} and {names.name('allow')} {allowed[0]}: the first "
            "serves everybody, whatever the second says. Leave one out"
        )
    networks = tuple(_network(text, names) for text in allowed)
    is_authenticated = tls is not None and (
        users is not None or tls.verify_mode is ssl.CERT_REQUIRED
    )
    if address.is_loopback:
        networks += (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
    elif is_open or (is_authenticated and not networks):
        networks = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
    elif not networks:
        raise IllegalArgumentError(
            f"{shown}: without TLS and a login each client that reaches "
            "this address can use the target. Name the clients' networks by "
            f"{names.name('allow')}, or say {names.name('open')}"
        )
    if advertise is not None and not _is_host(advertise):
        raise IllegalArgumentError(
            f"{names.shown('advertise', advertise)}: expected a host name or an IP address, "
            "without a port"
        )
    if advertise is None and address.is_unspecified:
        raise IllegalArgumentError(
            f"{shown}: clients can't connect to this address. Name the host by which they reach "
            f"the gateway by {names.name('advertise')}"
        )
    try:
        network = target_network(targets)
    except IllegalArgumentError as error:
        detail = error.text.removeprefix("bootstrap_servers").removeprefix(": ")
        raise IllegalArgumentError(f"{names.shown('to', targets)}: {detail}") from None
    return GatewayOptions(
        network,
        (str(address), port),
        advertise or str(address),
        networks,
        is_read_committed,
        is_observing,
        access,
        tls,
        users,
        _servers("peers", ",".join(peers), names) if peers else (),
        None if zookeeper is None else _zookeeper(zookeeper, names),
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


def _zookeeper(text: str, names: OptionNames) -> str:
    """Check the servers of a ZooKeeper; a wrong chroot is found when it is used."""
    _servers("zookeeper", text.partition("/")[0], names)
    return text


def _network(text: str, names: OptionNames) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise IllegalArgumentError(
            f"{names.shown('allow', text)}: {error}; expected a network such as 10.0.0.0/24, or an "
            "address"
        ) from None


def listener_port(options: GatewayOptions, index: int) -> int:
    """Return the port of the listener with this index; the entry for peers has the one before.

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
