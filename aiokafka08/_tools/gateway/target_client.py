"""`TargetClient`: a connection of the gateway itself to a broker of the target.

It sends one request at a time, in versions that both the gateway and the broker know.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Self, TypeVar

from aiokafka08 import environment
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.probe import find_line
from aiokafka08._core.net.raw_stream import RawStream
from aiokafka08._core.net.versions import LINE_APIS, BrokerLine
from aiokafka08._tools.gateway.headers import CORRELATION_BYTES
from aiokafka08._tools.gateway.layouts import Api, apis
from aiokafka08._tools.gateway.messages import Values, message_of
from aiokafka08._tools.gateway.target_connection import CLIENT_ID, CONNECT_TIMEOUT_S, open_target
from aiokafka08.errors import KafkaConnectionError, KafkaError, KafkaProtocolError

T = TypeVar("T")

TIMEOUT_S: Final = 15.0
"""How long `ask_first` waits for a broker: to connect, and to respond."""

_MAX_BYTES: Final = 128 << 20
_BY_NAME: Final = 9  # the last version of Metadata in which topics have no ids


class TargetClient:
    """See the module.

    Attributes:
        address: the broker's address.
        ranges: the first and last version that the broker takes, by API.
    """

    def __init__(self, address: Address, stream: RawStream) -> None:
        self.address = address
        self.ranges: dict[int, tuple[int, int]] = {}
        self._stream = stream

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: Address, network: NetConfig) -> AsyncIterator[Self]:
        """Connect, and find the versions; ApiVersions isn't sent to brokers before 0.10.

        Raises:
            KafkaError: the broker can't be reached, or refuses the gateway.
        """
        stream = (await open_target(address, network)).stream
        try:
            client = cls(address, stream)
            line = await find_line(stream, address, network, CONNECT_TIMEOUT_S)
            client.ranges = {key: (one[0], one[-1]) for key, one in LINE_APIS[line].items()}
            if line is BrokerLine.V0_10:
                found = (await client.call("ApiVersions", 0))["ApiKeys"]
                ranges = ((one["ApiKey"], one["MinVersion"], one["MaxVersion"]) for one in found)
                client.ranges = {key: (first, last) for key, first, last in ranges}
            yield client
        finally:
            await stream.close()

    def version_of(self, name: str, most: int = 0x7FFF) -> int | None:
        """Return the highest version of an API that both know; None: there is none.

        Args:
            name: the API.
            most: the highest version allowed.
        """
        api = _api(name)
        first, last = self.ranges.get(api.key, (0, -1))
        version = min(last, api.versions[-1], most)
        return version if version >= max(first, api.versions[0]) else None

    async def call(self, name: str, version: int, **values: Any) -> Values:
        """Send a request, and return the response.

        Raises:
            KafkaError: the connection is lost, or the response can't be read.
        """
        api, client_id = _api(name), CLIENT_ID.encode()
        header = struct.pack(">hhih", api.key, version, 0, len(client_id)) + client_id
        header += b"\0" if version >= api.flexible else b""
        frame = b"".join([header, *message_of(api, "request", version).write(values)])
        self._stream.write(len(frame).to_bytes(4, "big") + frame)
        answer = await self._stream.read_frame(CORRELATION_BYTES, _MAX_BYTES)
        if answer is None:
            raise KafkaConnectionError("it has closed the connection without an answer")
        response = message_of(api, "response", version)
        # In a thread: reading the list of many topics would hold the event loop.
        return await environment.run_in_thread(partial(response.read, answer))

    async def metadata(
        self, *, of_topics: bool = True, with_rights: bool = False, least: int = 0
    ) -> Values:
        """Send a Metadata request that creates no topics; return the response.

        Args:
            of_topics: whether it has all topics (default), or none of them.
            with_rights: whether it says what the gateway may do with each topic (default: no).
            least: the lowest version to use (default 0; a response of version 0 has all topics).

        Raises:
            KafkaError: see `call`; or there is no such version.
        """
        version = self.version_of("Metadata", _BY_NAME)
        if version is None or version < least:
            raise KafkaProtocolError(f"it takes no version of Metadata from {least} on")
        topics: list[str] | None = None if of_topics and version else []
        rights = {"IncludeTopicAuthorizedOperations": with_rights}
        return await self.call("Metadata", version, Topics=topics, **rights)


async def ask_first(
    addresses: Iterable[Address],
    network: NetConfig,
    failure: str,
    ask: Callable[[TargetClient], Awaitable[T]],
) -> T:
    """Return the answer of the first broker that can be asked.

    Args:
        addresses: the addresses of brokers.
        network: how to connect to them.
        failure: the beginning of the error's text, before the reason of each broker.
        ask: asks a broker; after a `KafkaError` or a timeout the next broker is asked.

    Raises:
        KafkaConnectionError: no broker can be asked; the text has the reason of each. If all
            reasons are of one subclass, such as `CertificateError`, so is the error.
    """
    problems: dict[Address, Exception] = {}
    for address in addresses:
        try:
            connected = TargetClient.connected(address, network)
            async with asyncio.timeout(TIMEOUT_S), connected as client:
                return await ask(client)
        except (KafkaError, TimeoutError) as error:
            problems[address] = error
    classes = {type(error) for error in problems.values()}
    found = classes.pop() if len(classes) == 1 else KafkaConnectionError
    error_class = found if issubclass(found, KafkaConnectionError) else KafkaConnectionError
    reasons = "; ".join(_failure_text(address, error) for address, error in problems.items())
    raise error_class(f"{failure}: {reasons}")


def _failure_text(address: Address, error: Exception) -> str:
    """Return why a broker can't be asked, with its address."""
    where = f"{address_text(address)}: "
    text = error.text if isinstance(error, KafkaError) else "no answer in time"
    return where + text.removeprefix(where)


def brokers_of(metadata: Mapping[str, Any]) -> dict[int, Address]:
    """Return the addresses in a response to Metadata, by the ids of the brokers."""
    return {one["NodeId"]: (one["Host"], one["Port"]) for one in metadata["Brokers"]}


def _api(name: str) -> Api:
    return next(api for api in apis().values() if api.name == name)
