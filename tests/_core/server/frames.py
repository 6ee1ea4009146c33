"""Frames of a test's client, which reads and writes with asyncio's streams."""

from __future__ import annotations

import asyncio


def frame(body: bytes) -> bytes:
    """Return a frame: its size, then its body."""
    return len(body).to_bytes(4, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next frame."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)
