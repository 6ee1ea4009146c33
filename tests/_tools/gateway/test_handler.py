"""What becomes of requests, on brokers of the embedded cluster and on scripted ones."""

from __future__ import annotations

import asyncio
import errno
import gc
import re
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core.limited_log import MAX_KEYS
from aiokafka08._core.server.connection import ServerConnection
from aiokafka08._tools.gateway import gateway as gateway_module
from aiokafka08._tools.gateway import upstream
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.handler import GatewayHandler
from aiokafka08._tools.gateway.messages import Values, message_of
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.errors import KafkaConnectionError
from aiokafka08.protocol.api import Topic, decode_response
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.protocol.requests.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    ScriptedBroker,
    connected,
    first_port,
    running,
)
from tests._tools.gateway.test_access import KEYS, request_frame
from tests.brokers.ports import free_port, free_ports
from tests.support.waiting import until

pytestmark = pytest.mark.fast


def request(key: int, version: int, correlation_id: int = 1, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1) + body


async def found_coordinator(client: RawClient) -> GroupCoordinatorResponse:
    """Return the group's coordinator, once there is one."""
    async with asyncio.timeout(20):
        while True:
            response: GroupCoordinatorResponse = await client.call(GroupCoordinatorRequest("g"), 0)
            if not response.error_code:
                return response
            await asyncio.sleep(0.01)


# --- on an embedded cluster -----------------------------------------------------------------------


async def test_addresses_in_metadata_are_the_gateways() -> None:
    async with (
        EmbeddedCluster(3, version="0.10", topics={"t": 3}) as cluster,
        connected(cluster.bootstrap_servers) as (gateway, client),
    ):
        for version in (0, 1, 2):
            metadata = await client.call(MetadataRequest(["t"]), version)
            found = {broker.node_id: broker.port for broker in metadata.brokers}
            assert found == gateway.ports
            assert {broker.host for broker in metadata.brokers} == {HOST}
        coordinator = await found_coordinator(client)
        assert coordinator.port == gateway.ports[coordinator.node_id]


async def test_each_listener_leads_to_its_broker() -> None:
    async with (
        EmbeddedCluster(2, version="0.10", topics={"t": 2}) as cluster,
        running(cluster.bootstrap_servers) as gateway,
    ):
        for leader, port in gateway.ports.items():
            async with await RawClient.connect(port) as client:
                partitions = [ListOffsetsPartition(number, LATEST) for number in (0, 1)]
                asked = ListOffsetsRequest(-1, [Topic("t", partitions)])
                found = (await client.call(asked, 1)).topics[0].partitions
                errors = {one.partition: one.error_code for one in found}
                assert errors[leader] == 0 != errors[1 - leader]


async def test_connection_that_has_ended_leaves_no_garbage() -> None:
    """Full garbage collections are rare in the command, and hold its event loop."""

    def left() -> list[str]:
        kept = GatewayHandler, ServerConnection, upstream.Upstream
        objects = gc.get_objects()
        timers = [one for one in objects if isinstance(one, asyncio.TimerHandle)]
        return [type(one).__name__ for one in objects if isinstance(one, kept)] + [
            repr(one) for one in timers if not one.cancelled() and ".abort" in repr(one)
        ]

    async with (
        EmbeddedCluster(2, version="0.10", topics={"t": 1}) as cluster,
        running(cluster.bootstrap_servers) as gateway,
    ):
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                async with await RawClient.connect(first_port(gateway)) as client:
                    await client.call(ListOffsetsRequest(-1, []), 0)
                    for group in "abcdefgh":  # the coordinator of some is the other broker
                        await client.call(OffsetFetchRequest(group, [Topic("t", [0])]), 0)
                    assert left().count("Upstream") == 2
                    assert "GatewayHandler" in left()
            async with await RawClient.connect(first_port(gateway)):
                pass  # it is closed before or while the gateway connects to the target
            await until(lambda: not left(), "nothing is left")
        finally:
            gc.enable()


