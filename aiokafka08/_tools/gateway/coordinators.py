"""OffsetCommit 0 and OffsetFetch 0 at any broker: send them to the coordinator of the group.

Brokers of 0.8 keep these offsets in ZooKeeper, and each takes such requests, so clients don't look
for the coordinator. The gateway asks the coordinator if it knows it, else the client's own broker.
If that isn't the coordinator, it asks the client's broker which one is, and remembers the answer.

Invariants:

- A client gets error 14, 15 or 16 only if no broker worked as the coordinator within `_TRIES`.
- No name of more than `_NAME_CHARACTERS` is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiokafka08 import errors
from aiokafka08._core.concurrency.remembered import Remembered
from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway import translation
from aiokafka08._tools.gateway.answers import error_answer
from aiokafka08._tools.gateway.api_versions import TRANSLATED
from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.messages import Values
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.types import Buffer

_NOT_YET: Final = errors.GroupCoordinatorNotAvailableError.errno
ELSEWHERE: Final = frozenset({
    _NOT_YET, errors.GroupLoadInProgressError.errno, errors.NotCoordinatorForGroupError.errno
})  # fmt: skip
"""Codes after which another coordinator is looked up. A broker may already be named as the
coordinator before it has read the groups: then it answers with one of these, too."""

_NAME_CHARACTERS: Final = 255  # a longer one is looked up each time
_TRIES: Final = 20
_RETRY_S: Final = 0.25
"""The pause between two look-ups. A target without the topic of offsets creates it at the first
look-up, which takes a moment."""


class Coordinators(Remembered[str, Address]):
    """The coordinators that were found, by group; shared by all connections of a gateway."""

    def note(self, key: str, value: Address) -> None:
        """Note where the coordinator of a group is."""
        if len(key) <= _NAME_CHARACTERS:
            super().note(key, value)


Respond = Callable[[Values, Budget], list[Buffer]]
"""Makes the client's response from the values of the target's."""


def ask_coordinator(
    head: RequestHead, frame: Buffer, request: Values, respond: Respond, known: Coordinators
) -> Translation:
    """Return the steps of a request; a broker that can't be reached ends the connection.

    Args:
        head: the header of the client's request.
        frame: its frame.
        request: its values.
        respond: see `Respond`.
        known: the known coordinators.
    """
    group, header_end = request["GroupId"], translation.request_end(head, frame)
    version = TRANSLATED[head.key][1]
    asked = translation.write_request(head.key, version, header_end, request)
    items = translation.count_items(request["Topics"])

    def ask(broker: Address | None, tries: int, after_s: float) -> Translation:
        def answered(answer: memoryview, budget: Budget) -> list[Buffer] | Translation:
            response = translation.read_answer(head.key, version, answer)
            codes = {one["ErrorCode"] for _, one in translation.partitions(response["Topics"])}
            if not codes & ELSEWHERE:
                return respond(response, budget)
            known.forget(group)
            return look_up(tries, after_s) if tries else respond(response, budget)

        return Translation(asked, answered, is_exclusive=True, broker=broker, kept_items=items)

    def look_up(tries: int, after_s: float) -> Translation:
        def answered(answer: memoryview, budget: Budget) -> list[Buffer] | Translation:
            found = translation.read_answer(ApiKey.GROUP_COORDINATOR, 0, answer)
            code, broker = found["ErrorCode"], (found["Host"], found["Port"])
            if code == _NOT_YET and tries > 1:
                return look_up(tries - 1, _RETRY_S)
            if code:
                budget.errors += 1
                failed = error_answer(apis()[head.key], head.version, request, code, "")
                return translation.write_response(head, failed)
            known.note(group, broker)
            return ask(broker, tries - 1, _RETRY_S)

        asked = translation.write_request(ApiKey.GROUP_COORDINATOR, 0, header_end, {"Key": group})
        return Translation(asked, answered, after_s=after_s)

    return ask(known.get(group), _TRIES, after_s=0.0)
