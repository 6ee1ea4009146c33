"""`TargetClient`: a connection of the gateway itself to a broker of the target.

One request at a time, in the versions that both know.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Self, TypeVar

from aiokafka08 import environment
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.raw_stream import RawStream
from aiokafka08._tools.gateway.headers import CORRELATION_BYTES
from aiokafka08._tools.gateway.layouts import Api, apis
from aiokafka08._tools.gateway.messages import Values, message_of
from aiokafka08._tools.gateway.target_connection import CLIENT_ID, open_target
from aiokafka08.errors import KafkaConnectionError, KafkaError, KafkaProtocolError

T = TypeVar("T")

TIMEOUT_S: Final = 15.0
"""How long `ask_first` waits for a broker: to connect, and to respond."""

_TOO_OLD: Final = "of 0.8 or 0.9: a gateway needs 2.1 or later, with observe 0.10 or later"
_MAX_BYTES: Final = 128 << 20
_BY_NAME: Final = 9  # the last version of Metadata in which topics have no ids


class TargetClient:
    """See the module; `async with` closes it.

    Attributes:
        address: the broker's address.
        ranges: the first and last version that the broker takes, by API.
    """

    def __init__(self, address: Address, stream: RawStream) -> None:
        self.address = address
        self.ranges: dict[int, tuple[int, int]] = {}
        self._stream = stream

    @classmethod
    async def open(cls, address: Address, network: NetConfig) -> Self:
        """Connect.

        Raises:
            KafkaError: the broker can't be reached, or refuses the gateway.
        """
        return cls(address, (await open_target(address, network)).stream)

    @classmethod
    async def connect(cls, address: Address, network: NetConfig) -> Self:
        """Connect, and ask for the versions.

        Raises:
            KafkaError: the broker can't be reached, refuses the gateway, or is older than 0.10.
        """
        client = await cls.open(address, network)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            ranges = (await client.call("ApiVersions", 0))["ApiKeys"]
            stack.pop_all()
        client.ranges = {one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in ranges}
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.close()

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
            text = "it has closed the connection without an answer. The port may be one for SASL, "
            raise KafkaConnectionError(f"{text}or the broker {_TOO_OLD}")
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
            raise KafkaProtocolError("it knows no version of Metadata that the gateway knows")
        topics: list[str] | None = None if of_topics and version else []
        rights = {"IncludeTopicAuthorizedOperations": with_rights}
        return await self.call("Metadata", version, Topics=topics, **rights)


async def ask_first(
    addresses: Iterable[Address],
    network: NetConfig,
    failure: str,
    ask: Callable[[TargetClient], Awaitable[T]],
    connect: Callable[[Address, NetConfig], Awaitable[TargetClient]] = TargetClient.connect,
) -> T:
    """Return the answer of the first broker that can be asked.

    Args:
        addresses: the addresses of brokers.
        network: how to connect to them.
        failure: the beginning of the error's text, before the reason of each broker.
        ask: asks a broker; after a `KafkaError` the next broker is asked.
        connect: connects to a broker.

    Raises:
        KafkaConnectionError: no broker can be asked; the text has the reason of each. If all
            reasons are of one subclass, such as `CertificateError`, so is the error.
    """
    problems: dict[Address, Exception] = {}
    for address in addresses:
        try:
            async with asyncio.timeout(TIMEOUT_S), await connect(address, network) as client:
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
    silent = f"no answer in time: it may be {_TOO_OLD}"
    return where + (error.text if isinstance(error, KafkaError) else silent).removeprefix(where)


def brokers_of(metadata: Mapping[str, Any]) -> dict[int, Address]:
    """Return the addresses in a response to Metadata, by the ids of the brokers."""
    return {one["NodeId"]: (one["Host"], one["Port"]) for one in metadata["Brokers"]}


def _api(name: str) -> Api:
    return next(api for api in apis().values() if api.name == name)
