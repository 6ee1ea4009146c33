"""`TargetClient`: a connection of the gateway itself to a broker of the target, for `check`.

One request at a time, in the versions that both know.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, Self

from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.layouts import Api, apis
from aiokafka08._tools.gateway.messages import Values, read_response, write_message
from aiokafka08.errors import KafkaProtocolError

CLIENT_ID: Final = "aiokafka08-gateway"

_MAX_BYTES: Final = 128 << 20
_API_VERSIONS: Final = 18


class TargetClient:
    """See the module; `async with` closes it.

    Attributes:
        ranges: the first and last version that the broker takes, by API.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ranges: dict[int, tuple[int, int]] = {}
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: Address) -> Self:
        """Connect, and ask for the versions.

        Raises:
            OSError: the broker can't be reached.
            EOFError: it has closed the connection.
            KafkaProtocolError: it is no broker of 0.10 or later, or expects TLS.
        """
        client = cls(*await asyncio.open_connection(*address))
        try:
            found = await client._call(apis()[_API_VERSIONS], 0, {})
        except BaseException:
            await client.close()
            raise
        client.ranges = {
            one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in found["ApiKeys"]
        }
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def version_of(self, name: str, most: int = 0x7FFF) -> int | None:
        """Return the highest version of an API that both know; None: there is none.

        Args:
            name: the API.
            most: no higher one.
        """
        api = _api(name)
        first, last = self.ranges.get(api.key, (0, -1))
        version = min(last, api.versions[-1], most)
        return version if version >= max(first, api.versions[0]) else None

    async def call(self, name: str, version: int, **values: Any) -> Values:
        """Send a request, and return the response.

        Raises:
            OSError: the connection is lost.
            EOFError: the broker has closed it.
            KafkaProtocolError: the response can't be read.
        """
        return await self._call(_api(name), version, values)

    async def _call(self, api: Api, version: int, values: Values) -> Values:
        client_id = CLIENT_ID.encode()
        header = b"".join(
            (
                api.key.to_bytes(2, "big"),
                version.to_bytes(2, "big"),
                bytes(4),
                len(client_id).to_bytes(2, "big"),
                client_id,
                b"\0" if version >= api.flexible else b"",
            )
        )
        frame = header + b"".join(write_message(api, "request", version, values))
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
        if not 0 <= size <= _MAX_BYTES:
            raise KafkaProtocolError(
                f"a response of {size} bytes; expected 0 to {_MAX_BYTES}. It isn't a Kafka broker "
                "without TLS"
            )
        answer = memoryview(await self._reader.readexactly(size))
        return read_response(api, version, answer)


def _api(name: str) -> Api:
    return next(api for api in apis().values() if api.name == name)