async def test_offsets_are_listed_by_a_target_that_takes_version_0() -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        async with await RawClient.connect(cluster.nodes[0].port) as producer:
            messages = encode_entry(0, None, b"a") + encode_entry(0, None, b"b")
            part = ProducePartition(0, messages)
            await producer.call(ProduceRequest(1, 1000, [Topic("t", [part])]), 0)
        async with connected(cluster.bootstrap_servers) as (_, client):

            async def listed(timestamp: int, count: int, topic: str = "t") -> list[object]:
                wanted = ListOffsetsPartition(0, timestamp, count)
                asked = ListOffsetsRequest(-1, [Topic(topic, [wanted])])
                (found,) = (await client.call(asked, 0)).topics[0].partitions
                return [found.error_code, found.offsets]

            assert await listed(EARLIEST, 1) == [0, [0]]
            assert await listed(LATEST, 5) == [0, [2, 0]]
            assert await listed(LATEST, 1, "no-such-topic") == [3, []]


async def test_offsets_are_committed_and_fetched_in_all_old_versions() -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster,
        connected(cluster.bootstrap_servers) as (_, client),
    ):
        await found_coordinator(client)

        async def fetched(version: int) -> list[tuple[int, int, str | None]]:
            asked = OffsetFetchRequest("g", [Topic("t", [0, 1])])
            partitions = (await client.call(asked, version)).topics[0].partitions
            return [(one.error_code, one.offset, one.metadata) for one in partitions]

        assert await fetched(0) == [(3, -1, ""), (3, -1, "")]
        assert await fetched(1) == [(0, -1, ""), (0, -1, "")]
        for version, offset in ((0, 5), (1, 6)):
            parts = [CommitPartition(0, offset, -1, "at"), CommitPartition(1, 9, -1, None)]
            commit = OffsetCommitRequest("g", -1, "", -1, [Topic("t", parts)])
            (topic,) = (await client.call(commit, version)).topics
            assert [one.error_code for one in topic.partitions] == [0, 0]
            assert await fetched(0) == [(0, offset, "at"), (0, 9, "")]
            assert await fetched(1) == await fetched(0)
        odd = OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, -5, -1, "")])])
        await client.call(odd, 0)
        assert (await fetched(0))[0] == (0, -5, "")


