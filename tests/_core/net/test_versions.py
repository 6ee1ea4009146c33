"""`versions`: the sequence of probes, and what each response means.

`detect_version()` is pure: a table of scripted brokers drives it. The scripts follow what real
brokers do (docs/brokers.md §2).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from aiokafka08._core.net.versions import LINE_APIS, BrokerLine, BrokerVersion, detect_version
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import ApiKey, Request, Response, Topic, encode_response
from aiokafka08.protocol.requests.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    VersionRange,
)
from aiokafka08.protocol.requests.committed_offsets import (
    CommittedPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from aiokafka08.protocol.requests.fetch import FetchRequest, FetchResponse
from aiokafka08.protocol.requests.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    GroupCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from aiokafka08.protocol.requests.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.registry import APIS

Reply = memoryview | None
CLOSES: Reply = None


def frame(response: Response, layout: int = 0) -> memoryview:
    return memoryview(b"".join(encode_response(response, layout, 1))[4:])


def cluster(layout: int, brokers: int = 3, controller_id: int = 1) -> memoryview:
    topics = [TopicState(0, "t", False, [PartitionState(0, 0, 1, [1, 2], [1])])]
    return frame(
        MetadataResponse(
            [Broker(i, f"kafka{i}", 9092) for i in range(brokers)],
            controller_id if layout else -1,
            topics if layout == 0 else [],
        ),
        layout,
    )


def api_versions(ranges: Mapping[int, tuple[int, int]]) -> memoryview:
    return frame(ApiVersionsResponse(0, [VersionRange(key, *r) for key, r in ranges.items()]))


# As brokers.md 10.1 gives them.
OF_0_10_2 = {0: (0, 2), 1: (0, 3), 2: (0, 1), 3: (0, 2), 8: (0, 2), 9: (0, 2), 10: (0, 0),
             11: (0, 1), 12: (0, 0), 13: (0, 0), 14: (0, 0), 15: (0, 0), 16: (0, 0), 17: (0, 0),
             18: (0, 0), 19: (0, 1), 20: (0, 1)}  # fmt: skip
OF_3_9 = {0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 8: (0, 9), 9: (0, 9), 10: (0, 6),
          11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 5), 17: (0, 1),
          18: (0, 4), 36: (0, 2), 42: (0, 2), 60: (0, 1)}  # fmt: skip
OF_4_1 = {0: (0, 13), 1: (4, 18), 2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 18: (0, 4)}

OFFSETS = frame(ListOffsetsResponse([]))
FETCHED = frame(FetchResponse(0, []))
FETCHED_1 = frame(FetchResponse(0, []), 1)
NO_TOPIC = frame(MetadataResponse([], -1, []))


def committed(code: int) -> memoryview:
    return frame(OffsetFetchResponse([Topic("t", [CommittedPartition(0, -1, "", code)])]), 1)


Broker_ = dict[type[Request[Any]], Reply]

B_0_8_0: Broker_ = {
    ListOffsetsRequest: OFFSETS, FetchRequest: FETCHED, OffsetFetchRequest: CLOSES,
    MetadataRequest: cluster(0), ApiVersionsRequest: CLOSES,
}  # fmt: skip
B_0_8_1: Broker_ = B_0_8_0 | {OffsetFetchRequest: committed(3)}
B_0_8_2: Broker_ = B_0_8_0 | {OffsetFetchRequest: committed(16)}
B_0_9: Broker_ = B_0_8_2 | {FetchRequest: FETCHED_1}
B_0_10: Broker_ = B_0_9 | {
    MetadataRequest: cluster(1),
    ApiVersionsRequest: api_versions(OF_0_10_2),
}
B_3_9: Broker_ = B_0_10 | {ApiVersionsRequest: api_versions(OF_3_9)}
B_4_1: Broker_ = {
    ListOffsetsRequest: CLOSES,
    OffsetFetchRequest: CLOSES,
    ApiVersionsRequest: api_versions(OF_4_1),
}


class Asked(list[tuple[str, bool]]):
    """The questions: the request's name, and whether on a fresh connection."""


