"""What clients may use: the target never gets the rest, and clients get what a broker answers."""

from __future__ import annotations

import asyncio
import random
import re
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._tools.gateway.access import Access, ConnectionAccess
from aiokafka08._tools.gateway.answers import error_answer
from aiokafka08._tools.gateway.api_versions import CHANGES, TRANSLATED
from aiokafka08._tools.gateway.headers import read_head
from aiokafka08._tools.gateway.layouts import Api, apis
from aiokafka08._tools.gateway.messages import Struct, Values, message_of
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    ScriptedBroker,
    connected,
    first_port,
    running,
)
from tests._tools.gateway.message_writer import MessageWriter
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.jars import jar_folder
from tests.tools import message_layouts

pytestmark = pytest.mark.fast

KEYS = {api.name: api for api in apis().values()}


def patterns(*include: str) -> NamePatterns:
    return NamePatterns(compile_patterns("include", include))


ONLY_T = Access(topics=patterns("t.*"))
ONLY_G = Access(groups=patterns("g.*"))
READ_ONLY = Access(is_read_only=True)


class StubTarget(ScriptedBroker):
    """A broker to which every request is fine; Metadata and groups have more than was asked for.

    Attributes:
        asked: name, version and values of the requests.
    """

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.asked: list[tuple[str, int, Values]] = []

    def _respond(self, frame: bytes) -> bytes:
        api, version = apis()[int.from_bytes(frame[:2], "big")], int.from_bytes(frame[2:4], "big")
        is_flexible = version >= api.flexible
        header_end = 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)
        request = message_of(api, "request", version).read(frame, header_end)
        self.asked.append((api.name, version, request))
        if api.name == "Produce" and request["Acks"] == 0:
            return b""
        values = error_answer(api, version, request, 0, "")
        if api.name == "Metadata":
            names = ["t1", "other"] if request["Topics"] is None else []
            names += [one["Name"] for one in request["Topics"] or ()]
            if version == 0 and not request["Topics"]:
                names = ["t1", "other"]
            values["Topics"] = [{"Name": name, "ErrorCode": 0} for name in names]
            values["Brokers"] = [{"NodeId": 0, "Host": "127.0.0.1", "Port": self.port}]
        elif api.name == "ListGroups":
            values["Groups"] = [{"GroupId": "g"}, {"GroupId": "other"}]
        body = b"".join(message_of(api, "response", version).write(values))
        return frame[4:8] + (b"\0" if is_flexible else b"") + body


def request_frame(api: Api, version: int, values: Values) -> bytes:
    """Return a request of the client "abc" with the correlation id 7, without its size."""
    header = b"".join(
        (
            api.key.to_bytes(2, "big"), version.to_bytes(2, "big"), b"\0\0\0\x07", b"\0\3abc",
            b"\0" if version >= api.flexible else b"",
        )
    )  # fmt: skip
    return header + b"".join(message_of(api, "request", version).write(values))


class Caller:
    """Sends requests by their values, and reads the responses."""

    def __init__(self, client: RawClient) -> None:
        self.client = client

    def send(self, api: Api, version: int, values: Values) -> None:
        self.client.send(request_frame(api, version, values))

    async def call(self, name: str, version: int, **values: Any) -> Values:
        api = KEYS[name]
        self.send(api, version, values)
        frame = await self.client.frame()
        assert frame[:4] == b"\0\0\0\x07"
        return message_of(api, "response", version).read(frame)


@asynccontextmanager
async def limited(access: Access) -> AsyncIterator[tuple[StubTarget, Caller]]:
    async with (
        StubTarget() as target,
        connected(target.address, access=access) as (_, client),
    ):
        yield target, Caller(client)


def errors(topics: list[Values], name: str = "Name", partitions: str = "Partitions") -> Any:
    return {
        topic[name]: [one["ErrorCode"] for one in topic[partitions]]
        for topic in sorted(topics, key=lambda topic: str(topic[name]))
    }


def versions(name: str, access: Access = ONLY_T) -> list[int]:
    api = KEYS[name]
    return [*TRANSLATED.get(api.key, (range(0), 0))[0], *access.versions(api)]


