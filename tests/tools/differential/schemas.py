"""The layouts of requests and responses, as data: one tuple of fields per API and version.

A field is a pair of name and type. A type is the name of a primitive ("i16", "string", …), a tuple
of fields (a struct), or a list of one type (an array). `wire` encodes and decodes by them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Type = Any
"""A primitive's name, a tuple of fields, or a list with one type."""
Fields = tuple[tuple[str, Type], ...]


def _topics(*partition: tuple[str, Type]) -> Type:
    return [(("topic", "string"), ("partitions", [partition]))]


class Api(NamedTuple):
    """One API: its key, and its layouts by version."""

    key: int
    requests: tuple[Fields, ...]
    responses: tuple[Fields, ...]


_PRODUCE: Fields = (
    ("acks", "i16"),
    ("timeout_ms", "i32"),
    ("topics", _topics(("partition", "i32"), ("message_set", "set"))),
)
_PRODUCED = _topics(("partition", "i32"), ("error", "i16"), ("offset", "i64"))
_PRODUCED_2 = _topics(
    ("partition", "i32"), ("error", "i16"), ("offset", "i64"), ("timestamp", "i64")
)
_THROTTLE = ("throttle_ms", "i32")
_FETCH: Fields = (
    ("replica_id", "i32"),
    ("max_wait_ms", "i32"),
    ("min_bytes", "i32"),
    ("topics", _topics(("partition", "i32"), ("offset", "i64"), ("max_bytes", "i32"))),
)
_FETCH_3: Fields = (*_FETCH[:3], ("max_bytes", "i32"), *_FETCH[3:])
_FETCHED = _topics(
    ("partition", "i32"), ("error", "i16"), ("high_watermark", "i64"), ("message_set", "set")
)
_BROKER: Fields = (("node", "i32"), ("host", "string"), ("port", "i32"))
_PARTITIONS = [
    (
        ("error", "i16"),
        ("partition", "i32"),
        ("leader", "i32"),
        ("replicas", ["i32"]),
        ("isr", ["i32"]),
    )
]
_TOPIC_STATES = [
    (("error", "i16"), ("topic", "string"), ("internal", "i8"), ("partitions", _PARTITIONS))
]
_RACKED = [(*_BROKER, ("rack", "string"))]
_COMMIT_0 = _topics(("partition", "i32"), ("offset", "i64"), ("metadata", "string"))
_COMMIT_1 = _topics(
    ("partition", "i32"), ("offset", "i64"), ("timestamp", "i64"), ("metadata", "string")
)
_MEMBER: Fields = (("group", "string"), ("generation", "i32"), ("member", "string"))
_PARTITION_ERRORS: Fields = (("topics", _topics(("partition", "i32"), ("error", "i16"))),)
_OFFSET_FETCH: Fields = (
    ("group", "string"),
    ("topics", [(("topic", "string"), ("partitions", ["i32"]))]),
)
_COMMITTED: Fields = (
    (
        "topics",
        _topics(("partition", "i32"), ("offset", "i64"), ("metadata", "string"), ("error", "i16")),
    ),
)
_ERROR: Fields = (("error", "i16"),)
_JOIN: Fields = (
    ("member", "string"),
    ("protocol_type", "string"),
    ("protocols", [(("name", "string"), ("metadata", "bytes"))]),
)
_NEW_TOPICS = [
    (
        ("topic", "string"),
        ("partitions", "i32"),
        ("replicas", "i16"),
        ("assignments", [(("partition", "i32"), ("nodes", ["i32"]))]),
        ("configs", [(("name", "string"), ("value", "string"))]),
    )
]
_CREATE_TOPICS: Fields = (("topics", _NEW_TOPICS), ("timeout_ms", "i32"))

