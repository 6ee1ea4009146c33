"""The description of messages: that it is Kafka's own, and what is found and replaced by it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from aiokafka08._tools.gateway import addresses
from aiokafka08._tools.gateway.addresses import AddressOf, has_addresses, read_addresses
from aiokafka08._tools.gateway.layouts import Api, TakesLongError, apis
from aiokafka08._tools.gateway.messages import message_of
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer
from tests._tools.gateway.message_writer import MessageWriter, Values
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.jars import jar_folder
from tests.tools import message_layouts

NEW_HOST = "gateway.example.org"
ROLES = frozenset(
    {"topic", "topic id", "group", "transactional id", "replica", "acks", "coordinator key"}
)
ENTITIES = {"topicName": "topic", "groupId": "group", "transactionalId": "transactional id"}
"""How Kafka's definitions name the roles."""


def with_addresses() -> Iterator[tuple[Api, int]]:
    for api in apis().values():
        for version in api.versions:
            if has_addresses(api, version):
                yield api, version


@pytest.fixture(scope="module")
def definitions() -> dict[str, message_layouts.Definition]:
    """Kafka's own definitions, from the jar that brokers of the tests run with."""
    require_real_brokers()
    release = message_layouts.RELEASE
    return message_layouts.definitions(jar_folder(release) / f"kafka-clients-{release}.jar")


@pytest.fixture
def writers(
    definitions: dict[str, message_layouts.Definition],
) -> Iterator[tuple[Api, int, MessageWriter]]:
    return (
        (api, version, MessageWriter(definitions[f"{api.name}Response"], version))
        for api, version in with_addresses()
    )


def replace_addresses(
    api: Api, version: int, frame: memoryview, address_of: AddressOf
) -> list[Buffer]:
    values = read_addresses(api, version, frame)
    if values is None:
        return [frame]
    return addresses.replace_addresses(api, version, frame, values, address_of)


def header(api: Api, version: int) -> bytes:
    return b"\0\0\0\x07" + (b"\x01\x05\x02hi" if version >= api.flexible else b"")


def new_port(node_id: int) -> int:
    return 10000 + node_id


def with_new_addresses(struct: Values, around: list[Values]) -> Values:
    if not {"Host", "Port"} <= struct.keys():
        return struct
    structs = [struct, *reversed(around)]
    node = next(one[name] for one in structs for name in ("NodeId", "BrokerId") if name in one)
    return struct | {"Host": NEW_HOST.encode(), "Port": new_port(node)}


@pytest.mark.real
def test_description_is_that_of_kafkas_definitions() -> None:
    require_real_brokers()
    made = message_layouts.written(message_layouts.described())
    assert made == message_layouts.TARGET.read_text(), "run python -m tests.tools.message_layouts"


@pytest.mark.fast
def test_addresses_are_known_in_all_apis_that_have_them() -> None:
    found: dict[str, list[int]] = {}
    for api, version in with_addresses():
        found.setdefault(api.name, []).append(version)
    assert found == {
        "Produce": [10, 11, 12, 13],
        "Fetch": [16, 17, 18],
        "Metadata": list(range(14)),
        "FindCoordinator": list(range(7)),
        "DescribeQuorum": [2],
        "DescribeCluster": [0, 1, 2],
        "ShareFetch": [1],
        "ShareAcknowledge": [1],
    }


@pytest.mark.fast
def test_apis_between_brokers_have_versions_if_brokers_answer_them() -> None:
    inner = {api.name: len(api.versions) for api in apis().values() if api.is_between_brokers}
    assert {name for name, count in inner.items() if count} == message_layouts.BETWEEN_BROKERS
    assert inner.keys() >= {"LeaderAndIsr", "Vote", "BeginQuorumEpoch", "FetchSnapshot"}
    assert not inner.keys() & {"Produce", "AddRaftVoter", "DescribeQuorum", "ShareFetch"}


@pytest.mark.real
@pytest.mark.parametrize("seed", range(3))
def test_only_addresses_are_replaced(
    seed: int, writers: Iterator[tuple[Api, int, MessageWriter]]
) -> None:
    """The bytes are those of the message with other addresses, in each API and version."""
    chance = random.Random(seed)
    for api, version, writer in writers:
        values = writer.random_values(chance)
        seen: list[tuple[int, str, int]] = []

        def address_of(node: int, host: str, port: int) -> tuple[str, int]:
            seen.append((node, host, port))  # noqa: B023
            return NEW_HOST, new_port(node)

        frame = header(api, version) + writer.write(values)
        buffers = replace_addresses(api, version, memoryview(frame), address_of)
        wanted = header(api, version) + writer.write(writer.changed(values, with_new_addresses))
        assert b"".join(buffers) == wanted, f"{api.name} version {version}"
        if b"Host" in repr(values).encode():
            assert seen