# --- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions("Produce"))
async def test_produce_writes_the_allowed_topics_only(version: int) -> None:
    records = encode_entry(0, None, b"a") if version < 3 else b"a batch"
    data = [{"Index": 0, "Records": records}]
    async with limited(ONLY_T) as (target, caller):
        answer = await caller.call(
            "Produce",
            version,
            TransactionalId=None,
            Acks=1,
            TopicData=[
                {"Name": "t1", "PartitionData": data},
                {"Name": "other", "PartitionData": [*data, {"Index": 4, "Records": records}]},
            ],
        )
        found = errors(answer["Responses"], partitions="PartitionResponses")
        refused = 3 if version == 0 else 29
        assert found == {"t1": [0], "other": [refused, refused]}
        ((_, _, asked),) = target.asked
        assert [one["Name"] for one in asked["TopicData"]] == ["t1"]


def test_refused_messages_are_not_held_while_the_target_works() -> None:
    """They count only until the target is asked."""
    api, records = KEYS["Produce"], [{"Index": 0, "Records": bytes(1 << 20)}]
    topics = [
        {"Name": "t1", "PartitionData": [{"Index": 0, "Records": b"a batch"}]},
        {"Name": "other", "PartitionData": records},
    ]
    values = {"TransactionalId": None, "Acks": 1, "TopicData": topics}
    frame = bytearray(request_frame(api, 3, values))
    with memoryview(frame) as view:
        limited = ConnectionAccess(ONLY_T).check(api, read_head(view), view)
    assert limited is not None
    respond = limited.respond  # what is left when the request has been sent
    del limited
    frame.extend(b"resizable")  # a BufferError while there is a view
    assert respond is not None


@pytest.mark.parametrize("version", versions("Fetch"))
async def test_fetch_reads_the_allowed_topics_only(version: int) -> None:
    async with limited(ONLY_T) as (target, caller):
        answer = await caller.call(
            "Fetch",
            version,
            Topics=[{"Topic": name, "Partitions": [{"Partition": 2}]} for name in ("t1", "other")],
            SessionId=0,
            RackId="",
        )
        refused = 3 if version == 0 else 29
        assert errors(answer["Responses"], "Topic") == {"t1": [0], "other": [refused]}
        (partition,) = next(one for one in answer["Responses"] if one["Topic"] == "other")[
            "Partitions"
        ]
        assert partition["PartitionIndex"] == 2
        assert partition["Records"] is not None
        ((_, _, asked),) = target.asked
        assert [one["Topic"] for one in asked["Topics"]] == ["t1"]


async def test_refused_topic_of_a_fetch_session_is_in_each_response() -> None:
    """The target's session doesn't have it; a broker would name it each time."""
    async with limited(ONLY_T) as (target, caller):

        async def fetched(epoch: int, *topics: str, forgotten: str = "") -> Any:
            answer = await caller.call(
                "Fetch",
                11,
                SessionId=5,
                SessionEpoch=epoch,
                RackId="",
                Topics=[{"Topic": one, "Partitions": [{"Partition": 0}]} for one in topics],
                ForgottenTopicsData=[{"Topic": forgotten, "Partitions": [0]}] if forgotten else [],
            )
            return errors(answer["Responses"], "Topic")

        assert await fetched(0, "t1", "other") == {"t1": [0], "other": [29]}
        assert await fetched(1) == {"other": [29]}
        assert await fetched(2, "mine") == {"mine": [29], "other": [29]}
        assert await fetched(3, "t2", forgotten="other") == {"mine": [29], "t2": [0]}
        assert await fetched(0, "t1") == {"t1": [0]}
        assert await fetched(1) == {}
        assert "other" not in repr(target.asked)


@pytest.mark.parametrize(
    "topics",
    [
        [(f"{number}" + "x" * 30_000, [0]) for number in range(9)],
        [("other", list(range(5_000)))],
    ],
    ids=["names", "partitions"],
)
async def test_fetch_session_with_much_that_is_refused_ends_the_connection(
    topics: list[tuple[str, list[int]]],
) -> None:
    async with limited(ONLY_T) as (target, caller):
        parts = [
            {"Topic": name, "Partitions": [{"Partition": number} for number in numbers]}
            for name, numbers in topics
        ]
        with pytest.raises(asyncio.IncompleteReadError):
            await caller.call("Fetch", 11, SessionId=0, SessionEpoch=0, RackId="", Topics=parts)
    assert target.asked == []


