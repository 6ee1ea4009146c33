"""Send a response to a viewer who may be slow, or gone.

`pages` sends all pages so. Those of messages also cost the brokers: their search ends when the
viewer leaves.

Invariant: what a viewer doesn't take is in memory for `SEND_S` at most, but for one piece. This
needs a server whose `send` waits while its buffer is full, as that of uvicorn does.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
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


class _PacedResponse(Response):
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

        try:
            async with asyncio.timeout(SEND_S):
                await super().__call__(scope, receive, send_pieces)
        except TimeoutError:
            _log.warning("a viewer didn't take a page within %g s: closed", SEND_S)


class PacedHtml(_PacedResponse, HTMLResponse):
    """A page."""


class PacedJson(_PacedResponse):
    """The data of a page; data classes become objects."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the text."""
        return json.dumps(content, default=asdict, ensure_ascii=False).encode(errors="replace")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