async def test_versions_are_the_targets_and_the_translated_ones() -> None:
    async with (
        EmbeddedCluster(version="0.10") as cluster,
        connected(cluster.bootstrap_servers) as (_, client),
    ):
        response = await client.call(ApiVersionsRequest(), 0)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_versions}
    assert ranges[2] == (0, 1)
    assert ranges[3] == (0, 2)
    assert not ranges.keys() & {4, 5, 6, 7}


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Those that pass, that are translated, and that the gateway answers itself."""
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers) as (_, client),
    ):
        for number in range(300):
            if number % 3 == 0:
                client.send_request(MetadataRequest(["t"]), 1, number)
            elif number % 3 == 1:
                wanted = [Topic("t", [ListOffsetsPartition(0, LATEST)])]
                client.send_request(ListOffsetsRequest(-1, wanted), 0, number)
            else:
                client.send(request(18, 99, number))
        for number in range(300):
            frame = await client.frame()
            assert int.from_bytes(frame[:4], "big") == number


# --- requests that are refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (request(4, 0), "LeaderAndIsr version 0 is refused: only brokers send this request"),
        (request(53, 1), "BeginQuorumEpoch version 1 is refused: only brokers send"),
        (request(19, 5), "CreateTopics version 5 is refused: a varint ends at 10"),
        (request(44, 1), "IncrementalAlterConfigs version 1 is refused: a varint"),
        (request(999, 0), "API 999 version 0 is refused: the API isn't known"),
        (request(3, 99), "Metadata version 99 is refused: expected version 0 to 13"),
        (request(1, 11, body=bytes(4)), "Fetch version 11 is refused: FetchRequest version 11:"),
        (request(1, 16, body=bytes(3)), "Fetch version 16 is refused: FetchRequest version 16:"),
        (request(8, 0, body=b"\0\x09g"), "OffsetCommit version 0 is refused: OffsetCommitRequest"),
        (b"\0\3", "a request version \\? is refused: a request of 2 bytes"),
        (b"\0\3\0\0\0\0\0\1\x7f\xff", "refused: a client id of 32767 bytes; expected -1 to 0"),
    ],
)
async def test_refused_request_ends_the_connection_and_is_logged(
    frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + b"answer") as broker,
        connected(broker.address) as (_, client),
    ):
        client.send(request(16, 0))
        client.send(frame)
        client.send(request(16, 0, 3))
        assert await client.frame() == b"\0\0\0\x01answer"
        assert await client.is_closed()
        assert [one[:8] for one in broker.requests] == [request(16, 0)[:8]]
    assert any(re.search(reason, record.message) for record in caplog.records)


async def test_made_up_client_ids_hide_no_other_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """One client's refusals of one API are one line and a count, whatever it calls itself."""
    async with (
        ScriptedBroker(lambda frame: b"wrong") as broker,
        connected(broker.address, access=Access(is_read_only=True)) as (_, client),
    ):
        for number in range(2 * MAX_KEYS):
            header = struct.pack(">hhih", 22, 0, number, 3) + b"%03d" % number
            client.send(header + b"\xff\xff" + bytes(4))  # InitProducerId
            await client.frame()
        client.send(request(20, 0, body=bytes(8)))
        await client.frame()
        client.send(request(16, 0))
        assert await client.is_closed()
    lines = [one for one in caplog.messages if "InitProducerId" in one]
    assert len(lines) == 2
    assert f"({2 * MAX_KEYS - 1} more times within 60 s)" in lines[1]
    assert any("DeleteTopics version 0 is refused" in one for one in caplog.messages)
    assert any("connection to node 0 lost" in one for one in caplog.messages)


async def test_client_from_another_network_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ScriptedBroker(lambda frame: frame[4:8]) as broker,
        connected(broker.address, allowed=()) as (_, client),
    ):
        client.send(request(16, 0))
        assert await client.is_closed()
        assert broker.requests == []
    assert "in no network that --allow names" in caplog.text


# --- a target that isn't well ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\0\0\0\x09wrong", "a response with correlation id 9; expected 1"),
        (b"\0", "expected at least 4"),
        (b"\0\0\0\x01\x7f\xff\xff\xff", "MetadataResponse version 0: a length of 21474"),
    ],
)
async def test_hostile_response_ends_the_connection(
    answer: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ScriptedBroker(lambda frame: answer) as broker,
        running(broker.address) as gateway,
    ):
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(request(3, 0, 1, bytes(4)))
            assert await client.is_closed()
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(request(3, 0, 1, bytes(4)))
            assert await client.is_closed()
    assert reason in caplog.text


async def test_more_addresses_than_any_cluster_has_end_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ScriptedBroker(lambda frame: b"") as broker:
        broker.answer = lambda frame: frame[4:8] + broker.metadata(dict.fromkeys(range(10_001), 1))
        async with connected(broker.address) as (gateway, client):
            client.send_request(MetadataRequest([]), 1)
            assert await client.is_closed()
            assert list(gateway.ports) == [0]
    assert "MetadataResponse version 1: more than 10000 items" in caplog.text


async def test_response_over_the_limit_ends_the_connection() -> None:
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + bytes(10_000)) as broker,
        connected(broker.address, max_response_bytes=5000) as (_, client),
    ):
        client.send(request(16, 0))
        assert await client.is_closed()