@pytest.mark.parametrize("version", versions("ListOffsets"))
async def test_offsets_of_the_allowed_topics_only_are_listed(version: int) -> None:
    async with limited(ONLY_T) as (target, caller):
        part = {"PartitionIndex": 1, "Timestamp": -1, "MaxNumOffsets": 1}
        answer = await caller.call(
            "ListOffsets",
            version,
            Topics=[{"Name": name, "Partitions": [part]} for name in ("other", "t1")],
        )
        assert errors(answer["Topics"]) == {"t1": [0], "other": [3 if version == 0 else 29]}
        assert "other" not in repr(target.asked)


@pytest.mark.parametrize("version", versions("OffsetCommit"))
async def test_offsets_of_the_allowed_topics_only_are_committed(version: int) -> None:
    async with limited(ONLY_T) as (target, caller):
        part = {"PartitionIndex": 1, "CommittedOffset": 5, "CommittedMetadata": ""}
        answer = await caller.call(
            "OffsetCommit",
            version,
            GroupId="g",
            GroupInstanceId=None,
            Topics=[{"Name": name, "Partitions": [part]} for name in ("other", "t1")],
        )
        # Clients of 0.8 send version 1, too.
        assert errors(answer["Topics"]) == {"t1": [0], "other": [3 if version <= 1 else 29]}
        assert "other" not in repr(target.asked)


@pytest.mark.parametrize("version", versions("OffsetFetch"))
async def test_offsets_of_the_allowed_topics_only_are_fetched(version: int) -> None:
    topics = [{"Name": name, "PartitionIndexes": [1]} for name in ("other", "t1")]
    async with limited(ONLY_T) as (target, caller):
        answer = await caller.call(
            "OffsetFetch",
            version,
            GroupId="g",
            Topics=topics,
            Groups=[{"GroupId": "g", "MemberId": None, "Topics": topics}],
        )
        if version >= 8:
            (group,) = answer["Groups"]
            assert group["ErrorCode"] == 0
            answer = group
        found = errors(answer["Topics"])
        assert found["other"] == [3 if version == 0 else 29]
        assert "other" not in repr(target.asked)


@pytest.mark.parametrize("version", versions("Metadata"))
async def test_metadata_of_named_topics_has_an_error_for_the_others(version: int) -> None:
    async with limited(ONLY_T) as (target, caller):
        answer = await caller.call("Metadata", version, Topics=[{"Name": "t1"}, {"Name": "other"}])
        found = {one["Name"]: one["ErrorCode"] for one in answer["Topics"]}
        assert found == {"t1": 0, "other": 3 if version == 0 else 29}
        assert "other" not in repr(target.asked)
        answer = await caller.call("Metadata", version, Topics=[{"Name": "other"}])
        assert [one["Name"] for one in answer["Topics"]] == ["other"]


@pytest.mark.parametrize("version", versions("Metadata"))
async def test_metadata_of_all_topics_has_the_allowed_ones(version: int) -> None:
    async with limited(ONLY_T) as (_, caller):
        answer = await caller.call("Metadata", version, Topics=None if version else [])
        assert [one["Name"] for one in answer["Topics"]] == ["t1"]
        assert answer["Brokers"][0]["Port"] != 0


async def test_produce_without_acknowledgement_ends_the_connection() -> None:
    """As brokers do it: the client has no other way to learn of the error."""
    topics = [
        {"Name": name, "PartitionData": [{"Index": 0, "Records": b"a batch"}]}
        for name in ("t1", "other")
    ]
    async with limited(ONLY_T) as (target, caller):
        values = {"TransactionalId": None, "Acks": 0, "TopicData": topics}
        caller.send(KEYS["Produce"], 3, values)
        assert await caller.client.is_closed()
        ((_, _, asked),) = target.asked
        assert [one["Name"] for one in asked["TopicData"]] == ["t1"]


