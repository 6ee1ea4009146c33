"""`RecordFilter`: the records that `consume` writes by `--key` and `--grep`, or a page shows. Pure.

Invariant: both compare bytes, of keys and values as they are read (with embedded headers, without
the envelope). Null has no bytes, so nothing matches it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from aiokafka08._core.names import glob_hint
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError


class RecordFilter:
    """Accept records whose key and value match; at least one of the arguments is given.

    Args:
        key: the key as text, or a regular expression if it begins with "^"; None: any.
        grep: a regular expression that is found somewhere in the value; None: any.
        compiler: makes a pattern of a regular expression (default `re.compile`).

    Raises:
        IllegalArgumentError: a regular expression is wrong.
    """

    def __init__(
        self,
        key: str | None,
        grep: str | None,
        compiler: Callable[[bytes], re.Pattern[bytes]] = re.compile,
    ) -> None:
        is_pattern = key is not None and key.startswith("^")
        self._key = None if key is None or is_pattern else _bytes(key)
        self._key_pattern = self._grep = None
        if key is not None and is_pattern:
            self._key_pattern = _compiled("--key", key, compiler)
        if grep is not None:
            self._grep = _compiled("--grep", grep, compiler)

    def accepts(self, record: BytesRecord) -> bool:
        """Return True if key and value match."""
        key, value = record.key, record.value
        if self._key is not None and key != self._key:
            return False
        return _found(self._key_pattern, key) and _found(self._grep, value)

    def select(
        self, records: Sequence[BytesRecord], most: int | None
    ) -> tuple[int, list[BytesRecord]]:
        """Return how many records were checked, and the accepted ones of them.

        Stop after `most` accepted ones, at least 1; None checks all.
        """
        accepted: list[BytesRecord] = []
        for index, record in enumerate(records):
            if self.accepts(record):
                accepted.append(record)
                if len(accepted) == most:
                    return index + 1, accepted
        return len(records), accepted


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _found(pattern: re.Pattern[bytes] | None, data: bytes | None) -> bool:
    return pattern is None or (data is not None and pattern.search(data) is not None)


def _compiled(
    option: str, pattern: str, compiler: Callable[[bytes], re.Pattern[bytes]]
) -> re.Pattern[bytes]:
    try:
        return compiler(_bytes(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise IllegalArgumentError(
            f"{option}={pattern!r}: {error}; expected a regular expression{glob_hint(pattern)}"
        ) from None


def text_filter(contains: str, key: str) -> RecordFilter:
    """Return the filter for values that contain a text and keys that equal one; "" accepts any."""
    whole_key = rf"^{re.escape(key)}\Z" if key else None
    return RecordFilter(whole_key, re.escape(contains) if contains else None)


def linear_pattern(pattern: bytes) -> re.Pattern[bytes]:
    """Return a pattern that takes linear time, in place of `re.compile`.

    Raises:
        re.error: the regular expression is wrong, or not of this kind.
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
