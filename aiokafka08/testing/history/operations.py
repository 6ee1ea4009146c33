"""The parts of a history: operations, the messages that they moved, and anomalies. Pure.

Invariant: an operation names partitions as "topic/number" and messages by a value that is unique in
its partition, so that histories are plain data, which JSON can hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, Literal, TextIO, get_args

# Identifies a message in its partition.
Value = str | int

# How an operation ended: "ok": it took effect; "fail": it certainly had no effect; "unknown": it
# may have had one; "open": it hasn't ended.
Status = Literal["ok", "fail", "unknown", "open"]

_STATUSES: Final = get_args(Status)

Fact = bool | float | str

# Calls that the checks and the recorder know. Any other call is allowed, unless its name looks like
# a misspelling of one of these.
CALLS: Final = (
    *("assign", "subscribe", "assigned", "revoked", "seek", "commit", "committed", "position"),
    *("stored", "expired", "retried", "log", "truncated", "deleted"),
    *("start", "stop", "metrics", "ready", "left"),
    *("poll", "getone", "getmany", "getmany_arrow", "anext", "flush"),
    *("send", "send_many", "send_arrow", "send_batch", "send_and_wait"),
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was sent or returned.

    Attributes:
        partition: "orders/0"; "orders/?" if the message was sent to a partition that isn't known.
        value: Its identity; unique in its partition.
        offset: Its place in the log; None if that isn't known.
    """

    partition: str
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of one client, from its invocation to its end, or one observation.

    All times of a history are seconds of one clock. The checks know the calls of this table by
    name, and those that poll (`logs.POLLS`). Of other calls, they use the times and the messages
    sent and returned. `validated()` refuses a name that looks like a misspelling of one in `CALLS`.

    | call | |
    |---|---|
    | `assign`, `subscribe` | the client reads `partitions` from now on, and no others |
    | `assigned`, `revoked` | its group gave it `partitions`, in `generation`, or took them away; \
the fact `auto_commit`: the client also commits automatically, which isn't recorded; the fact \
`session_s`: its session timeout in seconds, 30 if that isn't known; the fact `exclusive` (only in \
groups without generations): no other member may own the partitions until this member's \
`revoked`, `expired` or `stop` |
    | `expired` | the member's session in ZooKeeper ended: others may own its partitions |
    | `seek` | it reads on at `offsets`, or at an unknown place of `partitions` |
    | `commit` | it commits `offsets`, and its positions in `partitions`, which aren't recorded; \
the fact `explicit`: the caller chose the offsets |
    | `committed` | the offset store returned `offsets` |
    | `stored` | the offset store took `offsets` from the member, in `generation` if the store \
refuses those of other generations; the facts `store`, "kafka" or "zookeeper", and `connection`, \
the number of the connection that brought them |
    | `position` | the consumer returned its positions `offsets` |
    | `retried` | it reported a batch as sent again: `partitions`, and the facts `messages` and \
`may_be_stored` |
    | `log` | the whole log of `partitions` was read: `polled` |
    | `truncated` | the cluster lost what stood from `offsets` on; the fact `end`: the end of the \
log before the loss |
    | `deleted` | the cluster removed what stood before `offsets` |
    | `start`, `stop` | |
    | `metrics`, `ready`, `left` | `facts` has what the client reported, or left behind after \
`stop`. The fact `ready` is the result of `ready()`, `expected` the result that it should have, if \
the observer knows it, and `connections` how many connections a producer has open |

    Attributes:
        process: the client, by a name.
        call: the name of the call.
        invoked: when it was called.
        ended: when it returned or raised, or the message was acknowledged; None if it hasn't.
        accepted: when `send()` returned its future; None if the call returned at `ended`.
        status: how it ended (default "ok").
        deadline_s: the longest that the call may take; None: there is no limit (default None).
        sent: the messages that it sent, in order.
        polled: the messages that it returned, in order.
        partitions, offsets: see above.
        group: the group of the client; None without one.
        generation: the group's generation; None if the group has none.
        facts: see above.
        error: what the call raised, as text.
    """

    process: str
    call: str
    invoked: float
    ended: float | None = None
    accepted: float | None = None
    status: Status = "ok"
    deadline_s: float | None = None
    sent: tuple[Message, ...] = ()
    polled: tuple[Message, ...] = ()
    partitions: tuple[str, ...] = ()
    offsets: Mapping[str, int] = field(default_factory=dict)
    group: str | None = None
    generation: int | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    error: str = ""

    @property
    def order(self) -> float:
        """The time that sorts operations in a history: the end, or the invocation without one."""
        return self.invoked if self.ended is None else self.ended

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON can hold them."""
        data: dict[str, Any] = {}
        for dataclass_field in fields(self):
            value = getattr(self, dataclass_field.name)
            if dataclass_field.name in ("sent", "polled"):
                value = [[m.partition, m.offset, m.value] for m in value]
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = dict(value)
            if value not in (None, [], {}, "") and value != dataclass_field.default:
                data[dataclass_field.name] = value
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Operation:
        """Return the operation that `to_json()` returned as `data`.

        Raises:
            ValueError: the data isn't an object, a field is unknown or missing, a field that holds
                several values isn't a list, or a message isn't a list of three.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"operation {data!r}: expected an object")
        known = {dataclass_field.name for dataclass_field in fields(cls)}
        if unknown := set(data) - known:
            raise ValueError(f"operation {dict(data)}: unknown fields {sorted(unknown)}")
        values = dict(data)
        try:
            for name in ("sent", "polled"):
                if name in values:
                    values[name] = tuple(map(_message_of, _listed(values[name])))
            if "partitions" in values:
                values["partitions"] = _listed(values["partitions"])
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"operation {dict(data)}: {error}") from None


def _listed(value: Any) -> tuple[Any, ...]:
    """Return the items of a list or tuple. Raise ValueError for another value, such as a str."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r}: expected a list")
    return tuple(value)