@pytest.mark.parametrize(
    ("name", "version"),
    [("Produce", 13), ("Fetch", 13), ("Metadata", 10), ("ConsumerGroupHeartbeat", 0),
     ("DescribeConfigs", 1), ("DescribeTopicPartitions", 0)],
)  # fmt: skip
async def test_versions_that_could_name_other_topics_are_refused(
    name: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with limited(ONLY_T) as (target, caller):
        caller.send(KEYS[name], version, {})
        assert await caller.client.is_closed()
        assert target.asked == []
    assert f"{name} version {version} is refused: it could name topics that" in caplog.text


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [("JoinGroup", 0, 30), ("JoinGroup", 9, 30), ("SyncGroup", 3, 30), ("Heartbeat", 0, 30),
     ("LeaveGroup", 4, 30), ("FindCoordinator", 0, 30), ("FindCoordinator", 3, 30),
     ("AddOffsetsToTxn", 3, 30)],
)  # fmt: skip
async def test_other_groups_are_not_authorized(name: str, version: int, code: int) -> None:
    async with limited(ONLY_G) as (target, caller):
        answer = await caller.call(name, version, GroupId="other", Key="other", KeyType=0)
        assert answer["ErrorCode"] == code
        assert target.asked == []
        answer = await caller.call(name, version, GroupId="g1", Key="g1", KeyType=0)
        assert answer["ErrorCode"] == 0


@pytest.mark.parametrize("version", versions("OffsetCommit", ONLY_G)[:-1])
async def test_other_groups_commit_nothing(version: int) -> None:
    part = {"PartitionIndex": 1, "CommittedOffset": 5, "CommittedMetadata": ""}
    async with limited(ONLY_G) as (target, caller):
        answer = await caller.call(
            "OffsetCommit",
            version,
            GroupId="other",
            GroupInstanceId=None,
            Topics=[{"Name": "t", "Partitions": [part]}],
        )
        assert errors(answer["Topics"]) == {"t": [16 if version <= 1 else 30]}
        assert target.asked == []


@pytest.mark.parametrize(("version", "field"), [(0, "Topics"), (7, "Topics"), (8, "Groups")])
async def test_offsets_of_other_groups_are_not_fetched(version: int, field: str) -> None:
    topics = [{"Name": "t", "PartitionIndexes": [1]}]
    groups = [{"GroupId": name, "Topics": topics} for name in ("g", "other")]
    async with limited(ONLY_G) as (target, caller):
        answer = await caller.call(
            "OffsetFetch", version, GroupId="other", Topics=topics, Groups=groups
        )
        if field == "Groups":
            assert {one["GroupId"]: one["ErrorCode"] for one in answer["Groups"]} == {
                "g": 0,
                "other": 30,
            }
        else:
            assert errors(answer["Topics"]) == {"t": [16 if version == 0 else 30]}
        assert "other" not in repr(target.asked)


async def test_lists_of_groups_have_the_allowed_ones() -> None:
    async with limited(ONLY_G) as (target, caller):
        for version in (0, 3):
            answer = await caller.call("ListGroups", version)
            assert [one["GroupId"] for one in answer["Groups"]] == ["g"]
        answer = await caller.call("DescribeGroups", 1, Groups=["other", "g"])
        found = {one["GroupId"]: one["ErrorCode"] for one in answer["Groups"]}
        assert found == {"g": 0, "other": 30}
        answer = await caller.call("FindCoordinator", 4, KeyType=0, CoordinatorKeys=["g", "other"])
        found = {one["Key"]: one["ErrorCode"] for one in answer["Coordinators"]}
        assert found == {"g": 0, "other": 30}
        assert "other" not in repr(target.asked)