def ask(
    broker: Broker_,
    asked: Asked | None = None,
    spoil: Mapping[int, Reply] = MappingProxyType({}),
    *,
    exact: bool = True,
) -> BrokerVersion:
    """Run `detect_version()` on a scripted broker; `spoil` replaces the n-th responses, from 1."""
    asked = Asked() if asked is None else asked
    steps = detect_version(exact)
    probe = next(steps)
    was_closed = True  # there is no connection yet
    try:
        while True:
            name = type(probe.request).__name__.removesuffix("Request")
            asked.append((name, probe.fresh))
            assert len(asked) < 20, "it asks without end"
            assert probe.fresh or not was_closed or len(asked) == 1, "asked on a closed connection"
            reply = spoil.get(len(asked), broker[type(probe.request)])
            was_closed = reply is None
            probe = steps.send(reply)
    except StopIteration as found:
        version: BrokerVersion = found.value
        return version


def names(asked: Asked) -> list[str]:
    return [name for name, _ in asked]


@pytest.mark.parametrize(
    ("broker", "line"),
    [
        (B_0_8_0, BrokerLine.V0_8_0),
        (B_0_8_1, BrokerLine.V0_8_1),
        (B_0_8_2, BrokerLine.V0_8_2),
        (B_0_9, BrokerLine.V0_9),
        (B_0_10, BrokerLine.V0_10),
        (B_3_9, BrokerLine.V0_10),
    ],
    ids=["0.8.0", "0.8.1", "0.8.2", "0.9", "0.10", "3.9"],
)
def test_each_line_is_detected(broker: Broker_, line: BrokerLine) -> None:
    assert ask(broker).line is line


@pytest.mark.parametrize("code", [-1, 0, 14, 15, 16])
def test_offset_fetch_code_other_than_3_means_0_8_2(code: int) -> None:
    assert ask(B_0_8_0 | {OffsetFetchRequest: committed(code)}).line is BrokerLine.V0_8_2


@pytest.mark.parametrize(
    "first",
    [
        committed(3),
        frame(
            OffsetFetchResponse(
                [
                    Topic("deleted", [CommittedPartition(0, -1, "", 3)]),
                    Topic("t", [CommittedPartition(0, -1, "", 0)]),
                ]
            ),
            1,
        ),
    ],
    ids=["alone", "among others"],
)
def test_0_8_2_is_detected_while_a_topic_is_deleted(first: memoryview) -> None:
    asked = Asked()
    assert ask(B_0_8_2, asked, {4: first}).line is BrokerLine.V0_8_2
    assert names(asked)[2:4] == ["Metadata", "OffsetFetch"]


@pytest.mark.parametrize("broker", [B_0_8_0, B_0_8_1, B_0_8_2], ids=["0.8.0", "0.8.1", "0.8.2"])
def test_0_8_is_asked_for_its_exact_line_only_if_needed(broker: Broker_) -> None:
    asked = Asked()
    version = ask(broker, asked, exact=False)
    assert names(asked) == ["ListOffsets", "Fetch"]
    assert version == BrokerVersion.of(BrokerLine.V0_8)
    assert not version.is_exact


@pytest.mark.parametrize(
    ("answer", "line"), [(frame(OffsetFetchResponse([])), "0.8"), (CLOSES, "0.8.0")]
)
def test_without_a_topic_only_0_8_0_is_exact(answer: Reply, line: str) -> None:
    asked = Asked()
    broker = B_0_8_0 | {MetadataRequest: NO_TOPIC, OffsetFetchRequest: answer}
    assert str(ask(broker, asked).line) == line
    assert names(asked)[:4] == ["ListOffsets", "Fetch", "Metadata", "OffsetFetch"]


def test_requests_that_0_9_ignores_are_sent_after_it_only() -> None:
    # After an ApiVersions probe, a 0.9.0.1 broker loses responses on other connections (2.2).
    asked = Asked()
    ask(B_0_9, asked)
    assert names(asked) == ["ListOffsets", "Fetch", "Metadata"]
    asked = Asked()
    ask(B_0_10, asked)
    assert names(asked)[-2:] == ["Metadata", "ApiVersions"]


