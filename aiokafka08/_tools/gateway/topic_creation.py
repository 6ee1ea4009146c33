"""Change Metadata responses about a topic that the target creates because an old client named it.

A broker with ZooKeeper answers with error 5 (no leader yet), and clients ask again until there is a
leader. A broker with KRaft creates the topic too, but answers 3, as if it would never exist.

Invariant: 3 becomes 5 only if the broker that answered has auto.create.topics.enable=true. After a
3 the gateway requests this setting from that broker. If it may not read the setting, 3 stays: for a
client, failing and asking again is better than waiting for a topic that never comes.
"""

from __future__ import annotations

from typing import Final

from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.layouts import Api
from aiokafka08._tools.gateway.messages import message_of
from aiokafka08._tools.gateway.translation import ask_config, read_config
from aiokafka08.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.types import Buffer

_OLD_VERSIONS: Final = range(3)
"""What clients up to 0.10.2 send; later ones expect 3 as well."""

_BROKER: Final = 4
_SETTING: Final = "auto.create.topics.enable"
KNOWN_S: Final = 300.0
"""How long the setting counts as known; the broker may be restarted with another value."""
_CODES: Final = frozenset({"ErrorCode"})


def may_create(head: RequestHead, frame: Buffer) -> bool:
    """Return whether a request is of an old client, and names topics."""
    is_old = head.key == ApiKey.METADATA and head.version in _OLD_VERSIONS
    # The body of these versions begins with the number of topics.
    return is_old and int.from_bytes(frame[head.body_at : head.body_at + 4], signed=True) > 0


def ask_creation(node_id: int, header_end: bytes) -> list[Buffer]:
    """Return the request for the setting of a broker."""
    return ask_config(header_end, _BROKER, [str(node_id)], _SETTING)


def reads_creation(node_id: int, answer: Buffer) -> bool:
    """Return whether a broker creates topics, from its response to `ask_creation`.

    Raises:
        KafkaProtocolError: it isn't such a response.
    """
    return read_config(answer, _SETTING).get(str(node_id)) == "true"


def with_topics_to_come(api: Api, version: int, answer: memoryview) -> memoryview | None:
    """Return a Metadata response with error 5 for its unknown topics; None if it has no such topic.

    Raises:
        KafkaProtocolError: the frame isn't such a response.
    """
    response = message_of(api, "response", version, _CODES)
    values = response.read(answer)
    unknown = UnknownTopicOrPartitionError.errno
    created = [one for one in values["Topics"] if one["ErrorCode"] == unknown]
    if not created:
        return None
    for topic in created:
        topic["ErrorCode"] = LeaderNotAvailableError.errno
    return memoryview(b"".join(response.changed(answer, values)))
