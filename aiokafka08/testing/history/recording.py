"""`Recording`: the operations of a history, both open and ended.

Invariant: times of a history increase strictly, so the order of two events is never in doubt, even
where the clock stands still.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiokafka08 import environment
from aiokafka08.embedded_headers import extract
from aiokafka08.errors import EmbeddedHeadersError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.history.operations import Fact, Message, Operation, Status, Value

# Longer values are cut in a history, with a digest that keeps them different.
_SHOWN: Final = 40


def value_of(key: Any, value: Any) -> Value:
    """Return the identity of a message: its value as text, or its key if it has no value."""
    content = key if value is None else value
    if isinstance(content, int):
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        data = bytes(content)
        text = data.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    else:
        text = content.replace("\\", "\\\\") if isinstance(content, str) else repr(content)
        data = text.encode("utf-8", "surrogatepass")
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN // 2]}…{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def place(topic: str, partition: int | None) -> str:
    """Return the name of a partition in a history, as "orders/0"."""
    return f"{topic}/{'?' if partition is None else partition}"


@dataclass(slots=True, eq=False)
class Entry:
    """An operation that is being recorded."""

    recording: Recording
    fields: dict[str, Any]
    status: Status | None = field(default=None)

    def update(self, **fields: Any) -> None:
        """Set further fields of the operation."""
        self.fields.update(fields)

    def end(self, status: Status = "ok", **fields: Any) -> None:
        """Record the end of the operation; only the first call counts."""
        if self.status is None:
            self.status = status
            self.fields.update(fields)
            self.recording.add(self, status)


class Recording:
    """See the module; the arguments are those of `Recorder`.

    Attributes:
        embeds_headers: Whether a recorded producer puts headers into values.
        expected_ready: By client, the result that `ready()` must have.
    """

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        identify: Callable[[Any, Any], Value] = value_of,
    ) -> None:
        self.identify = identify
        self.embeds_headers = False
        self.expected_ready: dict[str, bool] = {}
        self._clock = clock
        self._last = -math.inf
        self._operations: list[Operation] = []
        self._open: dict[Entry, None] = {}

    @property
    def operations(self) -> list[Operation]:
        """The recorded operations; those that haven't ended come last, as "open"."""
        left = [Operation(**entry.fields, status="open") for entry in self._open]
        return [*self._operations, *left]

    def note(self, process: str, call: str, **fields: Any) -> None:
        """Record an operation that takes no time, or an observation; `fields` are Operation's."""
        self.begin(process, call).end(**fields)

    # --- for the wrapped clients ------------------------------------------------------------------

    def ready_facts(self, process: str, client: Any) -> dict[str, Fact]:
        """Return the facts of `ready()`: the client's result, and the expected one."""
        facts: dict[str, Fact] = {"ready": client.ready()}
        if process in self.expected_ready:
            facts["expected"] = self.expected_ready[process]
        return facts

    def now(self) -> float:
        """Return the time, later than any time returned before."""
        if self._clock is not None:
            time = self._clock()
        else:
            try:
                time = asyncio.get_running_loop().time()
            except RuntimeError:
                time = environment.monotonic()
        self._last = max(time, math.nextafter(self._last, math.inf))
        return self._last

    def begin(self, process: str, call: str, **fields: Any) -> Entry:
        """Record that a call begins."""
        entry = Entry(self, {"process": process, "call": call, "invoked": self.now(), **fields})
        self._open[entry] = None
        return entry

    def add(self, entry: Entry, status: Status) -> None:
        """Record that a call has ended."""
        del self._open[entry]
        self._operations.append(Operation(**entry.fields, status=status, ended=self.now()))

    def split(
        self, entry: Entry, outcomes: Iterable[tuple[Status, tuple[Message, ...], str]]
    ) -> None:
        """Record the end of a call that sent several messages, which end in different ways."""
        del self._open[entry]
        entry.status = "ok"
        ended = self.now()
        operation = Operation(**{**entry.fields, "sent": ()}, ended=ended)
        for status, sent, error in outcomes:
            self._operations.append(replace(operation, status=status, sent=sent, error=error))

    def message(self, partition: TopicPartition, record: Any, extracts: bool = False) -> Message:
        """Return a record as a message; `extracts`: its consumer extracts embedded headers."""
        value = record.value if extracts else self.without_headers(record.value)
        return Message(place(*partition), self.identify(record.key, value), record.offset)

    def without_headers(self, value: Any) -> Any:
        """Return a value without the headers that a recorded producer has put into it."""
        if self.embeds_headers and isinstance(value, bytes | bytearray | memoryview):
            try:
                return extract(bytes(value))[0]
            except EmbeddedHeadersError:
                return value
        return value

    def check_serializers(self, name: str, serializers: Iterable[object]) -> None:
        """Refuse a client whose values aren't the bytes in the log, unless `identify` is given."""
        if self.identify is value_of and any(serializer is not None for serializer in serializers):
            raise ValueError(
                f"{name}: its values differ from the bytes in the log; give Recorder(identify=…)"
            )