async def test_closed_upstream_ends_the_client_after_earlier_responses() -> None:
    answers = iter((b"\0\0\0\x01first", None))
    async with (
        ScriptedBroker(lambda frame: next(answers)) as broker,
        connected(broker.address) as (_, client),
    ):
        client.send(request(16, 0))
        client.send(request(16, 0, 2))
        client.send(request(18, 99, 3))  # the gateway's answer waits for the broker's
        assert await client.frame() == b"\0\0\0\x01first"
        assert await client.is_closed()


RECORDS = bytes(64 << 10)
PRODUCE_PARTS = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": RECORDS}]}]
FETCHED_PARTS = [{"TopicId": bytes(16), "Partitions": [{"Records": RECORDS}]}]


@pytest.mark.parametrize(
    ("name", "version", "request_values", "response_values"),
    [
        ("Produce", 7, {"Acks": 1, "TopicData": PRODUCE_PARTS}, {"Responses": []}),
        ("Produce", 10, {"Acks": 1, "TopicData": PRODUCE_PARTS}, {"Responses": []}),
        ("Fetch", 16, {}, {"Responses": FETCHED_PARTS}),
    ],
)
async def test_large_requests_and_responses_that_pass_wait_for_no_conversion(
    name: str, version: int, request_values: Values, response_values: Values
) -> None:
    api = KEYS[name]
    layout = message_of(api, "response", version)
    passed = b"\0" * layout.has_tags + b"".join(layout.write(response_values))
    bomb = compress(Codec.GZIP, encode_entry(0, None, bytes(40 << 20)))
    large = encode_entry(0, None, bomb, attributes=Codec.GZIP)
    produce = ProduceRequest(1, 1000, [Topic("t", [ProducePartition(0, large)])])

    def answer(frame: bytes) -> bytes:
        is_passed = frame[:4] == struct.pack(">hh", api.key, version)
        return frame[4:8] + (passed if is_passed else bytes(8))

    async with (
        ScriptedBroker(answer) as broker,
        connected(broker.address) as (gateway, client),
        await RawClient.connect(first_port(gateway)) as other,
    ):
        other.send(request_frame(api, version, request_values))
        await other.frame()
        client.send_request(produce, 0)
        first = asyncio.create_task(client.frame())
        overtaken = 0
        while not first.done():
            other.send(request_frame(api, version, request_values))
            assert (await other.frame())[4:] == passed
            overtaken += 1
        assert overtaken >= 3


async def test_acks_0_has_no_place_among_the_responses() -> None:
    """A client may send it and close: all of it goes to the broker."""
    produce = request(0, 3, body=b"\xff\xff" + b"\0\0" + b"\0\0\0\x05" + bytes(4))
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address) as gateway,
    ):
        async with await RawClient.connect(first_port(gateway)) as client:
            for _ in range(50):
                client.send(produce)
            client.writer.close()
        await until(lambda: len(broker.requests) == 50, "all requests have come")


async def test_target_that_is_away_closes_the_listener_until_it_is_back() -> None:
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + b"answer") as broker,
        running(broker.address) as gateway,
    ):
        port = first_port(gateway)
        broker.stop_listening()
        async with await RawClient.connect(port) as client:
            assert await client.is_closed()

        async def is_open() -> bool:
            try:
                async with await RawClient.connect(port):
                    return True
            except ConnectionRefusedError:
                return False

        assert not await is_open()
        broker.listen()
        async with asyncio.timeout(20):
            while not await is_open():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        async with await RawClient.connect(port) as client:
            client.send(request(16, 0))
            assert await client.frame() == b"\0\0\0\x01answer"


async def test_target_that_is_away_is_noticed_without_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gateway_module, "WATCH_S", 0.05)
    async with ScriptedBroker(lambda frame: b"") as broker, running(broker.address) as gateway:
        assert [one.is_open for one in gateway.states()] == [True]
        broker.stop_listening()
        await until(lambda: not gateway.is_listening, "the gateway has looked")
        assert [one.is_open for one in gateway.states()] == [False]
        assert re.search("node 0: not listening until it can be reached: .*refused", caplog.text)
        broker.listen()
        await until(lambda: gateway.is_listening, "the broker is back")