@pytest.mark.parametrize("broker", [B_0_8_2, B_0_9], ids=["0.8.2", "0.9"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_one_lost_connection_does_not_lead_to_api_versions(broker: Broker_, nth: int) -> None:
    asked = Asked()
    assert ask(broker, asked, {nth: CLOSES}).line is ask(broker).line
    assert "ApiVersions" not in names(asked)


@pytest.mark.parametrize(
    ("broker", "line"),
    [
        (B_0_8_2, BrokerLine.V0_8_2),
        (B_0_9, BrokerLine.V0_9),
        (B_0_10, BrokerLine.V0_10),
        (B_3_9, BrokerLine.V0_10),
    ],
    ids=["0.8.2", "0.9", "0.10", "3.9"],
)
def test_one_lost_connection_does_not_detect_an_older_line(
    broker: Broker_, line: BrokerLine
) -> None:
    # A proxy or a dying broker may close at any step; "closes on OffsetFetch" must not be heard
    # in that: an 0.8.2 broker taken for 0.8.0 would refuse all commits.
    for nth in range(1, 8):
        assert ask(broker, spoil={nth: CLOSES}).line is line


def test_a_broker_that_dies_during_probes_is_a_lost_one() -> None:
    for nth in range(2, 5):
        with pytest.raises(KafkaConnectionError):
            ask(B_3_9, spoil=dict.fromkeys(range(nth, 20), CLOSES))


def test_a_4_x_broker_is_refused_with_a_hint() -> None:
    asked = Asked()
    with pytest.raises(
        UnsupportedVersionError, match=r"Fetch from version 4 on: it is a 4\.x.*0\.8\.0 to"
    ):
        ask(B_4_1, asked)
    assert ("ApiVersions", True) in asked


def test_a_broker_without_fetch_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="no Fetch"):
        ask(B_4_1 | {ApiVersionsRequest: api_versions({18: (0, 3)})})


def test_a_peer_that_always_closes_is_no_kafka_broker() -> None:
    closes_always: Broker_ = dict.fromkeys(APIS.values(), CLOSES)
    with pytest.raises(KafkaProtocolError, match="not a Kafka broker"):
        ask(closes_always)


def test_api_versions_gives_what_both_sides_support() -> None:
    version = ask(B_0_10)
    assert version.highest(ProduceRequest) == 2
    assert version.highest(FetchRequest) == 2  # the broker's 3 isn't ours
    assert version.highest(ListOffsetsRequest) == 1
    assert version.highest(MetadataRequest) == 2
    assert version.highest(OffsetCommitRequest) == 2
    assert version.highest(OffsetFetchRequest) == 2
    assert version.highest(JoinGroupRequest) == 0
    later = {ApiKey.DELETE_GROUPS, ApiKey.SASL_AUTHENTICATE}
    assert set(version.apis) == set(LINE_APIS[BrokerLine.V0_10]) - later
    assert ask(B_3_9).apis == LINE_APIS[BrokerLine.V0_10]


@pytest.mark.parametrize(
    ("broker", "release"),
    [
        (B_0_8_0, "0.8.0"),
        (B_0_9, "0.9"),
        (B_0_10, "0.10.2"),
        (B_0_10 | {ApiVersionsRequest: api_versions(OF_0_10_2 | {9: (0, 1)})}, "0.10.1"),
        (B_0_10 | {ApiVersionsRequest: api_versions({1: (0, 2), 2: (0, 0)})}, "0.10.0"),
        (B_0_10 | {ApiVersionsRequest: api_versions({1: (0, 11), 2: (0, 5)})}, "2.3"),
        (B_3_9, "3.9"),
    ],
)
def test_release_is_what_the_responses_show(broker: Broker_, release: str) -> None:
    version = ask(broker)
    assert version.release == release
    assert version == BrokerVersion(version.line, version.apis)  # for texts only


def test_versions_of_the_broker_alone_are_left_out() -> None:
    version = ask(B_0_10 | {ApiVersionsRequest: api_versions(OF_0_10_2 | {3: (3, 9), 9: (1, 9)})})
    assert not version.supports(MetadataRequest, 0)
    assert not version.supports(MetadataRequest, 1)
    with pytest.raises(UnsupportedVersionError, match="MetadataRequest"):
        version.highest(MetadataRequest)
    assert not version.supports(OffsetFetchRequest, 0)
    assert version.highest(OffsetFetchRequest) == 2


@pytest.mark.parametrize("brokers", [0, 1, 2, 50])
@pytest.mark.parametrize("controller_id", [-1, 0, 1, 1001, 2**31 - 1])
def test_the_two_metadata_layouts_are_never_confused(brokers: int, controller_id: int) -> None:
    assert ask(B_0_9 | {MetadataRequest: cluster(0, brokers)}).line is BrokerLine.V0_9
    modern = B_0_10 | {MetadataRequest: cluster(1, brokers, controller_id)}
    assert ask(modern).line is BrokerLine.V0_10


@pytest.mark.parametrize("rack", [None, "", "r", "rack-1", "\0\0", "\0" * 64])
def test_racks_do_not_make_0_10_look_like_0_9(rack: str | None) -> None:
    brokers = [Broker(i, "kafka", 9092, rack) for i in range(3)]
    answer = frame(MetadataResponse(brokers, 0, []), 1)
    assert ask(B_0_10 | {MetadataRequest: answer}).line is BrokerLine.V0_10


def test_metadata_in_no_known_layout_is_an_error() -> None:
    with pytest.raises(UnrecognizedBrokerVersion, match="Metadata"):
        ask(B_0_9 | {MetadataRequest: memoryview(bytes(4) + b"\0\0\0\1nonsense")})


@pytest.mark.parametrize("request_type", [ListOffsetsRequest, FetchRequest])
@pytest.mark.parametrize("answer", [b"", b"\0\0\0\7", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_response_to_another_request_is_a_protocol_error(
    request_type: type[Request[Any]], answer: bytes
) -> None:
    with pytest.raises(KafkaProtocolError):
        ask(B_0_9 | {request_type: memoryview(bytes(4) + answer)})


def test_garbage_ends_in_a_typed_error_or_a_line() -> None:
    for nth in range(1, 6):
        for garbage in (b"", b"\0" * 4, b"\xff" * 40, b"\0" * 400, bytes(range(256))):
            try:
                ask(B_0_10, spoil={nth: memoryview(garbage)})
            except KafkaError:
                pass


# --- BrokerVersion ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api_version", "line"),
    [
        ((0, 8), BrokerLine.V0_8_0),
        ((0, 8, 0), BrokerLine.V0_8_0),
        ((0, 8, 1), BrokerLine.V0_8_1),
        ((0, 8, 1, 1), BrokerLine.V0_8_1),
        ("0.8.2", BrokerLine.V0_8_2),
        ("0.8.2.2", BrokerLine.V0_8_2),
        ((0, 8, 9), BrokerLine.V0_8_2),
        ("0.9", BrokerLine.V0_9),
        ((0, 9, 0, 1), BrokerLine.V0_9),
        ((0, 10, 2), BrokerLine.V0_10),
        ("0.11.0", BrokerLine.V0_10),
        ((1, 0), BrokerLine.V0_10),
        ("2.8.1", BrokerLine.V0_10),
        ("3.9.1", BrokerLine.V0_10),
        ((3,), BrokerLine.V0_10),
    ],
)
def test_api_version_pins_the_line(api_version: str | tuple[int, ...], line: BrokerLine) -> None:
    version = BrokerVersion.pinned(api_version)
    assert version is not None
    assert version.line is line
    if line is not BrokerLine.V0_10:
        assert version == BrokerVersion.of(line)


@pytest.mark.parametrize(
    ("api_version", "list_offsets", "offset_fetch", "deletes_groups"),
    [
        ("0.10", 0, 1, False),
        ((0, 10, 0), 0, 1, False),
        ("0.10.0.1", 0, 1, False),
        ("0.10.1", 1, 1, False),
        ((0, 10, 2), 1, 2, False),
        ("1.0", 1, 2, False),
        ("1.1", 1, 2, True),
        ("3.9.1", 1, 2, True),
    ],
)
def test_releases_since_0_10_0_know_more_versions(
    api_version: str | tuple[int, ...], list_offsets: int, offset_fetch: int, deletes_groups: bool
) -> None:
    version = BrokerVersion.pinned(api_version)
    assert version is not None
    assert version.highest(ListOffsetsRequest) == list_offsets
    assert version.highest(OffsetFetchRequest) == offset_fetch
    assert version.supports(DeleteGroupsRequest) is deletes_groups


def test_auto_and_none_pin_nothing() -> None:
    assert BrokerVersion.pinned("auto") is None
    assert BrokerVersion.pinned(None) is None


@pytest.mark.parametrize("api_version", ["4.0", (4,), (4, 1, 0), "5"])
def test_4_x_cannot_be_pinned(api_version: str | tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"4\.0"):
        BrokerVersion.pinned(api_version)


@pytest.mark.parametrize(
    "api_version",
    ["", "0.8.x", "latest", "0.7", (0, 7, 2), (), (0,), ("0", "8"), 8, 0.9, [0, 8, 2], (0, 8.2),
     (-1, 9), "٠.٩", True, (True, 9)],
)  # fmt: skip
def test_a_wrong_api_version_lists_the_expected_ones(api_version: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"'auto' or a version from 0\.8\.0 to 3\.9"):
        BrokerVersion.pinned(api_version)


def test_each_line_supports_what_real_brokers_respond_to() -> None:
    speaks = {line: {r for r in APIS.values() if r.api in LINE_APIS[line]} for line in BrokerLine}
    assert OffsetFetchRequest not in speaks[BrokerLine.V0_8_0]
    assert GroupCoordinatorRequest not in speaks[BrokerLine.V0_8_1]
    assert JoinGroupRequest not in speaks[BrokerLine.V0_8_2]
    assert HeartbeatRequest not in speaks[BrokerLine.V0_8_2]  # it responds, but doesn't support it
    assert DescribeGroupsRequest in speaks[BrokerLine.V0_9]
    assert ApiVersionsRequest not in speaks[BrokerLine.V0_9]
    only_embedded = {ApiKey.SASL_HANDSHAKE, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS}
    assert {one.api for one in {*APIS.values()} - speaks[BrokerLine.V0_10]} <= only_embedded
    for line in BrokerLine:
        for key, versions in LINE_APIS[line].items():
            assert set(versions) <= set(APIS[key].versions)
            assert versions.start == 0


def test_a_newer_line_supports_all_of_an_older_one() -> None:
    for older, newer in zip(list(BrokerLine), list(BrokerLine)[1:], strict=False):
        for key, versions in LINE_APIS[older].items():
            assert set(versions) <= set(LINE_APIS[newer][key])


def test_a_missing_api_is_named_with_the_line() -> None:
    version = BrokerVersion.of(BrokerLine.V0_8_1)
    with pytest.raises(UnsupportedVersionError, match=r"0\.8\.1 line.*GroupCoordinatorRequest"):
        version.highest(GroupCoordinatorRequest)
    assert not version.supports(GroupCoordinatorRequest)


def test_the_message_format_to_write() -> None:
    assert [BrokerVersion.of(line).magic for line in BrokerLine] == [0, 0, 0, 0, 0, 1]


def test_str_of_a_line_is_its_number() -> None:
    assert [str(line) for line in BrokerLine] == ["0.8", "0.8.0", "0.8.1", "0.8.2", "0.9", "0.10"]
    assert (
        BrokerLine.V0_8 < BrokerLine.V0_8_0 < BrokerLine.V0_8_2 < BrokerLine.V0_9 < BrokerLine.V0_10
    )


def test_inter_broker_apis_are_never_used() -> None:
    for line in BrokerLine:
        assert not {4, 5, 6, 7} & set(map(int, LINE_APIS[line]))
        assert ApiKey.PRODUCE in LINE_APIS[line]
