"""Apply the option `headers` of the producer to the messages that it sends.

Invariant: messages whose headers are dropped are counted, and the first one of each topic is
logged. A single message or a batch is counted when it is buffered. The messages of `send_many` and
`send_arrow` are counted before that, when all are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from aiokafka08._core.arrow_headers import count_rows_with_headers, embed_rows
from aiokafka08._wording import newer_protocol
from aiokafka08.embedded_headers import Headers, HeadersMode, embed
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError

if TYPE_CHECKING:
    from aiokafka08._core.arrow import RecordBatch

_log: Final = logging.getLogger("aiokafka08.producer")

# Messages that one step of `apply_all` handles
_PER_STEP: Final = 256


class HeaderPolicy:
    """What a producer does with headers."""

    __slots__ = ("_client_id", "_logged_topics", "dropped", "mode")

    def __init__(self, mode: HeadersMode, client_id: str) -> None:
        self.mode = mode  # the option `headers`
        self.dropped = 0  # how many messages were sent without their headers
        self._client_id = client_id
        self._logged_topics: set[str] = set()

    def apply_all(
        self,
        topic: str,
        values: Sequence[bytes | None],
        headers: Iterable[Headers | None] | None,
    ) -> Generator[None, None, Sequence[bytes | None]]:
        """Return, in steps, the values to send, with headers embedded if that is the mode.

        Args:
            topic: the topic of the messages.
            values: the serialized values.
            headers: for each value a list of headers, or None; None if no message has headers.

        Raises:
            UnsupportedVersionError: there are headers, and the mode is "refuse".
            IllegalArgumentError: `headers` and `values` differ in length.
            IllegalArgumentError, TypeError: as `embedded_headers.embed`.
        """
        if headers is None:
            if self.mode != "embedded":
                return values
            listed: list[Headers | None] = [None] * len(values)
        else:
            listed = list(headers)
            if len(listed) != len(values):
                raise IllegalArgumentError(
                    f"{len(listed)} headers for {len(values)} values: expected as many lists of "
                    "headers as values"
                )
        applied: list[bytes | None] = []
        dropped = 0
        for start in range(0, len(listed), _PER_STEP):
            if start:
                yield
            for index in range(start, min(start + _PER_STEP, len(listed))):
                value = values[index]
                if self.mode == "embedded":
                    try:
                        value = embed(value, listed[index])
                    except (IllegalArgumentError, TypeError) as error:
                        error.add_note(f"message {index}")
                        raise
                applied.append(value)
                if listed[index]:
                    if self.mode == "refuse":
                        raise no_headers(f"message {index}")
                    dropped += self.mode == "drop" or value is None
        if dropped:
            self.count_dropped(topic, dropped)
        return applied

    def apply_arrow(self, topic: str, batch: RecordBatch) -> Generator[None, None, RecordBatch]:
        """Handle the column `headers` of a batch, if there is one, in steps; return what to send.

        Raises:
            UnsupportedVersionError: there are headers, and the mode is "refuse".
            IllegalArgumentError: as `embedded_headers.embed`.
            TypeError: the column `headers` has a wrong type.
        """
        if self.mode == "embedded":
            batch, dropped = yield from embed_rows(batch)
        else:
            dropped = count_rows_with_headers(batch)
            if dropped and self.mode == "refuse":
                raise no_headers(f"column 'headers': {dropped} rows")
        if dropped:
            self.count_dropped(topic, dropped)
        return batch

    def count_dropped(self, topic: str, messages: int = 1) -> None:
        """Count messages whose headers are dropped; log the first of a topic."""
        self.dropped += messages
        if topic in self._logged_topics:
            return
        self._logged_topics.add(topic)
        _log.warning(
            "%s: topic %r: headers are dropped (headers=%r)%s; logged once for a topic",
            self._client_id,
            topic,
            self.mode,
            ": a null value can't have any" if self.mode == "embedded" else "",
        )


def no_headers(where: str = "") -> UnsupportedVersionError:
    """Return the error for headers; `where` names the message among several."""
    return UnsupportedVersionError(
        f"{where}: " * bool(where) + f"headers need {newer_protocol()}. "
        "Choose headers='drop' to send messages without them, or headers='embedded' to put them "
        "into the values, as Spring Cloud Stream does: an option of the producer, or the "
        "environment variable AIOKAFKA08_HEADERS"
    )
