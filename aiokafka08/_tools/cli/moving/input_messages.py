"""The input of `produce`: stdin, files with many messages, or one file for each message.

Invariant: the end of a file ends a message.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from aiokafka08._tools.cli.moving.pipes import BLOCK_BYTES, read_blocks
from aiokafka08._tools.records.files import NULL_SUFFIX
from aiokafka08._tools.records.types import InputMessages, RecordDecoder, RecordFormatError

STDIN: Final = "-"

# Messages, and the number of bytes that they took in the input.
MessageSource = AsyncIterator[tuple[InputMessages, int]]


async def delimited_messages(
    paths: Sequence[str], stdin: int, decoder: RecordDecoder, block_bytes: int = BLOCK_BYTES
) -> MessageSource:
    """Yield the messages of files, or of stdin.

    Args:
        paths: the files, one after the other; none: stdin.
        stdin: its descriptor.
        decoder: cuts the input into messages.
        block_bytes: the most bytes of one read (default 1048576).

    Raises:
        OSError: a file can't be read.
        RecordFormatError: the input is wrong.
    """
    for path in paths or [STDIN]:
        with _opened(path, stdin) as descriptor:
            async for block in read_blocks(descriptor, block_bytes):
                yield decoder.decode(block), len(block)
        yield decoder.finish(), 0


async def file_messages(paths: Sequence[str], stdin: int, max_bytes: int) -> MessageSource:
    """Yield one message for each file, or for all of stdin.

    Args:
        paths: the files; none: stdin.
        stdin: its descriptor.
        max_bytes: a larger file is an error.

    Raises:
        OSError: a file can't be read.
        RecordFormatError: a file is too large.
    """
    for path in paths or [STDIN]:
        data = bytearray()
        with _opened(path, stdin) as descriptor:
            async for block in read_blocks(descriptor):
                data += block
                if len(data) > max_bytes:
                    raise RecordFormatError(
                        f"{path}: more than {max_bytes} bytes; expected a message of at "
                        "most so many. Raise the limit with -X max.request.size=…"
                    )
        is_null = path.endswith(NULL_SUFFIX)
        yield InputMessages([None if is_null else bytes(data)]), len(data)


def total_bytes(paths: Sequence[str], stdin: int) -> int | None:
    """Return the size of the input; None if it isn't known."""
    total = 0
    for path in paths or [STDIN]:
        status = os.fstat(stdin) if path == STDIN else os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


@contextmanager
def _opened(path: str, stdin: int) -> Iterator[int]:
    if path == STDIN:
        yield stdin
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)
