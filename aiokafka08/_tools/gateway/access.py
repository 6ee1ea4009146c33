"""`Access`: which requests, topics and groups clients may use, and what they get instead.

Topics and groups that aren't allowed are removed from a request before the target gets it. In the
client's response they have the errors that a broker returns for them. A request that is refused as
a whole is answered here. `Access` is shared by all connections; `ConnectionAccess` remembers what
one of them was refused in its fetch session.

Invariants:

- The name of a topic or group that isn't allowed never reaches the target, except in the data that
  a group's members send each other.
- While topics are limited, a request is passed on only if the gateway can find all names of topics
  in it: an API that isn't in `_BY_TOPIC` or `_WITHOUT_TOPICS` is refused, and so are versions that
  name topics by their ids.
- All is pure, from bytes to bytes; one thread at a time calls the methods of a connection.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka08 import errors
from aiokafka08._core.names import NamePatterns
from aiokafka08._tools.gateway import answers, messages
from aiokafka08._tools.gateway.answers import ITEM_ROLES
from aiokafka08._tools.gateway.api_versions import CHANGES
from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.layouts import Api
from aiokafka08._tools.gateway.messages import Field, Struct, Values
from aiokafka08._tools.gateway.translation import MAX_ITEMS
from aiokafka08._wording import some_of
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.types import Buffer

_BY_TOPIC: Final = frozenset({
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch",
    "OffsetForLeaderEpoch", "AddPartitionsToTxn", "TxnOffsetCommit", "OffsetDelete",
    "DescribeProducers",
})  # fmt: skip
"""The APIs whose topics, in request and response, are items of arrays."""

_WITHOUT_TOPICS: Final = frozenset({
    "ApiVersions", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
    "DescribeGroups", "ListGroups", "DeleteGroups", "InitProducerId", "AddOffsetsToTxn", "EndTxn",
    "DescribeCluster", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions",
    "PushTelemetry",
})  # fmt: skip
"""APIs that name no topics, except in the data of a group's members."""

_MAX_SESSION_BYTES: Final = 256 << 10
"""How much memory the refused partitions of a connection's fetch session may take."""

_PARTITION_BYTES: Final = 64
"""The approximate memory that the number of a partition takes."""

_LISTS: Final = frozenset({"Metadata", "OffsetFetch", "ListGroups"})
"""The APIs whose response has all topics, or groups, if the request names none."""

_NO_CLUSTER: Final = errors.ClusterAuthorizationFailedError.errno
_NO_TOPIC: Final = errors.TopicAuthorizationFailedError.errno
_NO_GROUP: Final = errors.GroupAuthorizationFailedError.errno
_NO_TRANSACTION: Final = errors.TransactionalIdAuthorizationFailed.errno

_WRITES: Final[Mapping[str, int]] = {
    "Produce": _NO_TOPIC, "InitProducerId": _NO_CLUSTER, "AddPartitionsToTxn": _NO_TRANSACTION,
    "AddOffsetsToTxn": _NO_TRANSACTION, "TxnOffsetCommit": _NO_TRANSACTION,
    "EndTxn": _NO_TRANSACTION, "DeleteGroups": _NO_GROUP, "OffsetDelete": _NO_GROUP,
    "AlterShareGroupOffsets": _NO_GROUP, "DeleteShareGroupOffsets": _NO_GROUP,
}  # fmt: skip
"""What read-only clients can't do, and the code that they get. Group members may commit."""

_CODES: Final = {"topic": _NO_TOPIC, "group": _NO_GROUP, "coordinator key": _NO_GROUP}

_NO_ROLES: Final[frozenset[str]] = frozenset()
_TOPIC_ROLES: Final = frozenset({"topic"})
_GROUP_ROLES: Final = frozenset({"group", "coordinator key"})

_CREATES_NO_TOPICS: Final = 4
"""The first version of Metadata that can ask not to create topics; its response is that of 3."""
_GROUP: Final = 0  # the type of a coordinator's key
_OLD_CHANGES: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS})
"""Kafka 4 has no version 0 of these, but its definitions still describe it."""

_NAMED: Final = 3
_SHOWN_CHARACTERS: Final = 255

_OFFSET_FOR_LEADER_EPOCH: Final = 23
_WITH_REPLICA: Final = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, _OFFSET_FOR_LEADER_EPOCH})
_REPLICA: Final = frozenset({"replica"})
_NO_REPLICA: Final = b"\xff\xff\xff\xff"  # -1
_TRANSACTION: Final = frozenset({"transactional id"})

