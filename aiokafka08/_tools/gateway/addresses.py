"""Replace brokers' addresses in a response of any version; add brokers to a list of all brokers.

Invariant: nothing changes but hosts, ports, the sizes of tagged fields around them, and the list to
which brokers are added.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from aiokafka08._tools.gateway.layouts import Api
from aiokafka08._tools.gateway.messages import Struct, Values, message_of
from aiokafka08._tools.gateway.peers import Peers
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

LISTS: Final = frozenset({"Metadata", "DescribeCluster"})
"""The APIs whose responses name all brokers."""

_ROLES: Final = frozenset({"node", "host", "port"})

MAX_ADDRESSES: Final = 10_000
"""The most addresses in one response: replacing more would hold up the event loop."""

AddressOf = Callable[[int, str, int], tuple[str, int]]
"""`(node id, host, port) -> (host, port)`: the address that clients use instead."""


@functools.cache
def has_addresses(api: Api, version: int) -> bool:
    """Return whether the response has addresses of brokers."""
    return message_of(api, "response", version).struct.has("host")


def read_addresses(
    api: Api, version: int, frame: memoryview, *, is_quick: bool = False
) -> Values | None:
    """Return the addresses in the frame of a response; None if it has none. It may take long.

    Raises:
        KafkaProtocolError: the frame isn't such a response, or has more than `MAX_ADDRESSES`.
        TakesLongError: with `is_quick`, if the frame has more than a few topics, partitions and
            other items.
    """
    message = message_of(api, "response", version, _ROLES)
    values = message.read(frame, max_items=MAX_ADDRESSES, is_quick=is_quick)
    return None if next(message.struct.find(values, ("port",)), None) is None else values


def node_ids(api: Api, version: int, values: Values) -> set[int]:
    """Return the nodes in what `read_addresses` has returned."""
    found = message_of(api, "response", version, _ROLES).struct.find(values, ("node",))
    return {node_id for _, node_id in found if node_id >= 0}


def replace_addresses(
    api: Api, version: int, frame: Buffer, values: Values, address_of: AddressOf, more: Peers = dict
) -> list[Buffer]:
    """Return the frame of a response with the addresses that clients use, as buffers.

    The address of a node id below 0, which stands for no node, remains.

    Args:
        api: its API.
        version: its version.
        frame: the frame.
        values: what `read_addresses` has returned for it.
        address_of: called for each address.
        more: returns brokers to add to a response of `LISTS`, by their ids. Called after
            `address_of`.

    Raises:
        KafkaProtocolError: a host isn't text.
    """
    message = message_of(api, "response", version, _ROLES)
    _replace(message.struct, values, -1, address_of)
    if api.name in LISTS and (others := more()):
        (brokers,) = (field for field in message.struct.fields if field.name == "Brokers")
        node = brokers.struct.field_of("node") if brokers.struct else None
        values["Brokers"] += [
            {node: node_id, "Host": host, "Port": port} for node_id, (host, port) in others.items()
        ]
    return message.changed(frame, values)


def _replace(struct: Struct, values: Values, node_id: int, address_of: AddressOf) -> None:
    """Replace the addresses in a struct; `node_id` is that of the struct around it."""
    node, host, port = map(struct.field_of, ("node", "host", "port"))
    node_id = values[node] if node else node_id
    if host and port and node_id >= 0:
        try:
            name = values[host].encode().decode()
        except UnicodeEncodeError as error:
            raise KafkaProtocolError(f"node {node_id}: its host isn't UTF-8 ({error})") from None
        values[host], values[port] = address_of(node_id, name, values[port])
    for field in struct.all_fields:
        if field.struct is not None:
            for item in field.items(values):
                _replace(field.struct, item, node_id, address_of)
