"""Which versions the gateway offers, in each layout of the response to ApiVersions."""

from __future__ import annotations

import struct

import pytest

from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._tools.gateway.access import ALL, Access
from aiokafka08._tools.gateway.api_versions import (
    CHANGES,
    is_translated,
    offered,
    unsupported_version,
)
from aiokafka08._tools.gateway.headers import read_head
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08.errors import KafkaProtocolError

pytestmark = pytest.mark.fast

PRODUCE, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, VOTE, UNKNOWN = 0, 2, 3, 8, 9, 52, 999
RANGES = {
    LIST_OFFSETS: (1, 99),
    METADATA: (0, 13),
    OFFSET_COMMIT: (2, 9),
    OFFSET_FETCH: (1, 9),
    VOTE: (0, 2),
    UNKNOWN: (0, 1),
}
WANTED = {
    LIST_OFFSETS: (0, 10),
    METADATA: (0, 13),
    OFFSET_COMMIT: (0, 9),
    OFFSET_FETCH: (0, 9),
}


def plain_frame(ranges: dict[int, tuple[int, int]], error_code: int = 0) -> bytes:
    array = b"".join(struct.pack(">hhh", key, *ends) for key, ends in ranges.items())
    return struct.pack(">ihi", 7, error_code, len(ranges)) + array


def flexible_frame(ranges: dict[int, tuple[int, int]], rest: bytes) -> bytes:
    array = b"".join(
        struct.pack(">hhh", key, *ends) + b"\x01\x09\x02hi" for key, ends in ranges.items()
    )
    return struct.pack(">ihb", 7, 0, len(ranges) + 1) + array + rest


def plain_ranges(frame: bytes) -> dict[int, tuple[int, int]]:
    (count,) = struct.unpack_from(">i", frame, 6)
    found = struct.iter_unpack(">hhh", frame[10 : 10 + 6 * count])
    return {key: (first, last) for key, first, last in found}


def test_target_ranges_are_cut_to_what_is_known_and_grow_by_what_is_translated() -> None:
    frame = b"".join(offered(0, memoryview(plain_frame(RANGES)), ALL.versions))
    assert frame[:6] == plain_frame({})[:6]
    assert plain_ranges(frame) == WANTED


def test_versions_between_are_those_that_the_gateway_accepts() -> None:
    for key, (first, last) in WANTED.items():
        accepted = ALL.versions(apis()[key])
        assert all(
            version in accepted or is_translated(key, version) for version in range(first, last + 1)
        )
        assert last + 5 not in accepted


def test_all_requests_that_change_the_cluster_are_known_by_name() -> None:
    assert {api.name for api in apis().values()} >= CHANGES


def test_flexible_response_keeps_what_follows_the_ranges() -> None:
    rest = b"\0\0\0\x05" + b"\x02\x00\x01a\x01\x02bc"
    frame = b"".join(offered(3, memoryview(flexible_frame(RANGES, rest)), ALL.versions))
    assert frame.endswith(rest)
    wanted = b"".join(struct.pack(">hhh", key, *ends) + b"\0" for key, ends in WANTED.items())
    assert frame[7 : -len(rest)] == wanted
    assert frame[6] == len(WANTED) + 1


def test_answer_that_the_version_is_unknown_is_read_in_version_0() -> None:
    """A target that doesn't know version 3 answers so, whatever version the request had."""
    frame = b"".join(offered(3, memoryview(plain_frame({18: (0, 2)}, error_code=35)), ALL.versions))
    assert plain_ranges(frame) == {18: (0, 2)}


def test_old_versions_are_not_offered_without_the_version_that_they_become() -> None:
    frame = b"".join(offered(0, memoryview(plain_frame({OFFSET_COMMIT: (5, 9)})), ALL.versions))
    assert plain_ranges(frame) == {OFFSET_COMMIT: (5, 9)}


def test_versions_that_the_target_translates_itself_are_offered_once() -> None:
    """3.9 takes all versions: the gateway translates the old ones all the same."""
    frame = b"".join(
        offered(0, memoryview(plain_frame({OFFSET_COMMIT: (0, 9), PRODUCE: (0, 2)})), ALL.versions)
    )
    assert plain_ranges(frame) == {OFFSET_COMMIT: (0, 9)}


def test_unknown_version_is_answered_with_error_35_in_version_0() -> None:
    frame = b"".join(unsupported_version(read_head(struct.pack(">hhih", 18, 99, 7, -1))))
    assert frame == plain_frame({18: (0, 4)}, error_code=35)


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x07",
        b"\0\0\0\x07\0\0\x7f\xff\xff\xff",
        b"\0\0\0\x07\0\0\xff\xff\xff\xff",
        plain_frame(RANGES)[:-3],
    ],
)
@pytest.mark.parametrize("version", [0, 3])
def test_damaged_response_is_refused(version: int, frame: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match=r"ApiVersionsResponse|varint|tagged"):
        offered(version, memoryview(frame), ALL.versions)


def ranges_of(access: Access, ranges: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    return plain_ranges(b"".join(offered(0, memoryview(plain_frame(ranges)), access.versions)))


def test_requests_that_change_the_cluster_are_offered_since_they_get_an_answer() -> None:
    alter_folders = 34  # the only one without an answer
    assert ranges_of(ALL, {19: (2, 7), 20: (1, 6), alter_folders: (1, 2)}) == {
        19: (2, 7),
        20: (1, 6),
    }


def test_limited_topics_are_offered_by_name_only() -> None:
    access = Access(NamePatterns(compile_patterns("", ["t"])))
    consumer_heartbeat, share_fetch = 68, 78
    ranges = {PRODUCE: (3, 13), 1: (4, 18), METADATA: (0, 13), OFFSET_COMMIT: (2, 10)}
    found = ranges_of(access, {**ranges, consumer_heartbeat: (0, 1), share_fetch: (1, 1)})
    assert found == {PRODUCE: (0, 12), 1: (0, 12), METADATA: (0, 9), OFFSET_COMMIT: (0, 9)}