CHANGE_TEXT: Final = "it changes the cluster. Use a client of the target itself"
BETWEEN_BROKERS_TEXT: Final = "only brokers send this request"


@dataclass(frozen=True, slots=True)
class Access:
    """What the clients of a gateway may use.

    Attributes:
        topics: the topics; None: all.
        groups: the groups; None: all.
        is_read_only: whether nothing may be written except the offsets of groups.
    """

    topics: NamePatterns | None = None
    groups: NamePatterns | None = None
    is_read_only: bool = False

    def versions(self, api: Api) -> range:
        """Return the versions of an API that may pass, or that get an answer."""
        if api.name in CHANGES:
            first = 0 if api.key in _OLD_CHANGES else api.versions[0]
            return range(first, api.versions[-1] + 1) if _answers(api) else range(0)
        if self.topics is None or api.name in _WITHOUT_TOPICS or api.is_between_brokers:
            return api.versions
        return _versions_by_name(api) if api.name in _BY_TOPIC else range(0)

    @property
    def roles(self) -> frozenset[str]:
        """The roles whose names are limited."""
        topics = _NO_ROLES if self.topics is None else _TOPIC_ROLES
        return topics if self.groups is None else topics | _GROUP_ROLES

    def accepts(self, role: str, name: str) -> bool:
        """Return whether a topic or group is allowed."""
        patterns = self.topics if role == "topic" else self.groups
        return patterns is None or patterns.includes(name)


ALL: Final = Access()


@functools.cache
def _versions_by_name(api: Api) -> range:
    """Return the versions, always the first ones, whose requests don't name topics by id."""
    requests = {one: messages.message_of(api, "request", one) for one in api.versions}
    found = [version for version, one in requests.items() if not one.struct.has("topic id")]
    return range(found[0], found[-1] + 1)


def _answers(api: Api) -> bool:
    # In AlterReplicaLogDirs the topics of the request are nested in folders, and those of the
    # response aren't.
    return api.name != "AlterReplicaLogDirs" and answers.has_answer(api, api.versions[-1])


@dataclass(frozen=True, slots=True)
class Limited:
    """How to handle a request that can't pass as it is.

    Attributes:
        request: the frame that the target gets instead; None: the target isn't asked.
        respond: makes the frame of the client's response from the frame of the target's response,
            or from an empty one if the target isn't asked.
        expects_response: False if the client gets no response: then its connection ends.
        refused: the refused names, for the log; "" if only the response may have to be changed.
    """

    request: list[Buffer] | None
    respond: Callable[[memoryview], list[Buffer]]
    expects_response: bool
    refused: str


