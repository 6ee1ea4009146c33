"""Translate ListOffsets 0, OffsetCommit 0 and 1, and OffsetFetch 0 to later versions.

- ListOffsets 0 is passed on if the target takes it, as Kafka up to 3.9 does. It compares times of
  segment files and lists their offsets; version 1 compares timestamps of messages. The beginning
  and the end of a log are the same in both. For any other time, a client whose request is
  translated gets only the offset of the first message at this time or later, even if it requests
  several offsets; or an empty list if there is no such message.
- Offsets of version 0, which old brokers keep in ZooKeeper, become offsets of the group like all
  others. They can be committed and fetched at any broker (`coordinators`).
- OffsetFetch 0 says with an error that nothing is committed, version 1 with the offset -1.
"""

from __future__ import annotations

from typing import Final

from aiokafka08._tools.gateway import translation
from aiokafka08._tools.gateway.api_versions import TRANSLATED
from aiokafka08._tools.gateway.coordinators import Coordinators, ask_coordinator
from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.headers import API_VERSIONS, RequestHead
from aiokafka08._tools.gateway.messages import Values
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.errors import UnknownTopicOrPartitionError
from aiokafka08.protocol.types import Buffer

_NOTHING_COMMITTED: Final = -1


class ListedVersions:
    """Whether the target takes ListOffsets 0 itself; None: it wasn't asked."""

    def __init__(self) -> None:
        self.has_0: bool | None = None


def translate_list_offsets(head: RequestHead, frame: Buffer, target: ListedVersions) -> Translation:
    """Translate ListOffsets 0 to version 1, unless the target takes it.

    Args:
        head: the header of the request.
        frame: its frame.
        target: whether the target takes version 0.

    Raises:
        KafkaProtocolError: the request isn't whole. `Translation.respond` also raises it, if the
            response isn't.
    """
    request = translation.read_old_request(head, frame)
    if target.has_0 is not None:
        return _list_offsets(head, frame, request, target)

    def respond(answer: memoryview, budget: Budget) -> Translation:
        found = translation.read_answer(API_VERSIONS, 0, answer)["ApiKeys"]
        taken = {one["ApiKey"] for one in found if one["MinVersion"] <= 0 <= one["MaxVersion"]}
        target.has_0 = head.key in taken
        return _list_offsets(head, frame, request, target)

    asked = translation.write_request(API_VERSIONS, 0, translation.request_end(head, frame), {})
    items = translation.count_items(request["Topics"])
    return Translation(asked, respond, is_exclusive=True, kept_items=items)


def _list_offsets(
    head: RequestHead, frame: Buffer, request: Values, target: ListedVersions
) -> Translation:
    if target.has_0:
        return Translation([frame], lambda answer, budget: [answer])
    wanted = {
        (topic, one["PartitionIndex"]): one["MaxNumOffsets"]
        for topic, one in translation.partitions(request["Topics"])
    }

    def respond(answer: memoryview, budget: Budget) -> list[Buffer]:
        response = translation.read_answer(head.key, 1, answer)
        for topic, one in translation.partitions(response["Topics"]):
            one["ErrorCode"] = old_code(head.key, head.version, one["ErrorCode"])
            budget.errors += bool(one["ErrorCode"])
            is_wanted = wanted.get((topic, one["PartitionIndex"]), 0) > 0
            is_there = not one["ErrorCode"] and one["Offset"] >= 0 and is_wanted
            one["OldStyleOffsets"] = [one["Offset"]] if is_there else []
        return translation.write_response(head, response)

    asked = translation.write_request(head.key, 1, translation.request_end(head, frame), request)
    return Translation(asked, respond, kept_items=len(wanted))


def translate_offsets(head: RequestHead, frame: Buffer, coordinators: Coordinators) -> Translation:
    """Translate OffsetCommit 0 and 1 to version 2, which has no time of a commit, and OffsetFetch 0
    to version 1."""
    request = translation.read_old_request(head, frame)

    def respond(response: Values, budget: Budget) -> list[Buffer]:
        for _, one in translation.partitions(response["Topics"]):
            code = old_code(head.key, head.version, one["ErrorCode"])
            if not code and one.get("CommittedOffset") == _NOTHING_COMMITTED:
                code = UnknownTopicOrPartitionError.errno
            one["ErrorCode"] = code
            budget.errors += bool(code)
        return translation.write_response(head, response)

    if not head.version:
        return ask_coordinator(head, frame, request, respond, coordinators)
    version = TRANSLATED[head.key][1]
    return Translation(
        translation.write_request(head.key, version, translation.request_end(head, frame), request),
        lambda answer, budget: respond(translation.read_answer(head.key, version, answer), budget),
    )
