"""Which clients need the gateway: the table, its pages' values, and what a gateway counts."""

from __future__ import annotations

import struct

import pytest

from aiokafka08._core.metrics.text_format import write_text
from aiokafka08._tools.gateway.clients import MAX_CLIENTS, MAX_COUNTED, ClientTable, Fate
from aiokafka08._tools.gateway.gateway import state_families
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import HOST, ScriptedBroker, connected

pytestmark = pytest.mark.fast


def test_client_needs_the_gateway_if_a_request_was_translated() -> None:
    now = [1_795_000_000.0]
    table = ClientTable(lambda: now[0])
    table.count("new", "10.0.0.1", ("Fetch", 11, Fate.PASSED), software="librdkafka 2.0")
    table.count(None, "10.0.0.2", ("Fetch", 1, Fate.TRANSLATED))
    now[0] += 60
    table.count(None, "10.0.0.2", ("Fetch", 1, Fate.TRANSLATED))
    table.count(None, "10.0.0.2", ("Vote", -1, Fate.REFUSED))
    assert table.rows() == [
        {
            "client_id": "",
            "address": "10.0.0.2",
            "principal": "",
            "listener": "",
            "software": "",
            "needs_gateway": True,
            "first_seen": "2026-11-18T11:06:40+00:00",
            "last_seen": "2026-11-18T11:07:40+00:00",
            "messages": 0,
            "errors": 0,
            "requests": {"translated": {"Fetch": {"1": 2}}, "refused": {"Vote": {"-1": 1}}},
        },
        {
            "client_id": "new",
            "address": "10.0.0.1",
            "principal": "",
            "listener": "",
            "software": "librdkafka 2.0",
            "needs_gateway": False,
            "first_seen": "2026-11-18T11:06:40+00:00",
            "last_seen": "2026-11-18T11:06:40+00:00",
            "messages": 0,
            "errors": 0,
            "requests": {"passed": {"Fetch": {"11": 1}}},
        },
    ]


def test_tables_of_workers_add_up() -> None:
    now = [100.0]
    workers, all_clients = [ClientTable(lambda: now[0]) for _ in range(2)], ClientTable()
    for _ in range(2):
        for table in workers:
            table.count("a", HOST, ("Fetch", 1, Fate.TRANSLATED), listener="old")
            table.count("a", HOST, None, listener="old", messages=5, errors=1)
            now[0] += 1
        workers[0].count("b", HOST, ("Fetch", 11, Fate.PASSED), software="librdkafka 2.0")
        for table in workers:
            all_clients.add(*table.take())
            assert table.rows() == []
    rows = {row["client_id"]: row for row in all_clients.rows()}
    assert rows["a"]["requests"] == {"translated": {"Fetch": {"1": 4}}}
    assert (rows["a"]["listener"], rows["a"]["needs_gateway"]) == ("old", True)
    assert (rows["a"]["messages"], rows["a"]["errors"]) == (20, 4)
    assert [rows["a"][field][-8:-6] for field in ("first_seen", "last_seen")] == ["40", "43"]
    assert rows["b"]["software"] == "librdkafka 2.0"
    text = write_text(all_clients.families()).decode()
    assert 'requests_total{api="Fetch",version="1",fate="translated"} 4' in text


def test_table_keeps_the_clients_that_were_seen_last() -> None:
    table = ClientTable(lambda: 0.0)
    for number in range(MAX_CLIENTS):
        table.count(f"{number}" + "x" * 1000, HOST, ("Fetch", 1, Fate.TRANSLATED))
    table.count("0" + "x" * 1000, HOST, ("Fetch", 1, Fate.TRANSLATED))
    table.count("another", HOST, ("Fetch", 1, Fate.TRANSLATED))
    ids = {row["client_id"] for row in table.rows()}
    assert len(ids) == MAX_CLIENTS
    assert "0" + "x" * 254 in ids
    assert "1" + "x" * 254 not in ids


def test_client_that_needs_the_gateway_stays_longer_than_others() -> None:
    table = ClientTable(lambda: 0.0)
    table.count("monthly", HOST, ("Fetch", 1, Fate.TRANSLATED))
    for number in range(MAX_CLIENTS):
        table.count(f"{number}", HOST, ("Fetch", 11, Fate.PASSED))
    ids = [row["client_id"] for row in table.rows()]
    assert len(ids) == MAX_CLIENTS
    assert ids[0] == "monthly"
    assert "0" not in ids


def test_counts_of_one_client_are_limited() -> None:
    table = ClientTable(lambda: 0.0)
    for version in range(MAX_COUNTED):
        table.count("a", HOST, ("Fetch", version, Fate.PASSED))
    for version in range(300):
        table.count("a", HOST, ("Produce", version, Fate.TRANSLATED))
    (row,) = table.rows()
    assert row["needs_gateway"]
    assert row["requests"]["translated"] == {"others": {"-1": 300}}
    assert len(row["requests"]["passed"]["Fetch"]) == MAX_COUNTED


async def test_gateway_counts_what_becomes_of_requests() -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers) as (gateway, client),
    ):
        await client.call(MetadataRequest(["t"]), 1)
        wanted = [Topic("t", [ListOffsetsPartition(0, LATEST)])]
        await client.call(ListOffsetsRequest(-1, wanted), 0)
        client.send(struct.pack(">hhih", 4, 77, 1, 10) + b"raw client")
        assert await client.is_closed()
        (row,) = gateway.clients.rows()
        assert (row["client_id"], row["address"], row["needs_gateway"]) == (
            "raw client",
            HOST,
            True,
        )
        assert row["requests"] == {
            "passed": {"Metadata": {"1": 1}},
            "translated": {"ListOffsets": {"0": 1}},
            "refused": {"LeaderAndIsr": {"-1": 1}},
        }
        text = write_text([*gateway.clients.families(), *state_families(gateway.states())]).decode()
        assert 'requests_total{api="ListOffsets",version="0",fate="translated"} 1' in text
        assert 'aiokafka08_gateway_clients{needs_gateway="true"} 1' in text
        assert 'aiokafka08_gateway_listening{node="0",listener=""} 1' in text


async def test_library_is_told_by_api_versions() -> None:
    request = struct.pack(">hhih", 18, 3, 1, -1) + b"\0" + b"\x0blibrdkafka" + b"\x062.3.0" + b"\0"
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + bytes(2) + b"\x01" + bytes(5)) as broker,
        connected(broker.address) as (gateway, client),
    ):
        client.send(request)
        await client.frame()
        assert gateway.clients.rows()[0]["software"] == "librdkafka 2.3.0"