class ConnectionAccess:
    """The access of one connection, whose requests are checked one after the other.

    Args:
        access: the topics, groups and requests that its client may use.
        is_observing: whether requests that change the cluster pass.
    """

    def __init__(self, access: Access, *, is_observing: bool = False) -> None:
        self._access = access
        self._is_observing = is_observing
        self._session: dict[str, set[int]] = {}  # refused partitions of the fetch session

    def passes(self, api: Api, head: RequestHead, frame: Buffer) -> bool:
        """Return whether `check` would find nothing; False if only a slow check could tell."""
        limits = self._access
        is_free = not (limits.roles or limits.is_read_only or api.is_between_brokers)
        is_free = is_free and (self._is_observing or api.name not in CHANGES)
        return is_free and (api.key not in _WITH_REPLICA or _names_no_replica(api, head, frame))

    def check(self, api: Api, head: RequestHead, frame: memoryview) -> Limited | None:
        """Return how a request is limited; None: it passes, or is translated, as it is.

        This may take long.

        Raises:
            KafkaProtocolError: the request doesn't have the layout of its version.
        """
        limits, refusal = self._access, self._refusal(api, head, frame)
        is_list = api.name in _LISTS and bool(limits.roles)
        changes = limits.is_read_only and api.key == ApiKey.METADATA
        changes = changes or (bool(self._session) and api.key == ApiKey.FETCH)
        if not (refusal or is_list or changes or self._refused_names(api, head, frame)):
            return None
        whole = messages.message_of(api, "request", head.version)
        request, layout = whole.read(frame, head.body_at, MAX_ITEMS), whole.struct
        if refusal is not None:
            return _answered(api, head, request, *refusal)
        if self._is_item_refused(layout, request, request):
            reason = _not_allowed(layout, _keys(layout, request))
            text = "the gateway doesn't allow this group"
            return _answered(api, head, request, _NO_GROUP, text, reason)
        kept, refused = self._split(layout, request, request)
        if not (refused or changes or (is_list and _lists_all(request))):
            return None
        reason = _not_allowed(layout, refused)
        if api.key == ApiKey.FETCH:
            refused = self._in_session(request, refused)
        return self._without(api, head, frame, kept, refused, reason)

    # --- requests -----------------------------------------------------------------------------

    def _refusal(self, api: Api, head: RequestHead, frame: Buffer) -> tuple[int, str] | None:
        """Return code and text if a request is refused whatever it names; None if it isn't."""
        if api.is_between_brokers:
            return _NO_CLUSTER, BETWEEN_BROKERS_TEXT
        if api.name in CHANGES and not self._is_observing:
            return answers.refusal_code(api, head.version), CHANGE_TEXT
        if api.key in _WITH_REPLICA and not _names_no_replica(api, head, frame):
            for _, replica_id in messages.find_in_request(api, head, frame, _REPLICA):
                if replica_id >= 0:
                    text = f"replica id {replica_id}: only brokers have one; expected -1"
                    return _NO_TOPIC, text
        if self._access.is_read_only and (code := _WRITES.get(api.name)) is not None:
            is_producer = api.name == "InitProducerId"
            if is_producer and any(messages.find_in_request(api, head, frame, _TRANSACTION)):
                code = _NO_TRANSACTION
            return code, "the gateway is read-only"
        return None

    def _refused_names(self, api: Api, head: RequestHead, frame: memoryview) -> bool:
        """Return whether a request names, or may name, something that isn't allowed."""
        if not (roles := self._access.roles):
            return False
        found = messages.find_in_request(api, head, frame, roles)
        return not all(self._access.accepts(role, name) for role, name in found)

    def _split(self, layout: Struct, values: Values, request: Values) -> tuple[Values, Values]:
        """Return a struct without the items that aren't allowed, and one with only these items."""
        kept, refused = dict(values), {}
        for field in layout.fields:
            if not field.is_array:
                continue
            stay: list[Any] = []
            go: list[Any] = []
            for item in values[field.name] or ():
                if field.struct is None:
                    (go if self._is_refused(field, item, request) else stay).append(item)
                elif self._is_item_refused(field.struct, item, request):
                    go.append(item)
                else:
                    inner_kept, inner_refused = self._split(field.struct, item, request)
                    stay.append(inner_kept)
                    if inner_refused:
                        go.append({**_keys(field.struct, item), **inner_refused})
            if go:
                kept[field.name], refused[field.name] = stay, go
        return kept, refused

    def _is_item_refused(self, layout: Struct, item: Values, request: Values) -> bool:
        return any(self._is_refused(one, item[one.name], request) for one in layout.single_fields)

    def _is_refused(self, field: Field, value: Any, request: Values) -> bool:
        if field.role not in _CODES or value is None:
            return False
        if field.role == "coordinator key" and request.get("KeyType", _GROUP) != _GROUP:
            return False
        return not self._access.accepts(field.role, value)

    def _in_session(self, request: Values, refused: Values) -> Values:
        """Return the refused names of a fetch, with those of earlier fetches in its session.

        The target's session lacks these topics. Each response has their errors, as with a broker.
        """
        if request.get("SessionEpoch", -1) <= 0:
            self._session = {}
        refused = dict(refused)
        for topic in refused.get("Topics", ()):
            numbers = {one["Partition"] for one in topic["Partitions"]}
            self._session.setdefault(topic["Topic"], set()).update(numbers)
        for topic in refused.pop("ForgottenTopicsData", ()):
            self._session.get(topic["Topic"], set()).difference_update(topic["Partitions"])
        held_bytes = _PARTITION_BYTES * sum(map(len, self._session.values()))
        held_bytes += sum(map(len, self._session))
        if held_bytes > _MAX_SESSION_BYTES:
            text = "a fetch session with too many topics that aren't allowed: they take"
            limit = f"{held_bytes} bytes, expected at most {_MAX_SESSION_BYTES}"
            raise KafkaProtocolError(f"{text} {limit}")
        topics = [
            {"Topic": topic, "Partitions": [{"Partition": number} for number in sorted(numbers)]}
            for topic, numbers in self._session.items()
            if numbers
        ]
        if topics:
            refused["Topics"] = topics
        if request.get("SessionEpoch", -1) < 0:
            self._session = {}
        return refused

    # --- answers ------------------------------------------------------------------------------

    def _without(
        self, api: Api, head: RequestHead, frame: Buffer, kept: Values, refused: Values, reason: str
    ) -> Limited:
        """Ask the target for what is allowed, and add the errors to its response."""
        version = head.version
        lists_all = api.name in _LISTS and "Topics" in kept and not kept["Topics"]
        hides_all = lists_all and bool(refused)  # all named topics are refused
        if self._access.is_read_only and api.key == ApiKey.METADATA:
            if version == 0 and lists_all:
                kept = {**kept, "Topics": [] if refused else None}
            kept = {**kept, "AllowAutoTopicCreation": 0}
            version = max(version, _CREATES_NO_TOPICS)
        changed = messages.message_of(api, "request", version)
        kept_header = frame[4 : changed.body_at(frame, head.body_at)]
        request = [struct.pack(">hh", head.key, version), kept_header, *changed.write(kept)]

        # Made now, not in `respond`. `refused` may have views of the whole frame, whose memory
        # isn't counted any more while the target works. And `respond` runs on the event loop if
        # the target's response is small.
        failed = (_NO_TOPIC, "the gateway doesn't allow it", _CODES)
        made = answers.error_answer(api, head.version, refused, *failed) if refused else None
        del refused

        def respond(answer: memoryview) -> list[Buffer]:
            values = messages.message_of(api, "response", version).read(answer)
            response = messages.message_of(api, "response", head.version)
            if api.name in _LISTS:
                self._hide(response.struct, values, everything=hides_all)
            if made is not None:
                _merge(response.struct, values, made)
            return response.changed(answer, values)

        is_silent = api.key == ApiKey.PRODUCE and kept["Acks"] == 0
        return Limited(request, respond, not (is_silent and reason), reason)

    def _hide(self, layout: Struct, values: Values, *, everything: bool) -> None:
        """Remove what isn't allowed from a response that lists everything."""
        for field in layout.fields:
            if field.struct is None or not field.is_array or values.get(field.name) is None:
                continue
            items = values[field.name]
            for role in ("topic", "group"):
                if (key := field.struct.field_of(role)) is None:
                    continue
                if everything and role == "topic":
                    items = []
                names = [item[key] for item in items]
                are_shown = [name is None or self._access.accepts(role, name) for name in names]
                items = list(itertools.compress(items, are_shown))
            for item in items:
                self._hide(field.struct, item, everything=everything)
            values[field.name] = items


