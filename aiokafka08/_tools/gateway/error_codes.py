"""The error codes that a client of an old line knows, in place of newer ones.

A client that gets a code from after its time treats it as an unknown error, or fails. So a code
that is newer than the line becomes the one that the line gave in the same situation, or -1
(unknown) if there was none. `errors` has the codes that this package's clients get; the others,
which only the target gives, are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka08 import errors
from aiokafka08.protocol.api import ApiKey

_FENCED_LEADER_EPOCH, _UNKNOWN_LEADER_EPOCH, _OFFSET_NOT_AVAILABLE = 74, 75, 78
_FENCED_INSTANCE_ID, _ELIGIBLE_LEADERS_NOT_AVAILABLE, _THROTTLING_QUOTA_EXCEEDED = 82, 83, 89
_UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID = 100, 103
"""Codes that no line up to 0.10.2 has, and this package's clients never get."""

_BEFORE: Final[Mapping[int, int]] = {
    errors.KafkaStorageError.errno: errors.NotLeaderForPartitionError.errno,
    errors.ListenerNotFound.errno: errors.LeaderNotAvailableError.errno,
    _FENCED_LEADER_EPOCH: errors.NotLeaderForPartitionError.errno,
    _UNKNOWN_LEADER_EPOCH: errors.NotLeaderForPartitionError.errno,
    _OFFSET_NOT_AVAILABLE: errors.LeaderNotAvailableError.errno,
    _FENCED_INSTANCE_ID: errors.UnknownMemberIdError.errno,
    _ELIGIBLE_LEADERS_NOT_AVAILABLE: errors.LeaderNotAvailableError.errno,
    _THROTTLING_QUOTA_EXCEEDED: errors.RequestTimedOutError.errno,
    _UNKNOWN_TOPIC_ID: errors.UnknownTopicOrPartitionError.errno,
    _INCONSISTENT_TOPIC_ID: errors.UnknownTopicOrPartitionError.errno,
    errors.InvalidRecordError.errno: errors.CorruptRecordException.errno,
    # 0.8 knows no authorization, and no generations.
    errors.TopicAuthorizationFailedError.errno: errors.UnknownTopicOrPartitionError.errno,
    errors.GroupAuthorizationFailedError.errno: errors.NotCoordinatorForGroupError.errno,
    errors.IllegalGenerationError.errno: errors.NotCoordinatorForGroupError.errno,
    errors.UnknownMemberIdError.errno: errors.NotCoordinatorForGroupError.errno,
}
"""The code that older lines gave in a similar situation; it may be too new for a line, too."""

# The highest code that the clients of a line know, read from their jars
_LINE_0_8, _LINE_0_9, _LINE_0_10_0, _LINE_0_10_1 = 20, 31, 35, 43

_HIGHEST: Final[Mapping[int, tuple[int, ...]]] = {
    ApiKey.PRODUCE: (_LINE_0_8, _LINE_0_9, _LINE_0_10_0),
    ApiKey.FETCH: (_LINE_0_8, _LINE_0_9, _LINE_0_10_0, _LINE_0_10_1),
    ApiKey.LIST_OFFSETS: (_LINE_0_8,),
    ApiKey.METADATA: (_LINE_0_8,),
    ApiKey.OFFSET_COMMIT: (_LINE_0_8, _LINE_0_8),
    ApiKey.OFFSET_FETCH: (_LINE_0_8,),
}
"""By API and version: the highest code of the oldest line that sends this version.

GroupCoordinator 0 and OffsetFetch 1 have no row. Their codes from the target stay as they are. The
gateway's own codes for them are 29 and 30, which 0.8.2 treats as any other error.
"""


def old_code(key: int, version: int, code: int) -> int:
    """Return an error code as the oldest clients that send this version know it.

    Args:
        key: the API.
        version: its version; if `_HIGHEST` doesn't have it, the code is returned unchanged.
        code: the code of the target, or one that the gateway gives in a broker's place.
    """
    highest = _HIGHEST.get(key, ())[version : version + 1]
    while highest and code > highest[0]:
        code = _BEFORE.get(code, errors.UnknownError.errno)
    return code
