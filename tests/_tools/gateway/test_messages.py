"""Whole messages read and written, by Kafka's own definitions; and answers that all has failed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from aiokafka08._tools.gateway.answers import error_answer, has_answer, refusal_code
from aiokafka08._tools.gateway.api_versions import CHANGES, TRANSLATED
from aiokafka08._tools.gateway.layouts import Api, apis
from aiokafka08._tools.gateway.messages import Side, Values, message_of
from aiokafka08.errors import KafkaProtocolError
from tests._tools.gateway.message_writer import MessageWriter
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.jars import jar_folder
from tests.tools import message_layouts

SIDES: tuple[Side, ...] = ("request", "response")
OLD_RELEASE = "3.9.1"  # the last one whose definitions have the versions that are translated


def definitions(release: str) -> dict[str, message_layouts.Definition]:
    require_real_brokers()
    return message_layouts.definitions(jar_folder(release) / f"kafka-clients-{release}.jar")


def messages(release: str, *, old: bool) -> Iterator[tuple[Api, int, Side, MessageWriter]]:
    found = definitions(release)
    for api in apis().values():
        versions = TRANSLATED[api.key][0] if old and api.key in TRANSLATED else api.versions
        if old and api.name in ("CreateTopics", "DeleteTopics"):
            versions = range(2)
        elif old and api.key not in TRANSLATED:
            continue
        for version in versions:
            for side in SIDES:
                yield (
                    api,
                    version,
                    side,
                    MessageWriter(found[f"{api.name}{side.capitalize()}"], version),
                )


def read_body(api: Api, side: Side, version: int, body: bytes | bytearray) -> Values:
    """Return the values of a message without its header."""
    message = message_of(api, side, version)
    return message.read(b"\0" * message.has_tags + body, header_end=0)


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "old"), [(message_layouts.RELEASE, False), (OLD_RELEASE, True)]
)
def test_written_message_is_the_one_that_was_read(release: str, old: bool) -> None:
    chance = random.Random(2)
    for api, version, side, writer in messages(release, old=old):
        body = writer.write(writer.random_values(chance))
        values = read_body(api, side, version, body)
        written = b"".join(message_of(api, side, version).write(values))
        assert written == body, f"{api.name} {side} {version}"


@pytest.mark.real
def test_damaged_messages_raise_typed_errors() -> None:
    chance = random.Random(3)
    refused = 0
    for api, version, side, writer in messages(message_layouts.RELEASE, old=False):
        frame = bytearray(writer.write(writer.random_values(chance)))
        for _ in range(5):
            damaged = frame[: chance.randrange(len(frame) + 1)]
            for _ in range(chance.randrange(3)):
                if damaged:
                    damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 255))
            try:
                read_body(api, side, version, damaged)
            except KafkaProtocolError:
                refused += 1
    assert refused > 100


@pytest.mark.fast
def test_message_with_more_items_than_allowed_is_refused() -> None:
    frame = (1000).to_bytes(4, "big") + bytes(2000)
    with pytest.raises(KafkaProtocolError, match="MetadataRequest version 0: more than 999 items"):
        message_of(apis()[3], "request", 0).read(frame, header_end=0, max_items=999)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("key", "side", "version", "frame"),
    [
        (18, "response", 0, b"\0\0" + b"\xff\xff\xff\xff"),  # no array of versions
        (18, "response", 3, b"\0\0\0" + bytes(5)),
        (3, "response", 1, b"\xff\xff\xff\xff" + bytes(8)),  # no array of brokers
        (0, "request", 0, b"\0\1" + bytes(4) + b"\0\0\0\1" + b"\xff\xff"),  # a topic without name
    ],
)
def test_null_where_there_has_to_be_a_value_is_refused(
    key: int, side: Side, version: int, frame: bytes
) -> None:
    with pytest.raises(KafkaProtocolError, match="null instead of"):
        read_body(apis()[key], side, version, frame)


def codes(values: object) -> Iterator[int]:
    if isinstance(values, dict):
        for name, value in values.items():
            if name in ("ErrorCode", "PartitionErrorCode"):
                yield value
            yield from codes(value)
    elif isinstance(values, list):
        for value in values:
            yield from codes(value)


@pytest.mark.real
def test_answer_to_each_refused_request_is_a_response_with_errors() -> None:
    chance = random.Random(4)
    for api, version, side, writer in messages(message_layouts.RELEASE, old=False):
        if side == "request" and api.name in CHANGES and has_answer(api, version):
            request = read_body(api, "request", version, writer.write(writer.random_values(chance)))
            answer = error_answer(api, version, request, refusal_code(api, version), "no")
            body = b"".join(message_of(api, "response", version).write(answer))
            read = read_body(api, "response", version, body)
            found = list(codes(read))
            assert all(code in (29, 31) for code in found), f"{api.name} {version}: {read}"
            for name, items in request.items():
                if isinstance(items, list) and items and api.name != "AlterReplicaLogDirs":
                    assert found, f"{api.name} {version}: nothing for {name}"


def answer_to(key: int, version: int, request: Values, code: int = 29) -> Values:
    return error_answer(apis()[key], version, request, code, "no")


@pytest.mark.fast
def test_answer_has_the_topics_and_partitions_of_the_request() -> None:
    topic = {"Name": "t", "Partitions": [{"PartitionIndex": 3}, {"PartitionIndex": 5}]}
    (found,) = answer_to(2, 1, {"Topics": [topic]})["Topics"]
    assert found["Name"] == "t"
    assert found["Partitions"] == [
        {"PartitionIndex": number, "ErrorCode": 29, "Timestamp": -1, "Offset": -1}
        for number in (3, 5)
    ]


@pytest.mark.fast
def test_answer_has_partitions_that_are_numbers_in_the_request() -> None:
    topic = {"Name": "t", "PartitionIndexes": [0, 7]}
    (found,) = answer_to(9, 2, {"GroupId": "g", "Topics": [topic]}, 30)["Topics"]
    assert [one["PartitionIndex"] for one in found["Partitions"]] == [0, 7]
    assert {one["ErrorCode"] for one in found["Partitions"]} == {30}


@pytest.mark.fast
def test_answer_has_resources_with_the_code_of_their_kind() -> None:
    resources = [
        {"ResourceType": 2, "ResourceName": "t", "Configs": []},
        {"ResourceType": 4, "ResourceName": "1", "Configs": []},
    ]
    found = answer_to(33, 1, {"Resources": resources}, 31)["Responses"]
    assert [(one["ResourceName"], one["ErrorCode"]) for one in found] == [("t", 29), ("1", 31)]


@pytest.mark.fast
@pytest.mark.parametrize(("key", "version", "code"), [(0, 0, 3), (0, 3, 29), (3, 0, 3), (3, 1, 29)])
def test_code_is_one_that_clients_of_the_version_know(key: int, version: int, code: int) -> None:
    topic = {"Name": "t", "PartitionData": [{"Index": 0}]}
    answer = answer_to(key, version, {"TopicData": [topic], "Topics": [topic]})
    assert set(codes(answer)) == {code}