def _answered(
    api: Api, head: RequestHead, request: Values, code: int, text: str, refused: str = ""
) -> Limited:
    """Answer a request without the target; `refused` is for the log (default: `text`)."""
    values = answers.error_answer(api, head.version, request, code, text)
    if api.key == ApiKey.FETCH:
        values["ErrorCode"] = 0  # each partition has the error, not the session
    is_silent = api.key == ApiKey.PRODUCE and request["Acks"] == 0
    made = messages.response_frame(api, head, values)
    return Limited(None, lambda answer: made, not is_silent, refused or text)


def _names_no_replica(api: Api, head: RequestHead, frame: Buffer) -> bool:
    # In versions that aren't flexible the replica id is the first field.
    first = frame[head.body_at : head.body_at + len(_NO_REPLICA)]
    return head.version < api.flexible and first == _NO_REPLICA


def _lists_all(request: Values) -> bool:
    """Return whether a request asks for all topics, or groups."""
    groups = request.get("Groups")
    return not request.get("Topics") if groups is None else any(not one["Topics"] for one in groups)


def _keys(layout: Struct, item: Values) -> Values:
    """Return the fields that name a struct (`ITEM_ROLES`)."""
    return {one.name: item[one.name] for one in layout.single_fields if one.role in ITEM_ROLES}


def _not_allowed(layout: Struct, refused: Values) -> str:
    """Return which topics and groups are in refused values, for the log; "" if there are none."""
    names = sorted({name for _, name in layout.find(refused, _CODES)})
    shown = some_of([repr(name[:_SHOWN_CHARACTERS]) for name in names], _NAMED)
    return f"not allowed: {shown}" if names else ""


def _merge(layout: Struct, values: Values, errors: Values) -> None:
    """Add the items of an answer with errors to a response; what is there remains."""
    for field in layout.fields:
        if not field.is_array or field.struct is None:
            values.setdefault(field.name, errors.get(field.name))
            continue
        items = values.get(field.name)
        items = values[field.name] = [] if items is None else items
        name = answers.item_field(field.struct)
        known = {} if name is None else {item[name.name]: item for item in items}
        for error in errors.get(field.name) or ():
            if name is not None and error[name.name] in known:
                _merge(field.struct, known[error[name.name]], error)
            else:
                items.append(error)
