"""Compare what two targets answered, after taking out what must differ.

Addresses, names, member ids and present times become symbols, what has no order is sorted, and what
other cases have left in the cluster is left out. Then the answers to each request are compared, in
the order of the requests.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.tools.differential.cases import Bytes
from tests.tools.differential.run import Record, Sent
from tests.tools.differential.schemas import APIS, Type
from tests.tools.differential.sets import read_set
from tests.tools.differential.wire import Counted, Malformed, Request, decode_any, map_fields

_NEAR_NOW_MS = 24 * 3600 * 1000
_MEMBER = re.compile(r".*-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)
_KEYS = ("topic", "partition", "node", "group", "member", "api")
"""Fields that identify an item of an array whose order means nothing."""
NO_ANSWER = "no answer"


@dataclass(frozen=True)
class View:
    """What the answers of one target mean."""

    names: Mapping[str, str]
    """Symbol → name, member ids included."""
    ports: Mapping[int, int]
    """Port → broker."""


@dataclass(frozen=True)
class Answer:
    """The answer to one request: decoded, `NO_ANSWER`, or the bytes of an unknown layout."""

    value: Any
    end: str = ""
    """What became of the connection, if this was its last request."""

    def __str__(self) -> str:
        return f"{self.value}, then {self.end}" if self.end else f"{self.value}"


@dataclass(frozen=True)
class Difference:
    """The first request whose answers differ."""

    request: Request | Bytes
    step: int
    real: Answer
    embedded: Answer
    before: tuple[Request | Bytes, ...] = ()
    """The earlier requests of its connection."""

    def __str__(self) -> str:
        return f"{self.request!r}\nreal:     {self.real}\nembedded: {self.embedded}"

    @property
    def shape(self) -> tuple[Any, ...]:
        """What stays the same while a case is shrunk: the API, and the fields that differ."""
        api = self.request.api if isinstance(self.request, Request) else "bytes"
        ends = (self.real.end, self.embedded.end) if self.real.end != self.embedded.end else ()
        return (api, _shape(self.real.value, self.embedded.value), ends)


def first_difference(
    real: list[Record],
    embedded: list[Record],
    views: tuple[View, View],
    *,
    passes: Callable[[Difference], bool],
    answers_after_fin: bool,
) -> Difference | None:
    """Return the difference that comes first in the case; None if there is none.

    Args:
        passes: says which differences don't count.
        answers_after_fin: False if a broker drops the requests that it hasn't read when a FIN
            comes behind them: then each answer on a half-closed connection may be missing.
    """
    ours, theirs = _by_number(real), _by_number(embedded)
    for number in sorted(ours):
        (record, sent), (other_record, other) = ours[number], theirs[number]
        if record.half_closed and not answers_after_fin and None in (sent.response, other.response):
            continue
        ends = _end(record, sent), _end(other_record, other)
        if sent.response == other.response and ends[0] == ends[1]:
            continue
        answers = [
            Answer(_value(one, view), end)
            for one, view, end in zip((sent, other), views, ends, strict=True)
        ]
        if answers[0] != answers[1]:
            earlier = [one.request for one in record.sent if one.correlation_id < number]
            difference = Difference(sent.request, sent.step, answers[0], answers[1], tuple(earlier))
            if not passes(difference):
                return difference
    return None


def _by_number(records: list[Record]) -> dict[int, tuple[Record, Sent]]:
    return {sent.correlation_id: (record, sent) for record in records for sent in record.sent}


def _end(record: Record, sent: Sent) -> str:
    if sent is not record.sent[-1]:
        return ""
    parts = ["closed"] if record.closed else []
    parts += ["stuck"] if record.stuck else []
    parts += [f"another response: {stray.hex()}" for stray in record.strays]
    return ", ".join(parts)


# --- the value of an answer -----------------------------------------------------------------------


def _value(sent: Sent, view: View) -> Any:
    if sent.response is None:
        return NO_ANSWER
    request = sent.request
    if isinstance(request, Bytes) or isinstance(request.api, int):
        return sent.response
    try:
        version, value = decode_any(request.api, sent.response)
    except Malformed:
        return sent.response
    symbols = {name: symbol for symbol, name in view.names.items()}
    now_ms = time.time() * 1000

    def change(name: str, type_: Type, value: Any) -> Any:
        if name == "cluster" and value:
            return "<cluster>"
        if isinstance(value, str):
            return symbols.get(value) or ("<member>" if _MEMBER.fullmatch(value) else value)
        if type_ == "set" and value is not None:
            return _without_times(read_set(value), now_ms)
        if name == "port":
            return view.ports.get(value, value)
        if name == "controller" and value in view.ports.values():
            return "<controller>"
        if name == "timestamp" and abs(value - now_ms) < _NEAR_NOW_MS:
            return "<now>"
        return value

    value = map_fields(APIS[request.api].responses[version], value, change)
    if request.api == "ListGroups" or (request.api == "Metadata" and _names_none(request)):
        array, key = ("groups", "group") if request.api == "ListGroups" else ("topics", "topic")
        value[array] = [one for one in value[array] if one[key] in view.names]
    return {"layout": version} | _sorted(value)


def _names_none(request: Request) -> bool:
    """Return whether a Metadata request names no topic; other cases' topics are listed then too."""
    topics = request.body[0]
    return not (topics.items if isinstance(topics, Counted) else topics)


def _without_times(value: Any, now_ms: float) -> Any:
    if isinstance(value, list):
        return [_without_times(one, now_ms) for one in value]
    if isinstance(value, dict):
        return {
            key: "<now>"
            if key == "timestamp" and abs(one - now_ms) < _NEAR_NOW_MS
            else _without_times(one, now_ms)
            for key, one in value.items()
        }
    return value


def _sorted(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _sorted(one, key) for key, one in value.items()}
    if isinstance(value, list) and name != "message_set":
        items = [_sorted(one) for one in value]
        if name == "isr":
            return sorted(items)
        if items and isinstance(items[0], dict):
            return sorted(items, key=_identity)
        return items
    return value


def _identity(item: dict[str, Any]) -> str:
    return repr([[item[key] for key in _KEYS if key in item], item])


def _shape(real: Any, embedded: Any) -> Any:
    if real == embedded:
        return ()
    if isinstance(real, dict) and isinstance(embedded, dict) and real.keys() == embedded.keys():
        return tuple(
            (key, _shape(real[key], embedded[key])) for key in real if real[key] != embedded[key]
        )
    if isinstance(real, list) and isinstance(embedded, list) and len(real) == len(embedded):
        return next(_shape(a, b) for a, b in zip(real, embedded, strict=True) if a != b)
    return (_brief(real), _brief(embedded))


def _brief(value: Any) -> Any:
    return value if isinstance(value, int | str) else type(value).__name__