APIS: dict[str, Api] = {
    "Produce": Api(
        0,
        (_PRODUCE,) * 3,
        (
            (("topics", _PRODUCED),),
            (("topics", _PRODUCED), _THROTTLE),
            (("topics", _PRODUCED_2), _THROTTLE),
        ),
    ),
    "Fetch": Api(
        1,
        (*(_FETCH,) * 3, _FETCH_3),
        ((("topics", _FETCHED),), *((_THROTTLE, ("topics", _FETCHED)),) * 3),
    ),
    "ListOffsets": Api(
        2,
        (
            (
                ("replica_id", "i32"),
                ("topics", _topics(("partition", "i32"), ("timestamp", "i64"), ("count", "i32"))),
            ),
            (
                ("replica_id", "i32"),
                ("topics", _topics(("partition", "i32"), ("timestamp", "i64"))),
            ),
        ),
        (
            (("topics", _topics(("partition", "i32"), ("error", "i16"), ("offsets", ["i64"]))),),
            (
                (
                    "topics",
                    _topics(
                        ("partition", "i32"),
                        ("error", "i16"),
                        ("timestamp", "i64"),
                        ("offset", "i64"),
                    ),
                ),
            ),
        ),
    ),
    "Metadata": Api(
        3,
        ((("topics", ["string"]),),) * 3,
        (
            (
                ("brokers", [_BROKER]),
                ("topics", [(("error", "i16"), ("topic", "string"), ("partitions", _PARTITIONS))]),
            ),
            (("brokers", _RACKED), ("controller", "i32"), ("topics", _TOPIC_STATES)),
            (
                ("brokers", _RACKED),
                ("cluster", "string"),
                ("controller", "i32"),
                ("topics", _TOPIC_STATES),
            ),
        ),
    ),
    "OffsetCommit": Api(
        8,
        (
            (("group", "string"), ("topics", _COMMIT_0)),
            (*_MEMBER, ("topics", _COMMIT_1)),
            (*_MEMBER, ("retention_ms", "i64"), ("topics", _COMMIT_0)),
        ),
        (_PARTITION_ERRORS,) * 3,
    ),
    "OffsetFetch": Api(
        9, (_OFFSET_FETCH,) * 3, (_COMMITTED, _COMMITTED, (*_COMMITTED, ("error", "i16")))
    ),
    "GroupCoordinator": Api(
        10,
        ((("group", "string"),),),
        ((*_ERROR, ("coordinator", "i32"), ("host", "string"), ("port", "i32")),),
    ),
    "JoinGroup": Api(
        11,
        (
            (("group", "string"), ("session_ms", "i32"), *_JOIN),
            (("group", "string"), ("session_ms", "i32"), ("rebalance_ms", "i32"), *_JOIN),
        ),
        (
            (
                *_ERROR,
                ("generation", "i32"),
                ("protocol", "string"),
                ("leader", "string"),
                ("member", "string"),
                ("members", [(("member", "string"), ("metadata", "bytes"))]),
            ),
        )
        * 2,
    ),
    "Heartbeat": Api(12, (_MEMBER,), (_ERROR,)),
    "LeaveGroup": Api(13, ((("group", "string"), ("member", "string")),), (_ERROR,)),
    "SyncGroup": Api(
        14,
        ((*_MEMBER, ("assignments", [(("member", "string"), ("assignment", "bytes"))])),),
        ((*_ERROR, ("assignment", "bytes")),),
    ),
    "DescribeGroups": Api(
        15,
        ((("groups", ["string"]),),),
        (
            (
                (
                    "groups",
                    [
                        (
                            *_ERROR,
                            ("group", "string"),
                            ("state", "string"),
                            ("protocol_type", "string"),
                            ("protocol", "string"),
                            (
                                "members",
                                [
                                    (
                                        ("member", "string"),
                                        ("client_id", "string"),
                                        ("client_host", "string"),
                                        ("metadata", "bytes"),
                                        ("assignment", "bytes"),
                                    )
                                ],
                            ),
                        )
                    ],
                ),
            ),
        ),
    ),
    "ListGroups": Api(
        16,
        ((),),
        ((*_ERROR, ("groups", [(("group", "string"), ("protocol_type", "string"))])),),
    ),
    "SaslHandshake": Api(
        17, ((("mechanism", "string"),),), ((*_ERROR, ("mechanisms", ["string"])),)
    ),
    "ApiVersions": Api(
        18,
        ((),),
        ((*_ERROR, ("apis", [(("api", "i16"), ("lowest", "i16"), ("highest", "i16"))])),),
    ),
    "CreateTopics": Api(
        19,
        (_CREATE_TOPICS, (*_CREATE_TOPICS, ("validate_only", "i8"))),
        (
            (("topics", [(("topic", "string"), *_ERROR)]),),
            (("topics", [(("topic", "string"), *_ERROR, ("message", "string"))]),),
        ),
    ),
    "DeleteTopics": Api(
        20,
        ((("topics", ["string"]), ("timeout_ms", "i32")),),
        ((("topics", [(("topic", "string"), *_ERROR)]),),),
    ),
}
