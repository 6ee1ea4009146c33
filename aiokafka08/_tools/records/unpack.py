"""kcat's pack strings (`-s`): decode the integers and the text that bytes consist of. Pure.

A pack string is a sequence of: `<` little-endian and `>` big-endian (the default) for the tokens
after it, `b B h H i I q Q` integers of 8, 16, 32 and 64 bits (capital letters: unsigned), `c` one
character, `s` the rest as text, `$` the end, a space for a space.
"""

from __future__ import annotations

import struct
from typing import Final

from aiokafka08._tools.records.types import TextDecoder
from aiokafka08.errors import IllegalArgumentError

_INTEGERS: Final = "bBhHiIqQ"
_TOKENS: Final = f" <>{_INTEGERS}cs$"


def unpacker(option: str, pack: str) -> TextDecoder:
    """Return the deserializer of a pack string. It raises ValueError for bytes that don't fit.

    `option` is for the error.

    Raises:
        IllegalArgumentError: the pack string is empty, or has an unknown token.
    """
    wrong = [token for token in pack if token not in _TOKENS]
    if not pack or wrong:
        problem = f"{wrong[0]!r} has no meaning" if wrong else "empty"
        raise IllegalArgumentError(
            f"{option}={pack!r}: {problem}; expected a pack string of: < > b B h H i I q Q c s $"
        )

    def unpack(data: bytes) -> str:
        shown, at, order = [], 0, ">"
        for token in pack:
            # Unlike kcat 1.7.1, which decodes `<` as big-endian on little-endian machines.
            if token in "<>":
                order = token
            elif token == " ":
                shown.append(" ")
            elif token == "s":
                shown.append(data[at:].decode(errors="surrogateescape"))
                at = len(data)
            elif token == "$":
                if at < len(data):
                    raise ValueError(f"{len(data) - at} bytes after the end of {pack!r}")
            else:
                size = 1 if token == "c" else struct.calcsize(order + token)
                if len(data) - at < size:
                    raise ValueError(
                        f"{len(data) - at} bytes left for {token!r} of {pack!r}; expected {size}"
                    )
                part = data[at : at + size]
                at += size
                if token == "c":
                    shown.append(part.decode(errors="surrogateescape"))
                else:
                    shown.append(str(struct.unpack(order + token, part)[0]))
        return "".join(shown)

    return unpack