def _message_of(value: Any) -> Message:
    partition, offset, identity = _listed(value)
    return Message(partition, identity, offset)


def validated(operation: Operation) -> Operation:
    """Return the operation, if its fields are as `Operation` describes them.

    Raises:
        ValueError: its status is unknown, its call is misspelt, or its times aren't in order.
        TypeError: a field has a wrong type, or `operation` is no `Operation`.
    """
    if not isinstance(operation, Operation):
        raise TypeError(f"history: expected an Operation, got {type(operation).__name__}")
    if name := _wrong_type(operation):
        raise TypeError(
            f"operation {operation.process} {operation.call}: {name}={getattr(operation, name)!r} "
            "has a wrong type"
        )
    if problem := _wrong_value(operation):
        raise ValueError(
            f"operation {operation.process} {operation.call} at {operation.invoked}: {problem}"
        )
    return operation


_NUMBER: Final = (int, float)
_NUMBER_OR_NONE: Final = (int, float, type(None))
# The types of the fields. Plain checks, because a history has tens of thousands of operations.
_KINDS: Final = (
    *(("process", str), ("call", str), ("invoked", _NUMBER), ("ended", _NUMBER_OR_NONE)),
    *(("accepted", _NUMBER_OR_NONE), ("status", str), ("deadline_s", _NUMBER_OR_NONE)),
    *(("sent", (tuple, list)), ("polled", (tuple, list)), ("partitions", (tuple, list))),
    *(("offsets", Mapping), ("group", (str, type(None))), ("generation", (int, type(None)))),
    ("facts", Mapping),
)


def _wrong_type(operation: Any) -> str:
    """Return the name of a field that has a wrong type; empty if none has."""
    for name, kinds in _KINDS:
        if not isinstance(getattr(operation, name), kinds):
            return name
    for name in ("sent", "polled"):
        for message in getattr(operation, name):
            if not isinstance(message, Message) or not _has_right_types(message):
                return name
    for partition in operation.partitions:
        if not isinstance(partition, str):
            return "partitions"
    for partition, offset in operation.offsets.items():
        if not (isinstance(partition, str) and isinstance(offset, int)):
            return "offsets"
    return ""


def _has_right_types(message: Any) -> bool:
    return (
        isinstance(message.partition, str)
        and isinstance(message.value, (str, int))
        and isinstance(message.offset, (int, type(None)))
    )


def _wrong_value(operation: Operation) -> str:
    if operation.status not in _STATUSES:
        return f"status {operation.status!r}: expected one of {', '.join(_STATUSES)}"
    if (meant := _meant_call(operation.call)) is not None:
        return f"call {operation.call!r}: did you mean {meant!r}?"
    for name in ("invoked", "accepted", "ended"):
        at = getattr(operation, name)
        if at is not None and not math.isfinite(at):
            return f"{name} {at}: expected a finite number"
        if at is not None and at < operation.invoked:
            return f"{name} {at} is before invoked {operation.invoked}"
    return ""


@lru_cache(maxsize=256)
def _meant_call(call: str) -> str | None:
    """Return the known call that `call` misspells; None if `call` is known, or resembles none."""
    if call in CALLS:
        return None
    return next(iter(get_close_matches(call.lower(), CALLS, 1, cutoff=0.85)), None)


def write_jsonl(operations: Iterable[Operation], file: TextIO) -> None:
    """Write one line of JSON per operation to an open `file`."""
    for operation in operations:
        file.write(json.dumps(operation.to_json(), ensure_ascii=False) + "\n")


def read_jsonl(lines: Iterable[str]) -> Iterator[Operation]:
    """Yield the operations that `write_jsonl()` wrote; `lines` may be an open file."""
    for line in lines:
        if line.strip():
            yield Operation.from_json(json.loads(line))


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation that a history proves.

    Attributes:
        name: Its kind; docs/testing.md has the table.
        witness: The fewest operations that show it, with only the messages concerned.
        facts: The partition, values and offsets concerned, by name.
    """

    name: str
    witness: tuple[Operation, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = ", ".join(f"{key}={value!r}" for key, value in self.facts.items())
        shown = "".join(
            f"\n  {json.dumps(operation.to_json(), ensure_ascii=False, default=str)}"
            for operation in self.witness
        )
        return f"{self.name}: {facts}{shown}"


def only(operation: Operation, partition: str, values: Iterable[Value] | None = None) -> Operation:
    """Return the operation reduced to one partition, and to messages with `values`, if given."""
    wanted = None if values is None else set(values)

    def keep(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(
            m
            for m in messages
            if same_place(m.partition, partition) and (wanted is None or m.value in wanted)
        )

    return replace(
        operation,
        sent=keep(operation.sent),
        polled=keep(operation.polled),
        partitions=tuple(name for name in operation.partitions if same_place(name, partition)),
        offsets={
            name: offset
            for name, offset in operation.offsets.items()
            if same_place(name, partition)
        },
    )


def topic_of(partition: str) -> str:
    """Return "orders" of "orders/0"."""
    return partition.rpartition("/")[0] or partition


def unknown_place(partition: str) -> str:
    """Return "orders/?" of "orders/0"."""
    return f"{topic_of(partition)}/?"


def same_place(name: str, other: str) -> bool:
    """Return whether `name` is the partition `other`, or the unknown place of its topic."""
    return name == other or name == unknown_place(other)
