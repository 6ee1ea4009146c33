"""Send a response to a viewer who may be slow, or gone.

`pages` sends all pages by this module. Pages of messages also cost the brokers work, so their
search ends when the viewer leaves.

Invariant: a response that the viewer doesn't read is in memory for `SEND_S` at most, except for one
piece of it in the server's buffer. This needs a server whose `send` waits while its buffer is full,
such as uvicorn.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import HTMLResponse, Response
from starlette.types import Message, Receive, Scope, Send

_log: Final = logging.getLogger("aiokafka08.console")

SEND_S: Final = 30.0
_PIECE_BYTES: Final = 64 * 1024


async def while_connected(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Await `work`, but cancel it when the viewer has closed the connection."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    if not working.cancelled():
        working.result()


class PacedResponse(Response):
    """A response that is left incomplete after `SEND_S`, so that the server closes it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) <= _PIECE_BYTES:
                await send(message)
                return
            for at in range(0, len(body), _PIECE_BYTES):
                piece = body[at : at + _PIECE_BYTES]
                is_last = at + _PIECE_BYTES >= len(body)
                await send({**message, "body": piece, "more_body": not is_last})

        await _is_sent(super().__call__(scope, receive, send_pieces), "a page")


class PacedHtml(PacedResponse, HTMLResponse):
    """A page."""


class PacedJson(PacedResponse):
    """The data of a page; data classes become objects."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the text."""
        return json.dumps(content, default=asdict, ensure_ascii=False).encode(errors="replace")


class EventStream(Response):
    """Server-sent events, until the viewer leaves or doesn't take one within `SEND_S`.

    Args:
        events: the name and the text of each event; a text may have several lines.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[tuple[str, str], None]) -> None:
        # nginx would keep events back until it has a buffer full of them.
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; close their source at the end."""
        await while_connected(self._send_all(send), receive)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            async for name, text in events:
                lines = "".join(f"data: {line}\n" for line in text.splitlines())
                body = f"event: {name}\n{lines}\n".encode(errors="replace")
                message = {"type": "http.response.body", "body": body, "more_body": True}
                if not await _is_sent(send(message), "an event"):
                    return
        await send({"type": "http.response.body", "body": b""})


async def _is_sent(sending: Awaitable[None], what: str) -> bool:
    """Await `sending`; return False if the viewer doesn't read in time."""
    try:
        async with asyncio.timeout(SEND_S):
            await sending
    except TimeoutError:
        _log.warning("a viewer didn't take %s within %g s: closed", what, SEND_S)
        return False
    return True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
