"""`RecordFilter`: the records that `consume` writes, or a page of the console shows. Pure.

Invariants: keys, and values for `grep`, are compared as bytes, as they are read. Nothing matches a
null key or value. Fields are searched in the value without its envelope of embedded headers.
Headers are searched in the envelope and in `record.headers`, where a reader may have put them.
Fields and headers are compared as text, and numbers with the digits that were sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiokafka08._core.names import glob_hint
from aiokafka08._tools.records.field_path import find, parse_path
from aiokafka08._tools.records.headers import opened
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError

Compiler = Callable[[bytes], re.Pattern[bytes]]
Matches = Callable[[bytes], object]

_CONDITION: Final = re.compile(r'((?:[^=\["]|\["[^"]*"\]|\[)+)(?:=(.*))?', re.DOTALL)
"""`PATH=VALUE`; a quoted name in the path may have "="."""


class RecordFilter:
    """Accept records that meet all conditions.

    A text that begins with "^" is a regular expression to search in a key, field or header. Any
    other text has to be equal to the key, field or header.

    Args:
        key: the key; None: any.
        grep: a regular expression that is found somewhere in the value; None: any.
        fields: each a field of values that are JSON, and its text, such as "order.items[0].id=17";
            without "=" the field only has to exist.
        headers: each an embedded header and its text, or only its name.
        compiler: makes a pattern of a regular expression; None: texts are compared as they are
            (default `re.compile`).
        json_bytes: the size of the largest value to parse; None: any size (default None).

    Attributes:
        longer: how many values were longer than `json_bytes`, so that no field was found.

    Raises:
        IllegalArgumentError: a regular expression or a path is wrong.
    """

    def __init__(
        self,
        key: str | None = None,
        grep: str | None = None,
        fields: Sequence[str] = (),
        headers: Sequence[str] = (),
        *,
        compiler: Compiler | None = re.compile,
        json_bytes: int | None = None,
    ) -> None:
        self.longer = 0
        self._json_bytes = json_bytes
        self._key = None if key is None else _test("--key", key, compiler)
        self._grep = None if grep is None else _grep(grep, compiler)
        self._fields = [_field(text, compiler) for text in fields]
        self._headers = [_header(text, compiler) for text in headers]

    def accepts(self, record: BytesRecord) -> bool:
        """Return True if all conditions are met."""
        key, value = record.key, record.value
        if self._key is not None and (key is None or not self._key(key)):
            return False
        if self._grep is not None and (value is None or not self._grep(value)):
            return False
        if not self._fields and not self._headers:
            return True
        value, headers = opened(value)
        for name, matches in self._headers:
            found = [text or b"" for has, text in (*record.headers, *headers) if has == name]
            if not any(matches is None or matches(text) for text in found):
                return False
        return not self._fields or self._has_fields(value)

    def select(
        self, records: Sequence[BytesRecord], most: int | None
    ) -> tuple[int, list[BytesRecord]]:
        """Return how many records were checked, and the accepted ones of them.

        Stop after `most` (at least 1) accepted ones; None checks all.
        """
        accepted: list[BytesRecord] = []
        for index, record in enumerate(records):
            if self.accepts(record):
                accepted.append(record)
                if len(accepted) == most:
                    return index + 1, accepted
        return len(records), accepted

    def _has_fields(self, value: bytes | None) -> bool:
        if value is None:
            return False
        if self._json_bytes is not None and len(value) > self._json_bytes:
            self.longer += 1
            return False
        try:
            data = json.loads(value.decode(), parse_int=str, parse_float=str, parse_constant=str)
            return all(
                any(matches is None or _is_text(one, matches) for one in find(data, path))
                for path, matches in self._fields
            )
        except (ValueError, RecursionError):
            return False


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _is_text(value: Any, matches: Matches) -> bool:
    """Return whether a text, number, true, false or null matches; objects and arrays don't."""
    if isinstance(value, dict | list):
        return False
    text = value if isinstance(value, str) else json.dumps(value)
    return bool(matches(text.encode(errors="surrogatepass")))


def _test(option: str, text: str, compiler: Compiler | None) -> Matches:
    """Return the function that compares a whole text, or searches a regular expression."""
    if compiler is not None and text.startswith("^"):
        return _compiled(option, text, compiler)
    return _bytes(text).__eq__


def _grep(text: str, compiler: Compiler | None) -> Matches:
    """Return the function that finds a text or a regular expression somewhere in a value."""
    if compiler is None:
        return re.compile(re.escape(_bytes(text))).search
    return _compiled("--grep", text, compiler)


def _field(text: str, compiler: Compiler | None) -> tuple[Sequence[Any], Matches | None]:
    found = _CONDITION.fullmatch(text)
    path = None if found is None else parse_path(found[1])
    if found is None or path is None:
        raise IllegalArgumentError(
            f"--field={text!r}: expected PATH=VALUE, such as order.items[0].id=17, or PATH"
        )
    return path, None if found[2] is None else _test("--field", found[2], compiler)


def _header(text: str, compiler: Compiler | None) -> tuple[str, Matches | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise IllegalArgumentError(f"--header={text!r}: expected NAME=VALUE, or NAME")
    return name, _test("--header", value, compiler) if equals else None


def _compiled(option: str, pattern: str, compiler: Compiler) -> Matches:
    try:
        return compiler(_bytes(pattern)).search
    except (re.error, OverflowError, RecursionError) as error:
        raise IllegalArgumentError(
            f"{option}={pattern!r}: {error}; expected a regular expression{glob_hint(pattern)}"
        ) from None


def linear_pattern(pattern: bytes) -> re.Pattern[bytes]:
    """Return a pattern that takes linear time, in place of `re.compile`.

    Raises:
        re.error: the regular expression is wrong, or can't be matched in linear time.
        KafkaConfigurationError: google-re2 isn't installed.
    """
    # The patterns of `re` may take for ever, and hold the interpreter's lock meanwhile.
    try:
        import re2
    except ModuleNotFoundError:
        raise KafkaConfigurationError(
            "google-re2 isn't installed, which regular expressions need here. Install it with: "
            "pip install 'aiokafka08[console]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        compiled: re.Pattern[bytes] = re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0] if error.args else "not supported"
        raise re.error(text.decode(errors="replace") if isinstance(text, bytes) else text) from None
    return compiled
