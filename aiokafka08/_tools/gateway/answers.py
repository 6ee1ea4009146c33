"""Make a broker's answer to a request, or a part of a request, that isn't authorized. Pure.

An answer mirrors the request: it names each topic, partition, group or resource of the request with
an error code. So one description (`layouts`) is enough for all APIs and versions. Other fields
repeat the request's field of the same name. If there is none, they are zero, empty or null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.layouts import Api
from aiokafka08._tools.gateway.messages import Field, Struct, Values, message_of
from aiokafka08.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError

ITEM_ROLES: Final = ("topic", "group", "coordinator key", "transactional id", "partition")
"""The roles of the fields that name an item of an array."""

_TOPIC_APIS: Final = frozenset({"DeleteTopics", "DeleteRecords", "CreatePartitions"})
_FIRST_BY_TOPIC: Final = 3
"""Before this version of CreateTopics (Kafka 2.0) brokers answer ClusterAuthorizationFailed, the
only error after which Kafka Connect goes on without creating topics."""

_TOPIC_RESOURCE: Final = 2


def refusal_code(api: Api, version: int) -> int:
    """Return the code that refuses a request that would change the cluster."""
    if api.name in _TOPIC_APIS or (api.name == "CreateTopics" and version >= _FIRST_BY_TOPIC):
        return TopicAuthorizationFailedError.errno
    return ClusterAuthorizationFailedError.errno


Codes = Mapping[str, int]
NO_CODES: Final[Codes] = {}


def error_answer(
    api: Api, version: int, request: Values, code: int, text: str, codes: Codes = NO_CODES
) -> Values:
    """Return the response in which everything has failed.

    Args:
        api: the API.
        version: the version of request and response.
        request: the values of the request, or of the part of it that is refused.
        code: the error code; clients that don't know it get the nearest one.
        text: the message of the error, in versions that have one.
        codes: the error codes of items, by their role; items inside them have the same code.
    """
    known = {role: old_code(api.key, version, one) for role, one in codes.items()}
    made, given = message_of(api, "response", version), message_of(api, "request", version)
    code = old_code(api.key, version, code)
    return _Mirror(known, text).struct(made.struct, given.struct, request, code)


def has_answer(api: Api, version: int) -> bool:
    """Return whether a response of this version can state that the request has failed."""
    return message_of(api, "response", version).struct.has("code")


def item_field(struct: Struct) -> Field | None:
    """Return the field that names an item of an array of structs; None: there is none."""
    return next((one for one in struct.single_fields if one.role in ITEM_ROLES), None)


class _Mirror:
    """Makes structs of a response out of those of a request."""

    def __init__(self, codes: Codes, text: str) -> None:
        self._codes = codes
        self._text = text

    def struct(self, made: Struct, given: Struct | None, values: Any, code: int) -> Values:
        """Return a struct of the response with the error.

        `made` is the layout of this struct. It answers a struct or item of the request, which has
        the layout `given` and these `values`.
        """
        made_values: Values = {}
        for field in made.fields:
            if field.role == "code":
                made_values[field.name] = code
            elif field.name == "ErrorMessage":
                made_values[field.name] = self._text
            elif field.is_array:
                made_values[field.name] = list(self._items(field, given, values, code))
            elif field.struct is not None:
                inner = None if field.is_nullable else self.struct(field.struct, None, None, code)
                made_values[field.name] = inner
            else:
                made_values[field.name] = self._value(field, given, values)
        if made_values.get("ResourceType") == _TOPIC_RESOURCE:
            made_values["ErrorCode"] = TopicAuthorizationFailedError.errno
        return made_values

    def _value(self, field: Field, given: Struct | None, values: Any) -> Any:
        if given is None:  # the item is a string or a number
            return values if field.role in ITEM_ROLES and values is not None else field.zero
        for other in given.single_fields:
            has_role = field.role in ITEM_ROLES and other.role == field.role
            if (has_role or other.name == field.name) and other.kind == field.kind:
                return values.get(other.name, field.zero)
        return field.zero

    def _items(self, made: Field, given: Struct | None, values: Any, code: int) -> Iterator[Values]:
        """Yield an item of the response's array for each item of the request with the same role."""
        if made.struct is None or given is None or not made.struct.has("code"):
            return
        name = item_field(made.struct)
        role = "" if name is None else name.role
        for other in given.fields:
            if not other.is_array:
                continue
            named = other if other.struct is None else item_field(other.struct)
            if role == ("" if named is None else named.role) and (role or other.struct is not None):
                for item in values.get(other.name) or ():
                    yield self.struct(made.struct, other.struct, item, self._codes.get(role, code))