@pytest.mark.both_loops
async def test_clients_that_leave_at_once_do_not_hold_up_the_end() -> None:
    """uvloop never says that a connection is lost whose making was cancelled."""
    async with ScriptedBroker(lambda frame: b"") as broker, running(broker.address) as gateway:
        for _ in range(30):
            async with await RawClient.connect(first_port(gateway)):
                pass


async def test_target_that_answers_nobody_is_an_error_at_the_start() -> None:
    ports = [free_port(), free_port()]
    targets = ",".join(f"{HOST}:{port}" for port in ports)
    gateway = Gateway(gateway_options(targets, f"{HOST}:{free_ports()}"), PortTable())
    with pytest.raises(KafkaConnectionError, match=f"(?s)can't be reached: .*{ports[1]}: "):
        await gateway.start()


# --- listeners ------------------------------------------------------------------------------------


async def test_new_broker_in_metadata_gets_a_listener_before_the_client_knows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "listeners.json"
    async with ScriptedBroker(lambda frame: b"") as broker:
        other = free_port()
        broker.answer = lambda frame: frame[4:8] + broker.metadata({9: other, 0: broker.port})
        async with running(broker.address, PortTable(path)) as gateway:
            assert list(gateway.ports) == [0]
            async with await RawClient.connect(first_port(gateway)) as client:
                metadata = await client.call(MetadataRequest([]), 1)
                assert {one.node_id: one.port for one in metadata.brokers} == gateway.ports
                assert gateway.ports[9] == gateway.ports[0] + 1
                async with await RawClient.connect(gateway.ports[9]):
                    pass
    assert list(PortTable(path).indices) == [0, 9]


