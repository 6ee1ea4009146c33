"""A gateway in a simulation, with a hostile client, or with a hostile target behind it.

Each example has a gateway of its own. Afterwards a good client must still be served by it, over a
target that is good to this client. Time is virtual, as in `server`.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from contextlib import ExitStack

from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.protocol.api import ApiKey, Request, Topic, encode_request
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.testing.simulation import World, simulate
from tests.protocol.batch_oracle import BATCHES
from tests.protocol.hostile import Endured
from tests.testing.attacked_gateway import HOST, answer
from tests.tools.fuzz import worlds
from tests.tools.fuzz.server import callbacks_measured, errors_raised, received
from tests.tools.fuzz.targets import Steps

EXAMPLES_OF_A_WORLD = 200
_TARGET_PORT, _PORT = 19_092, 29_092
_ANSWER_S = 0.05
_PATIENCE_S = 0.1
_HOSTILE = b"hostile"
_NAME_BROKERS = (ApiKey.METADATA, ApiKey.GROUP_COORDINATOR)
"""Responses to these may say that the broker is elsewhere now, where it isn't."""

_PARTS = [Topic("t", [FetchPartition(0, 0, 1 << 20), FetchPartition(1, 5, 100)])]
_OLD: list[tuple[Request, int]] = [
    (ProduceRequest(1, 1000, [Topic("t", [ProducePartition(0, encode_entry(0, None, b"v"))])]), 0),
    (FetchRequest(-1, 100, 1, _PARTS), 0),
    (FetchRequest(-1, 100, 1, _PARTS), 2),
    (FetchRequest(-1, 100, 1, _PARTS, max_bytes=1000), 3),
    (ListOffsetsRequest(-1, [Topic("t", [ListOffsetsPartition(0, -1)])]), 0),
    (OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])]), 0),
    (OffsetFetchRequest("g", [Topic("t", [0, 1])]), 0),
    (MetadataRequest([]), 1),
    (GroupCoordinatorRequest("g"), 0),
    (ApiVersionsRequest(), 0),
]
"""What a client sends while the target is hostile."""


def _response(body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), 1) + body


def _fetched(records: bytes) -> bytes:
    part = struct.pack(">ihqqqii", 0, 0, 100, 100, 0, 0, len(records)) + records
    return struct.pack(">ihii1si", 0, 0, 0, 1, b"t", 1).replace(b"t", b"\0\1t") + part


def responses() -> list[bytes]:
    """Return examples for a hostile target: the number of a request, and right responses."""
    one_topic = struct.pack(">ih1si", 1, 1, b"t", 1)
    bodies: dict[int, list[bytes]] = {
        0: [one_topic + struct.pack(">ihqqi", 0, code, 5, -1, 0) for code in (0, 10)],
        4: [one_topic + struct.pack(">ihqq", 0, 0, -1, 5)],
        5: [one_topic + struct.pack(">ih", 0, code) for code in (0, 16)],
        6: [one_topic + struct.pack(">iqhh", 0, 5, 0, 0)],
        7: [struct.pack(">iih4sihi", 1, 0, 4, b"host", 9092, -1, 0) + bytes(4)],
        8: [struct.pack(">hih4si", 0, 0, 4, b"host", 9092)],
        9: [struct.pack(">hi", 0, 3) + struct.pack(">9h", 0, 3, 11, 1, 4, 16, 18, 0, 4)],
    }
    sets = [batch for batch in BATCHES if len(batch) < 5000]
    bodies |= {number: [_fetched(one) for one in sets] for number in (1, 2, 3)}
    return [bytes([number]) + _response(body) for number, some in bodies.items() for body in some]


class _Target(asyncio.Protocol):
    """A connection to the target: it answers the hostile client's requests by an example."""

    def __init__(self, example: bytes | None) -> None:
        self._example = example
        self._data = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            stop = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < stop:
                break
            frame, self._data = self._data[4:stop], self._data[stop:]
            if self._example is not None and frame[10:17] == _HOSTILE:
                self._transport.write(self._example)
                continue
            body = answer(frame, [_TARGET_PORT])
            if body is not None:
                self._transport.write(struct.pack(">i", 4 + len(body)) + frame[4:8] + body)


async def _exchange(sent: bytes, example: bytes | None) -> int:
    """Let a client send bytes, over a target that answers it with others; then a good client.

    Returns:
        How many bytes the first client has received.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Target(example), HOST, _TARGET_PORT)
    options = gateway_options(f"{HOST}:{_TARGET_PORT}", f"{HOST}:{_PORT}")
    gateway = Gateway(options, PortTable())
    try:
        await gateway.start()
        size = await _received(sent)
        good = b"".join(encode_request(ListOffsetsRequest(-1, []), 0, 1, "good"))
        if example is None or sent[5] not in _NAME_BROKERS:
            assert await _received(good) == 12, "the gateway serves a good client no more"
        return size
    finally:
        await gateway.stop(0.01)
        server.close()
        await asyncio.sleep(_ANSWER_S)  # until the target's connections have ended, too


async def _received(data: bytes) -> int:
    return await received(HOST, _PORT, data, _ANSWER_S, _PATIENCE_S)


class _Worlds:
    """The world that runs examples now."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._stack: ExitStack | None = None
        self._world: World
        self._served = 0

    def run(self, sent: bytes, example: bytes | None) -> int:
        """Run an example."""
        if self._stack is None:
            worlds.begin(self.end)
            self._stack = ExitStack()
            self._world = self._stack.enter_context(simulate(next(self._numbers), brokers=1))
            self._served = 0
        self._served += 1
        try:
            return self._world.run(_exchange, sent, example)
        finally:
            if self._served >= EXAMPLES_OF_A_WORLD:
                worlds.end()

    def end(self) -> None:
        """End the world."""
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()


_worlds = _Worlds()


def _run(sent: bytes, example: bytes | None, seen: Endured, steps: Steps) -> None:
    with errors_raised("aiokafka08.gateway"), callbacks_measured(steps):
        size = _worlds.run(sent, example)
    seen.values += bool(size)
    seen.errors += not size


def serve_client(data: bytes, seen: Endured, steps: Steps) -> None:
    """Serve a client that sends these bytes."""
    _run(data, None, seen, steps)


def pass_responses(data: bytes, seen: Endured, steps: Steps) -> None:
    """Serve a client whose requests the target answers with these bytes, but for the first one."""
    request, version = _OLD[data[0] % len(_OLD)] if data else _OLD[0]
    sent = b"".join(encode_request(request, version, 1, _HOSTILE.decode()))
    _run(sent, bytes(data[1:]), seen, steps)
