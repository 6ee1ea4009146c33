"""The output of `--template`: text with tokens for the parts of a record. Pure.

Tokens are those of kcat, with the modifiers of kcl in braces; for escapes see `unescape`.

Invariant: a wrong template is an error before anything is read.
"""

# | token | meaning |
# |---|---|
# | `%s`, `%v` | value; modifiers `base64`, `base64raw` (without padding), `hex`, `unpack[…]` |
# | `%k` | key; the same modifiers |
# | `%S`, `%V` | bytes of the value, -1 for null; modifiers of numbers |
# | `%K` | bytes of the key, -1 for null; modifiers of numbers |
# | `%R` | bytes of the value as a big-endian 32-bit integer, -1 for null |
# | `%o`, `%p` | offset, partition; modifiers of numbers |
# | `%T` | timestamp in milliseconds, -1 without one; modifiers of numbers |
# | `%d` | timestamp in milliseconds, or with `strftime[…]` in UTC; modifiers of numbers |
# | `%t` | topic |
# | `%h` | headers, as `name=value,name=value`; only with embedded headers |
# | `%%`, `%{`, `%}` | the character itself |
#
# Modifiers of numbers: `ascii` or `number`, `hex64`, `hex32`, `hex16`, `hex8`, `hex4`, `big64` …
# `big8`, `little64` … `little8`, `byte`, `bool`.

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from aiokafka08._tools.records.delimiters import unescape
from aiokafka08._tools.records.headers import headers_text, refused_headers
from aiokafka08._tools.records.raw import RawLayout, field_writer
from aiokafka08._tools.records.types import BytesRecord, TextDecoder
from aiokafka08._tools.records.unpack import unpacker
from aiokafka08.errors import IllegalArgumentError

# Writes one part of a record.
Part = Callable[[BytesRecord], bytes]
NumberOf = Callable[[BytesRecord], int]

_TOKEN: Final = re.compile(r"%(?:([%{}])|([a-zA-Z])(?:\{((?:[^\[\]{}]|\[[^\]]*\])*)\})?)")
_WITH_ARGUMENT: Final = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)
_INTEGER: Final = re.compile(r"(big|little)(64|32|16|8)")
_HEX: Final = re.compile(r"hex(64|32|16|8|4)")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_NUMBERS: Final[dict[str, NumberOf]] = {
    "o": lambda record: record.offset,
    "p": lambda record: record.partition,
    "S": lambda record: _size(record.value),
    "V": lambda record: _size(record.value),
    "K": lambda record: _size(record.key),
}
_BYTES: Final = {"s": "value", "v": "value", "k": "key"}
_TOKENS: Final = "%s %v %S %V %R %k %K %T %d %t %p %o %%"
_BYTE_MODIFIERS: Final = "base64, base64raw, hex, unpack[...]"
_NUMBER_MODIFIERS: Final = "ascii, hex64 ... hex4, big64 ... big8, little64 ... little8, byte, bool"


