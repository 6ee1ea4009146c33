"""ListOffsets 0 at a target that takes it, and at one that doesn't."""

from __future__ import annotations

import struct

import pytest

from aiokafka08._tools.gateway.headers import read_head
from aiokafka08._tools.gateway.old_offsets import ListedVersions, translate_list_offsets
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.protocol.api import Topic, decode_response, encode_request, encode_response
from aiokafka08.protocol.requests.list_offsets import (
    LATEST,
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

pytestmark = pytest.mark.fast


def ranges(first: int) -> memoryview:
    return memoryview(struct.pack(">ihi3h3h", 7, 0, 2, 1, 0, 4, 2, first, 9))


def frame(count: int) -> memoryview:
    wanted = [ListOffsetsPartition(number, LATEST, count) for number in range(3)]
    request = ListOffsetsRequest(-1, [Topic("t", wanted)])
    return memoryview(b"".join(encode_request(request, 0, 7, "me")[1:]))


def translated(target: ListedVersions, count: int = 5) -> Translation:
    asked = frame(count)
    return translate_list_offsets(read_head(asked), asked, target)


def asked(step: Translation | list[object]) -> bytes:
    assert isinstance(step, Translation)
    assert step.request is not None
    return b"".join(step.request)


def test_target_is_asked_for_its_versions_once() -> None:
    target = ListedVersions()
    first = translated(target)
    assert asked(first) == b"\0\x12\0\0" + frame(1)[4:12]
    assert first.is_exclusive
    second = first.respond(ranges(0), Budget())
    assert asked(second) == frame(5)  # type: ignore[arg-type]
    again = translated(target)
    assert asked(again) == frame(5)
    assert not again.is_exclusive
    assert again.respond(memoryview(b"answer"), Budget()) == [b"answer"]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_target_without_version_0_gets_version_1(count: int) -> None:
    step = translated(ListedVersions(), count).respond(ranges(1), Budget())
    assert isinstance(step, Translation)
    assert asked(step)[:4] == b"\0\2\0\1"
    results = [ListedOffsets(0, 0, offset=9), ListedOffsets(1, 74), ListedOffsets(2, 0, offset=-1)]
    response = ListOffsetsResponse([Topic("t", results)])
    made = step.respond(memoryview(b"".join(encode_response(response, 1, 7)[1:])), Budget())
    assert isinstance(made, list)
    found = decode_response(ListOffsetsRequest, 0, b"".join(made)).topics[0].partitions
    assert [(one.error_code, one.offsets) for one in found] == [
        (0, [9] if count else []),
        (6, []),
        (0, []),
    ]