@pytest.mark.real
def test_each_request_is_walked_to_its_roles(
    definitions: dict[str, message_layouts.Definition],
) -> None:
    """A wrong layout would find the end of the frame, or roles at wrong places."""
    chance = random.Random(1)
    for api in apis().values():
        for version in api.versions:
            writer = MessageWriter(definitions[f"{api.name}Request"], version)
            values = writer.random_values(chance)
            frame = writer.write(values)
            message = message_of(api, "request", version, ROLES)
            read = message.read(b"\0" * message.has_tags + frame, header_end=0)
            found = [text.encode() for _, text in message.struct.find(read, ENTITIES.values())]
            wanted = writer.strings(values, set(ENTITIES))
            assert sorted(found) == sorted(wanted), f"{api.name} version {version}"


@pytest.mark.real
def test_damaged_responses_raise_typed_errors(
    writers: Iterator[tuple[Api, int, MessageWriter]],
) -> None:
    """Cut off, or with a changed byte, which may be a length."""
    chance = random.Random(5)
    refused = 0
    for api, version, writer in writers:
        frame = header(api, version) + writer.write(writer.random_values(chance))
        for _ in range(30):
            damaged = bytearray(frame[: chance.randrange(len(frame) + 1)])
            for _ in range(chance.randrange(3)):
                if damaged:
                    damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 255))
            try:
                replace_addresses(
                    api, version, memoryview(damaged), lambda node, host, port: (host, 1)
                )
            except KafkaProtocolError:
                refused += 1
    assert refused > 100


@pytest.mark.fast
def test_length_beyond_the_frame_is_refused_before_it_is_used() -> None:
    """A count of 2³¹ - 1 brokers in a response of 12 bytes."""
    frame = b"\0\0\0\x07" + b"\x7f\xff\xff\xff" + bytes(4)
    with pytest.raises(KafkaProtocolError, match=r"MetadataResponse version 0: a length of 21474"):
        replace_addresses(apis()[3], 0, memoryview(frame), lambda node, host, port: (host, port))


@pytest.mark.fast
def test_response_with_too_many_nodes_is_refused() -> None:
    """Before their places take much more memory than the frame."""
    count = 50_000
    frame = b"\0\0\0\x07" + count.to_bytes(4, "big") + bytes(10) * count
    with pytest.raises(KafkaProtocolError, match="more than 10000 items"):
        read_addresses(apis()[3], 0, memoryview(frame))


@pytest.mark.fast
def test_address_of_no_node_remains() -> None:
    """FindCoordinator answers with node -1 if there is no coordinator."""
    frame = b"\0\0\0\x07" + b"\0\x0f" + b"\xff\xff\xff\xff" + b"\0\0" + b"\xff\xff\xff\xff"
    buffers = replace_addresses(apis()[10], 0, memoryview(frame), lambda *_: ("never", 1))
    assert b"".join(buffers) == frame


@pytest.mark.parametrize("few", [True, False])
def test_addresses_behind_few_items_are_read_quickly(few: bool) -> None:
    """Also behind much data. Behind many items that takes long."""
    api = apis()[1]
    message = message_of(api, "response", 16)
    nodes = [{"NodeId": 1, "Host": "kafka", "Port": 9}]
    parts = [{"PartitionIndex": 0, "Records": bytes(1 << 20)}] * (3 if few else 300)
    values = {"Responses": [{"Partitions": parts}], "NodeEndpoints": nodes}
    body = b"".join(message.write(values))
    frame = memoryview(bytes(4) + b"\0" + body)
    found = read_addresses(api, 16, frame)
    assert found is not None
    assert found["NodeEndpoints"][0].items() >= nodes[0].items()
    if few:
        assert read_addresses(api, 16, frame, is_quick=True) == found
    else:
        with pytest.raises(TakesLongError):
            read_addresses(api, 16, frame, is_quick=True)


def test_many_tagged_fields_are_refused() -> None:
    """To skip them would take long; no message has so many."""
    frame = memoryview(bytes(4) + b"\x65" + b"\7\0" * 101 + bytes(1 << 20))
    with pytest.raises(KafkaProtocolError, match="101 tagged fields; expected at most 100"):
        read_addresses(apis()[1], 16, frame, is_quick=True)