class TemplateEncoder:
    """Write each record as the template says.

    Args:
        option: the option that has the template, for errors.
        template: the text with tokens.
        key, value: turn keys and values into text (default None).
        null_text: written for null keys and values (default b"").
        like_kcat: write `null_text` for empty ones too, and 0 for a missing timestamp
            (default False).
        headers: whether records may have headers; else %h is an error, or with `like_kcat` writes
            nothing (default False).

    Raises:
        IllegalArgumentError: a token or modifier is unknown; the text names it.
    """

    def __init__(
        self,
        option: str,
        template: str,
        *,
        key: TextDecoder | None = None,
        value: TextDecoder | None = None,
        null_text: bytes = b"",
        like_kcat: bool = False,
        headers: bool = False,
    ) -> None:
        self._option = option
        self._template = template
        self._layout = RawLayout(null_text=null_text, empty_is_null=like_kcat)
        self._deserializers = {"key": key, "value": value}
        self._has_headers = headers or like_kcat
        self._no_timestamp = 0 if like_kcat else -1
        self._parts = self._parse()

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """See `RecordEncoder`."""
        parts = self._parts
        return b"".join([part(record) for record in records for part in parts])

    def _parse(self) -> list[Part]:
        parts: list[Part] = []
        template, at = self._template, 0
        while at < len(template):
            percent = template.find("%", at)
            if percent < 0:
                percent = len(template)
            if percent > at:
                parts.append(self._literal(template[at:percent]))
            if percent == len(template):
                break
            match = _TOKEN.match(template, percent)
            if match is None:
                raise self._wrong(f"{template[percent : percent + 2]!r}", f"one of {_TOKENS}")
            character, token, modifier = match.groups()
            if character is not None:
                parts.append(_constant(character.encode()))
            else:
                parts.append(self._token(token, modifier))
            at = match.end()
        return parts

    def _literal(self, text: str) -> Part:
        return _constant(unescape(self._option, text))

    def _token(self, token: str, modifier: str | None) -> Part:
        if token in _BYTES:
            return self._bytes_part(_BYTES[token], modifier)
        if token == "d" and modifier is not None and (named := _WITH_ARGUMENT.fullmatch(modifier)):
            if named[1] == "strftime":
                return _strftime(named[2])
            raise self._wrong_modifier(modifier, "strftime[...]")
        if token in ("T", "d"):
            none = self._no_timestamp
            return self._number_part(
                lambda record: none if record.timestamp is None else record.timestamp, modifier
            )
        if token in _NUMBERS:
            return self._number_part(_NUMBERS[token], modifier)
        if token == "h":
            if not self._has_headers:
                raise refused_headers(f"{self._option}={self._template!r}: %h")
        elif token not in ("t", "R"):
            raise self._wrong(f"'%{token}'", f"one of {_TOKENS}")
        if modifier is not None:
            raise self._wrong_modifier(modifier, f"none after %{token}")
        if token == "h":
            return lambda record: headers_text(record.headers)
        if token == "t":
            return lambda record: record.topic.encode()
        return lambda record: _size(record.value).to_bytes(4, "big", signed=True)

    def _bytes_part(self, name: str, modifier: str | None) -> Part:
        if modifier is None:
            return field_writer(self._layout, name, self._deserializers[name])
        if modifier == "hex":
            return _coded(name, lambda data: data.hex().encode())
        if modifier == "base64":
            return _coded(name, b64encode)
        if modifier == "base64raw":
            return _coded(name, lambda data: b64encode(data).rstrip(b"="))
        named = _WITH_ARGUMENT.fullmatch(modifier)
        if named is not None and named[1] == "unpack":
            unpack = unpacker(self._option, named[2])
            return field_writer(self._layout, name, unpack)
        raise self._wrong_modifier(modifier, f"one of {_BYTE_MODIFIERS}")

    def _number_part(self, number_of: NumberOf, modifier: str | None) -> Part:
        if modifier in (None, "ascii", "number"):
            return lambda record: b"%d" % number_of(record)
        if modifier == "byte":
            return lambda record: bytes([number_of(record) & 0xFF])
        if modifier == "bool":
            return lambda record: b"true" if number_of(record) else b"false"
        if hexadecimal := _HEX.fullmatch(modifier):
            bits = int(hexadecimal[1])
            mask = (1 << bits) - 1
            return lambda record: b"%0*x" % (bits // 4, number_of(record) & mask)
        integer = _INTEGER.fullmatch(modifier)
        if integer is None:
            raise self._wrong_modifier(modifier, f"one of {_NUMBER_MODIFIERS}")
        size = int(integer[2]) // 8
        order = "big" if integer[1] == "big" else "little"
        mask = (1 << 8 * size) - 1
        return lambda record: (number_of(record) & mask).to_bytes(
            size, "big" if order == "big" else "little"
        )

    def _wrong_modifier(self, modifier: str, expected: str) -> IllegalArgumentError:
        return self._wrong(f"'{{{modifier}}}'", expected)

    def _wrong(self, text: str, expected: str) -> IllegalArgumentError:
        return IllegalArgumentError(
            f"{self._option}={self._template!r}: {text} has no meaning; expected {expected}"
        )


def _constant(data: bytes) -> Part:
    return lambda _: data


def _coded(name: str, encode: Callable[[bytes], bytes]) -> Part:
    if name == "key":
        return lambda record: encode(record.key or b"")
    return lambda record: encode(record.value or b"")


def _strftime(form: str) -> Part:
    def write(record: BytesRecord) -> bytes:
        if record.timestamp is None:
            return b"-1"
        try:
            at = datetime.fromtimestamp(record.timestamp / 1000, UTC)
        # A time that the calendar can't show.
        except (ValueError, OverflowError, OSError):
            return b"%d" % record.timestamp
        return at.strftime(form).encode(errors="surrogateescape")

    return write
