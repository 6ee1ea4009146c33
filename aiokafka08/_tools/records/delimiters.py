"""Delimiters on the command line: their escapes, and the splitting of a stream at them. Pure.

Invariant: where the blocks of a stream end makes no difference to its messages, and splitting takes
time in proportion to the bytes, whatever the length of a message.
"""

from __future__ import annotations

import re
from typing import Final

from aiokafka08._tools.records.types import RecordFormatError
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.protocol.message_set import BinaryColumn

_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-9]{1,3})|(.)|$)", re.DOTALL)
_SIMPLE: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(option: str, text: str) -> bytes:
    """Return the bytes of a delimiter: `\\n`, `\\r`, `\\t`, `\\\\`, `\\xNN` and `\\NNN` (decimal).

    Other characters are themselves, in UTF-8; `option` is for the error.

    Raises:
        IllegalArgumentError: another character follows a backslash.
    """
    data, at = b"", 0
    for match in _ESCAPE.finditer(text):
        data += text[at : match.start()].encode(errors="surrogateescape")
        at = match.end()
        hexadecimal, decimal, simple = match.groups()
        if hexadecimal is not None:
            data += bytes.fromhex(hexadecimal)
        elif decimal is not None and int(decimal) < 256:
            data += bytes([int(decimal)])
        elif simple in _SIMPLE:
            data += _SIMPLE[simple]
        else:
            raise IllegalArgumentError(
                f"{option}={text!r}: {match[0]!r} has no meaning; expected \\n, \\r, \\t, \\\\, "
                "\\xNN (hexadecimal) or \\NNN (decimal, up to 255)"
            )
    return data + text[at:].encode(errors="surrogateescape")


_NO_BLOBS: Final = BinaryColumn(0, 0, None, None, None)


class DelimitedStream:
    """Cut a stream of blocks into messages at a delimiter, which isn't part of them.

    Args:
        delimiter: at least one byte.
        max_bytes: the limit of a message that isn't complete when a block ends; more is an error.
    """

    def __init__(self, delimiter: bytes, max_bytes: int) -> None:
        self._delimiter = delimiter
        self._max_bytes = max_bytes
        self._rest = bytearray()  # the bytes after the last delimiter: the beginning of a message
        self._count = 0

    def feed(self, block: bytes) -> list[bytes]:
        """Return the messages that a block completes.

        Raises:
            RecordFormatError: the message that the previous block began is longer than `max_bytes`.
        """
        self._check_rest()
        delimiter, rest = self._delimiter, self._rest
        if len(delimiter) == 1:
            messages = block.split(delimiter)
            rest += messages[0]
            if len(messages) == 1:
                return []
            messages[0] = bytes(rest)
        elif rest:
            # The delimiter may begin in the last bytes of the rest, so these are searched again.
            searched = max(len(rest) - len(delimiter) + 1, 0)
            rest += block
            at = rest.find(delimiter, searched)
            if at < 0:
                return []
            block = bytes(rest)
            messages = [block[:at], *block[at + len(delimiter) :].split(delimiter)]
        else:
            messages = block.split(delimiter)
        self._rest = bytearray(messages.pop())
        self._count += len(messages)
        return messages

    def feed_column(self, block: bytes, *, skip_empty: bool) -> BinaryColumn:
        """Do what `feed` does, but return a column in place of an object for each message.

        The delimiter must have one byte. `skip_empty` leaves out messages without any byte.
        """
        self._check_rest()
        delimiter, rest = self._delimiter, self._rest
        at = block.rfind(delimiter)
        if at < 0:
            rest += block
            return _NO_BLOBS
        data = b"".join((rest, memoryview(block)[:at]))
        self._rest = bytearray(memoryview(block)[at + 1 :])
        blobs = BinaryColumn.split(data, delimiter, skip_empty)
        self._count += len(blobs)
        return blobs

    def finish(self) -> list[bytes]:
        """Return the last message, if the stream doesn't end with a delimiter. Raises as `feed`."""
        self._check_rest()
        last, self._rest = bytes(self._rest), bytearray()
        return [last] if last else []

    def _check_rest(self) -> None:
        if len(self._rest) > self._max_bytes + len(self._delimiter):
            raise RecordFormatError(
                f"message {self._count + 1} of the input: more than {self._max_bytes} bytes "
                f"without the delimiter {self._delimiter!r}; expected at most {self._max_bytes}. "
                "Raise it with -X message.max.bytes=…, or check the delimiter"
            )
