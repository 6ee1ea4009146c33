"""Replace the addresses of brokers in a response, in any version.

Invariant: only hosts, ports and the sizes of tagged fields around them change; all other bytes of
the frame are passed on as views of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiokafka08._tools.gateway.headers import response_body_at
from aiokafka08._tools.gateway.layouts import TAGGED_SIZE, Api, Place, encode_varint
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

ROLES: Final = frozenset({"node", "host", "port"})

AddressOf = Callable[[int, str, int], tuple[str, int]]
"""`(node id, host, port) -> (host, port)`: what clients use instead."""


def has_addresses(api: Api, version: int) -> bool:
    """Return whether the response has addresses of brokers."""
    return api.response(version, ROLES).has_roles


MAX_PLACES: Final = 3 * 10_000
"""Replacing more would hold up the event loop; an address has three places."""


def find_addresses(api: Api, version: int, frame: memoryview) -> list[Place]:
    """Return where addresses stand in the frame of a response. It may take long.

    Raises:
        KafkaProtocolError: the frame isn't such a response, or has more than `MAX_PLACES`.
    """
    places = api.response(version, ROLES).find(frame, response_body_at(api, version, frame))
    if len(places) > MAX_PLACES:
        raise KafkaProtocolError(
            f"{api.name}Response version {version}: more than {MAX_PLACES // 3} addresses"
        )
    return places


def replace_addresses(
    api: Api, version: int, frame: memoryview, places: list[Place], address_of: AddressOf
) -> list[Buffer]:
    """Return the frame of a response with the addresses that clients use, as buffers.

    The address of a node below 0, which stands for no node, remains.

    Args:
        api: its API.
        version: its version.
        frame: the frame.
        places: what `find_addresses` has returned for it.
        address_of: called for each address.

    Raises:
        KafkaProtocolError: a host isn't text.
    """
    edits = _Edits(frame, version >= api.flexible)
    node_id, host = -1, Place("host", 0, 0, 0)
    for place in places:
        if place.role == "node":
            node_id = int.from_bytes(frame[place.start : place.end], "big", signed=True)
        elif place.role == "host":
            host = place
        elif place.role == "port":
            edits.replace_address(node_id, host, place, address_of)
        elif place.role == TAGGED_SIZE:
            edits.replace_size(place)
    return edits.applied()


class _Edits:
    """New bytes for parts of a frame."""

    def __init__(self, frame: memoryview, is_flexible: bool) -> None:
        self._frame = frame
        self._is_flexible = is_flexible
        self._edits: list[tuple[int, int, bytes]] = []  # start, end, the bytes instead

    def replace_address(
        self, node_id: int, host: Place, port: Place, address_of: AddressOf
    ) -> None:
        if node_id < 0:
            return
        try:
            name = str(self._frame[host.value_start : host.end], "utf-8")
        except UnicodeDecodeError as error:
            raise KafkaProtocolError(f"node {node_id}: its host isn't UTF-8 ({error})") from None
        number = int.from_bytes(self._frame[port.start : port.end], "big")
        new_name, new_number = address_of(node_id, name, number)
        encoded = new_name.encode()
        length = (
            encode_varint(len(encoded) + 1)
            if self._is_flexible
            else len(encoded).to_bytes(2, "big")
        )
        self._edits.append((host.start, host.end, length + encoded))
        size = port.end - port.start
        self._edits.append((port.start, port.end, new_number.to_bytes(size, "big")))

    def replace_size(self, size: Place) -> None:
        grown = sum(
            len(new) - (end - start)
            for start, end, new in self._edits
            if size.value_start <= start and end <= size.end
        )
        new = encode_varint(size.end - size.value_start + grown)
        self._edits.append((size.start, size.value_start, new))

    def applied(self) -> list[Buffer]:
        buffers: list[Buffer] = []
        pos = 0
        for start, end, new in sorted(self._edits):
            if start > pos:
                buffers.append(self._frame[pos:start])
            buffers.append(new)
            pos = end
        if pos < len(self._frame):
            buffers.append(self._frame[pos:])
        return buffers