async def test_port_in_use_harms_no_other_broker(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedBroker(lambda frame: b"") as broker:
        broker.answer = lambda frame: frame[4:8] + broker.metadata({9: broker.port, 0: broker.port})
        async with connected(broker.address) as (gateway, client):
            port = first_port(gateway)

            async def ports() -> dict[int, int]:
                metadata = await client.call(MetadataRequest([]), 1)
                return {one.node_id: one.port for one in metadata.brokers}

            with socket.create_server((HOST, port + 1)):
                assert await ports() == await ports() == {0: port, 9: 0}
                assert caplog.text.count(f"{port + 1}") == 1
            async with asyncio.timeout(20):
                while await ports() != {0: port, 9: port + 1}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            async with await RawClient.connect(port + 1):
                pass


async def test_state_that_cannot_be_written_harms_no_other_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    table = PortTable(folder / "listeners.json")
    async with ScriptedBroker(lambda frame: b"") as broker:
        broker.answer = lambda frame: frame[4:8] + broker.metadata({9: broker.port, 0: broker.port})
        async with (
            running(broker.address, table) as gateway,
            await RawClient.connect(first_port(gateway)) as client,
        ):
            shutil.rmtree(folder)
            for _ in range(2):
                metadata = await client.call(MetadataRequest([]), 1)
                found = {one.node_id: one.port for one in metadata.brokers}
                assert found == {0: first_port(gateway), 9: 0}
            assert caplog.text.count("no listener for node 9") == 1
            folder.mkdir()
            metadata = await client.call(MetadataRequest([]), 1)
            assert {one.node_id: one.port for one in metadata.brokers} == gateway.ports
            assert 9 in gateway.ports


@pytest.mark.parametrize("port", [70_000, -1])
async def test_address_that_cannot_be_used_closes_the_listener(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedBroker(lambda frame: b"") as broker:
        broker.answer = lambda frame: frame[4:8] + broker.metadata({9: port & 0xFFFFFFFF})
        async with connected(broker.address) as (gateway, client):
            await client.call(MetadataRequest([]), 1)
            async with await RawClient.connect(gateway.ports[9]) as other:
                assert await other.is_closed()
    assert "node 9: not listening until it can be reached" in caplog.text


async def test_want_of_resources_leaves_the_listener_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    monkeypatch.setattr(gateway_module, "WATCH_S", 0.05)
    failed = 0

    async def fail(factory: Any, host: str, port: int, **changed: Any) -> Any:
        nonlocal failed
        if port == broker.port:
            failed += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return await connect(factory, host, port, **changed)

    async with (
        ScriptedBroker(lambda frame: frame[4:8] + b"answer") as broker,
        running(broker.address) as gateway,
    ):
        with monkeypatch.context() as patched:
            patched.setattr(loop, "create_connection", fail)
            async with await RawClient.connect(first_port(gateway)) as client:
                assert await client.is_closed()
            looks = failed
            await until(lambda: failed > looks + 1, "the gateway has looked", 10)
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(request(16, 0))
            assert await client.frame() == b"\0\0\0\x01answer"
    assert "Too many open files" in caplog.text
    assert "not listening" not in caplog.text


async def test_stop_waits_for_all_looks_at_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwoNodes(ScriptedBroker):
        def metadata(self, nodes: dict[int, int] | None = None) -> bytes:
            return super().metadata({0: self.port, 1: self.port})

    monkeypatch.setattr(gateway_module, "WATCH_S", 0.05)
    looking: list[None] = []

    async def look(*given: Any, **more: Any) -> str | None:
        looking.append(None)
        turns = 100 ** len(looking)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            try:
                for _ in range(turns):  # the connection closes, one faster than the other
                    await asyncio.sleep(0)
            finally:
                looking.pop()
        raise AssertionError

    monkeypatch.setattr(gateway_module, "why_unreachable", look)
    async with TwoNodes(lambda frame: b"") as broker:
        async with running(broker.address):
            await until(lambda: len(looking) == 2, "the gateway looks")
        assert not looking


class SlowBroker(ScriptedBroker):
    """A broker that waits with the answer to a request; the default answer is "late"."""

    def __init__(self, begun: asyncio.Event, go_on: asyncio.Event, answer: bytes = b"late") -> None:
        super().__init__(None)
        self._begun, self._go_on = begun, go_on
        self.late = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            if (own := self.own_answer(frame)) is None:
                break
            writer.write((4 + len(own)).to_bytes(4, "big") + frame[4:8] + own)
        self._begun.set()
        await self._go_on.wait()
        writer.write((4 + len(self.late)).to_bytes(4, "big") + frame[4:8] + self.late)
        writer.close()


async def test_stop_answers_what_is_in_flight() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async with SlowBroker(begun, go_on) as broker:
        gateway = Gateway(gateway_options(broker.address, f"{HOST}:{free_ports()}"), PortTable())
        await gateway.start()
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(request(16, 0))
            await begun.wait()
            stopping = asyncio.create_task(gateway.stop())
            await asyncio.sleep(0)
            with pytest.raises(ConnectionRefusedError):
                await RawClient.connect(first_port(gateway))
            go_on.set()
            assert await client.frame() == b"\0\0\0\x01late"
            assert await client.is_closed()
            await stopping


@pytest.mark.parametrize("goes_during_stop", [False, True])
async def test_stop_waits_for_no_response_to_a_client_that_has_gone(
    goes_during_stop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedBroker(lambda frame: b"") as broker:
        gateway = Gateway(gateway_options(broker.address, f"{HOST}:{free_ports()}"), PortTable())
        await gateway.start()
        stopping: asyncio.Task[None] | None = None
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(request(16, 0))
            await until(lambda: len(broker.requests) == 1, "the request has come")
            if goes_during_stop:
                stopping = asyncio.create_task(gateway.stop())
                await asyncio.sleep(0)
        await (stopping or gateway.stop())
    assert "requests in flight" not in caplog.text


async def test_new_broker_in_an_answer_during_stop_gets_no_listener() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    async with SlowBroker(begun, go_on) as broker:
        broker.late = broker.metadata({9: broker.port, 0: broker.port})
        gateway = Gateway(gateway_options(broker.address, f"{HOST}:{free_ports()}"), PortTable())
        await gateway.start()
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send_request(MetadataRequest([]), 1)
            await begun.wait()
            stopping = asyncio.create_task(gateway.stop())
            await asyncio.sleep(0)
            go_on.set()
            metadata = decode_response(MetadataRequest, 1, await client.frame())
            assert {one.node_id: one.port for one in metadata.brokers} == {
                0: first_port(gateway),
                9: 0,
            }
            await stopping
        assert list(gateway.ports) == [0]
        with pytest.raises(ConnectionRefusedError):
            await RawClient.connect(first_port(gateway) + 1)


async def test_stop_ends_a_request_that_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedBroker(lambda frame: b"") as broker:
        gateway = Gateway(gateway_options(broker.address, f"{HOST}:{free_ports()}"), PortTable())
        await gateway.start()
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(request(16, 0))
            client.writer.write(b"\0\0\0\x0a" + request(16, 0)[:-1])  # a partial frame
            await until(lambda: len(broker.requests) == 1, "the request has come")
            await gateway.stop(0.05)
            assert await client.is_closed()
    assert "closed after 0.05 s with requests in flight" in caplog.text


class UnreadBroker(ScriptedBroker):
    """A broker that reads no request before the test says so.

    Attributes:
        lost: how many connections have ended in the middle of a request.
    """

    def __init__(self) -> None:
        super().__init__(lambda frame: b"")
        self.reads = asyncio.Event()
        self.lost = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while (size := int.from_bytes(await reader.readexactly(4), "big")) <= LARGE:
            frame = await reader.readexactly(size)
            own = self.own_answer(frame) or b""
            writer.write((4 + len(own)).to_bytes(4, "big") + frame[4:8] + own)
        await self.reads.wait()
        try:
            self.requests.append(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost += 1
        writer.close()


LARGE = 32 << 20  # more than the buffers of sockets hold
LARGE_ACKS_0 = request(0, 3, body=b"\xff\xff" + b"\0\0" + b"\0\0\0\x05" + bytes(4 + LARGE))


async def send_acks_0(gateway: Gateway) -> None:
    """Send a large request without acknowledgement, and close when the gateway has taken it."""
    async with await RawClient.connect(first_port(gateway)) as client:
        client.send(LARGE_ACKS_0)
        await until(lambda: gateway.clients.rows() != [], "the gateway has taken it")


async def test_stop_sends_what_was_taken_without_acknowledgement() -> None:
    async with UnreadBroker() as broker:
        gateway = Gateway(gateway_options(broker.address, f"{HOST}:{free_ports()}"), PortTable())
        await gateway.start()
        await send_acks_0(gateway)
        stopping = asyncio.create_task(gateway.stop(30))
        done, _ = await asyncio.wait([stopping], timeout=0.2)
        assert not done
        broker.reads.set()
        await stopping
        await until(lambda: broker.requests != [], "the request has come")
        assert broker.requests == [LARGE_ACKS_0]


async def test_stop_leaves_no_connection_to_a_broker_that_does_not_read() -> None:
    async with UnreadBroker() as broker:
        gateway = Gateway(gateway_options(broker.address, f"{HOST}:{free_ports()}"), PortTable())
        await gateway.start()
        await send_acks_0(gateway)
        await gateway.stop(0.05)
        broker.reads.set()
        await until(lambda: broker.lost or broker.requests, "the connection has ended")
        assert broker.lost == 1


async def test_connection_to_a_broker_that_does_not_read_ends_after_its_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upstream, "CLOSE_S", 0.05)
    async with UnreadBroker() as broker, running(broker.address) as gateway:
        await send_acks_0(gateway)
        await until(lambda: "answered within 0.05 s" in caplog.text, "the gateway has given it up")
        broker.reads.set()
        await until(lambda: broker.lost or broker.requests, "the connection has ended")
        assert broker.lost == 1