async def test_groups_are_found_without_the_topic_of_their_offsets() -> None:
    place = TopicPartition("t1", 0)
    async with EmbeddedCluster(version="0.10", topics={"t1": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with AIOKafkaConsumer(group_id="g", bootstrap_servers=servers) as consumer:
            consumer.assign([place])
            await consumer.commit({place: 0})
        async with (
            # Nothing is translated: this target takes old requests only.
            running(servers, access=ONLY_T, is_observing=True) as gateway,
            AIOKafkaAdminClient(bootstrap_servers=f"{HOST}:{first_port(gateway)}") as admin,
        ):
            assert await admin.list_topics() == ["t1"]
            assert [one.group for one in await admin.list_stored_groups()] == ["g"]
            (row,) = await admin.list_group_lags(["g"])
            assert (row.partition, row.committed) == (0, 0)
            ((described,),) = [
                found.groups for found in await admin.describe_consumer_groups(["g"])
            ]
            assert described.state == "Empty"


async def test_coordinators_of_transactions_are_not_those_of_groups() -> None:
    async with limited(ONLY_G) as (_, caller):
        answer = await caller.call("FindCoordinator", 1, Key="other", KeyType=1)
        assert answer["ErrorCode"] == 0


# --- read-only, and what changes the cluster ------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3, 12])
async def test_read_only_clients_write_no_records(version: int) -> None:
    topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": b""}]}]
    async with limited(READ_ONLY) as (target, caller):
        answer = await caller.call(
            "Produce", version, TransactionalId=None, Acks=1, TopicData=topics
        )
        found = errors(answer["Responses"], partitions="PartitionResponses")
        assert found == {"t": [3 if version == 0 else 29]}
        answer = await caller.call("InitProducerId", 1, TransactionalId=None)
        assert answer["ErrorCode"] == 31
        answer = await caller.call("InitProducerId", 1, TransactionalId="mine")
        assert answer["ErrorCode"] == 53
        assert target.asked == []


async def test_read_only_clients_commit_offsets_and_join_groups() -> None:
    part = {"PartitionIndex": 0, "CommittedOffset": 5, "CommittedMetadata": ""}
    async with limited(READ_ONLY) as (_, caller):
        topics = [{"Name": "t", "Partitions": [part]}]
        answer = await caller.call("OffsetCommit", 2, GroupId="g", Topics=topics)
        assert errors(answer["Topics"]) == {"t": [0]}
        assert (await caller.call("JoinGroup", 1, GroupId="g"))["ErrorCode"] == 0
        answer = await caller.call("DeleteGroups", 0, GroupsNames=["g"])
        assert [one["ErrorCode"] for one in answer["Results"]] == [30]


@pytest.mark.parametrize("version", range(14))
async def test_read_only_clients_create_no_topics_by_naming_them(version: int) -> None:
    """Versions below 4 can't say so: version 4 does it for them."""
    async with limited(READ_ONLY) as (target, caller):
        answer = await caller.call(
            "Metadata", version, Topics=[{"Name": "t"}], AllowAutoTopicCreation=1
        )
        assert [one["Name"] for one in answer["Topics"]] == ["t"]
        assert answer["Brokers"][0]["Port"] > 0
        await caller.call("Metadata", version, Topics=None if version else [])
        (_, asked_version, named), (_, _, listing) = target.asked
        assert asked_version == max(version, 4)
        assert named["AllowAutoTopicCreation"] == 0
        assert [one["Name"] for one in named["Topics"]] == ["t"]
        assert listing["Topics"] is None


@pytest.mark.parametrize("version", range(8))
async def test_topics_are_not_created(version: int, caplog: pytest.LogCaptureFixture) -> None:
    async with limited(Access()) as (target, caller):
        answer = await caller.call(
            "CreateTopics", version, Topics=[{"Name": "t", "NumPartitions": 1}]
        )
        (topic,) = answer["Topics"]
        assert (topic["Name"], topic["ErrorCode"]) == ("t", 31 if version < 3 else 29)
        if version >= 1:
            assert topic["ErrorMessage"].startswith("it changes the cluster")
        await caller.call("ListGroups", 0)
        assert [name for name, _, _ in target.asked] == ["ListGroups"]
    wanted = rf"127\.0\.0\.1:\d+: client id 'abc': CreateTopics version {version} is refused: it ch"
    assert re.search(wanted, caplog.text)


TRANSACTION = {"ProducerId": 7, "Topics": [{"Name": "t", "PartitionIndexes": [0, 3]}]}
SHARE = {"Partitions": [{"Partition": 3}], "TopicId": bytes(range(16))}


@pytest.mark.parametrize("is_observing", [False, True])
@pytest.mark.parametrize("access", [Access(), ONLY_T, READ_ONLY])
async def test_requests_between_brokers_are_not_authorized(
    access: Access, is_observing: bool
) -> None:
    async with (
        StubTarget() as target,
        connected(target.address, access=access, is_observing=is_observing) as (_, client),
    ):
        caller = Caller(client)
        answer = await caller.call("WriteTxnMarkers", 1, Markers=[TRANSACTION])
        (marker,) = answer["Markers"]
        assert marker["ProducerId"] == 7
        assert errors(marker["Topics"]) == {"t": [31, 31]}
        for name in sorted(message_layouts.BETWEEN_BROKERS - {"WriteTxnMarkers"}):
            answer = await caller.call(name, 0, GroupId="g", Topics=[SHARE])
            (result,) = answer["Results"]
            assert result["TopicId"] == SHARE["TopicId"]
            assert errors([result], "TopicId") == {SHARE["TopicId"]: [31]}
        assert target.asked == []


@pytest.mark.parametrize("is_observing", [False, True])
@pytest.mark.parametrize(
    ("name", "version"),
    [
        *(("Fetch", version) for version in range(19)),
        *(("ListOffsets", version) for version in range(11)),
        *(("OffsetForLeaderEpoch", version) for version in (3, 4)),
    ],
)
async def test_replicas_are_not_authorized(name: str, version: int, is_observing: bool) -> None:
    part = {"Partition": 2, "PartitionIndex": 2, "Timestamp": -1, "MaxNumOffsets": 1}
    topic = {"Name": "t", "Topic": "t", "TopicId": bytes(range(16)), "Partitions": [part]}
    async with (
        StubTarget() as target,
        connected(target.address, is_observing=is_observing) as (_, client),
    ):
        answer = await Caller(client).call(
            name, version, ReplicaId=3, ReplicaState={"ReplicaId": 3}, Topics=[topic], RackId=""
        )
        assert answer.get("ErrorCode", 0) == 0
        ((found,),) = [one["Partitions"] for one in answer.get("Responses") or answer["Topics"]]
        number = found["Partition"] if "Partition" in found else found["PartitionIndex"]
        assert (number, found["ErrorCode"]) == (2, 3 if version == 0 else 29)
        assert target.asked == []


async def test_change_without_an_answer_ends_the_connection() -> None:
    async with limited(Access()) as (target, caller):
        caller.send(KEYS["AlterReplicaLogDirs"], 1, {})
        assert await caller.client.is_closed()
        assert target.asked == []


# --- any request ----------------------------------------------------------------------------------


SHORT = Access(topics=patterns(".{0,2}"), groups=patterns(".{0,2}"))


@pytest.mark.real
@pytest.mark.parametrize("seed", range(3))
def test_no_other_name_reaches_the_target(seed: int) -> None:
    """In each API and version; and damaged requests raise typed errors."""
    require_real_brokers()
    chance = random.Random(seed)
    definitions = message_layouts.definitions(
        jar_folder(message_layouts.RELEASE) / f"kafka-clients-{message_layouts.RELEASE}.jar"
    )
    looked, limits = 0, 0
    for api in apis().values():
        for version in SHORT.versions(api):
            if api.name in CHANGES:
                continue
            writer = MessageWriter(definitions[f"{api.name}Request"], version)
            body = writer.write(writer.random_values(chance))
            header = struct.pack(">hhih", api.key, version, 7, -1)
            frame = header + (b"\0" if version >= api.flexible else b"") + body
            head = read_head(frame)
            for data in (frame, frame[: chance.randrange(10, len(frame) + 1)]):
                try:
                    limited = ConnectionAccess(SHORT).check(api, head, memoryview(data))
                except KafkaProtocolError:
                    assert data != frame
                    continue
                sent = data if limited is None else b"".join(limited.request or ())
                limits += limited is not None
                if data == frame and sent:
                    request = message_of(api, "request", version)
                    names = set(names_of(request.struct, request.read(sent, head.body_at)))
                    assert all(len(name) <= 2 for name in names), f"{api.name} {version}"
                    looked += len(names)
    assert looked > 20
    assert limits > 20


def names_of(layout: Struct, values: Values) -> Iterator[str]:
    for field in layout.fields:
        value = values[field.name]
        for one in value or () if field.is_array else [value]:
            if field.struct is not None:
                yield from names_of(field.struct, one or {})
            elif field.role in ("topic", "group") and one is not None:
                yield one
