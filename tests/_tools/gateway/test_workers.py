"""`--workers`: processes that share the ports, the list of clients and the metrics of all."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from aiokafka08._tools.gateway import workers as workers_module
from aiokafka08._tools.gateway.gateways import Gateways
from aiokafka08._tools.gateway.options import MAX_BROKERS, gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08._tools.gateway.workers import Report, Workers, WorkerTable, work
from aiokafka08.errors import IllegalStateError, KafkaConnectionError
from aiokafka08.protocol.api import decode_response
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import HOST, RawClient, ScriptedBroker
from tests._tools.gateway.worker_processes import (
    WorkersGateway,
    connect,
    states,
    workers_gateway,
)
from tests.brokers.ports import free_ports
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

CONNECTIONS = 24
LIST_GROUPS = struct.pack(">hhih", 16, 0, 1, 1) + b"c"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[WorkersGateway]:
    with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        workers_gateway(cluster.bootstrap_servers, tmp_path, 2, "--observe") as made,
    ):
        yield made


def ask(connection: socket.socket) -> bool:
    """Send ListGroups; return whether the gateway has answered it."""
    try:
        connection.sendall(len(LIST_GROUPS).to_bytes(4, "big") + LIST_GROUPS)
        return bool(connection.recv(4096))
    except ConnectionError:
        return False


def counted(gateway: WorkersGateway) -> int:
    """Return how many ListGroups the list of clients has; the metrics have as many."""
    requests = [one["requests"] for one in gateway.clients() if one["client_id"] == "c"]
    count = sum(one["passed"]["ListGroups"]["0"] for one in requests)
    text = gateway.page("metrics").decode()
    for series in (
        'requests_total{api="ListGroups",version="0",fate="passed"}',
        'request_seconds_count{api="ListGroups"}',
    ):
        found = re.search(rf"^aiokafka08_gateway_{re.escape(series)} (\S+)$", text, re.M)
        if found is None or float(found[1]) != count:
            return -1  # the list is newer than the metrics, or the other way round
    return count


def test_workers_share_connections_and_one_that_is_killed_comes_back(
    gateway: WorkersGateway,
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(gateway.port)) for _ in range(CONNECTIONS)]
        assert all(map(ask, clients))
        workers = gateway.workers()
        shares = [states(one)[psutil.CONN_ESTABLISHED] for one in workers]
        assert len(workers) == 2
        assert all(shares)  # each client has a connection to a broker behind it
        wait_for(lambda: counted(gateway) == CONNECTIONS, 30, "all requests are counted")
        open_connections = f'aiokafka08_gateway_connections{{node="0",listener=""}} {CONNECTIONS}'
        wait_for(lambda: open_connections in gateway.page("metrics").decode(), 30, "connections")

        workers[0].kill()
        workers[0].wait(30)
        answered = sum(map(ask, clients))
        assert answered == shares[1] / 2
        assert metadata(gateway.port, ["t"]).leaders["t"] == {0: 0}
        wait_for(lambda: "starting it again in 1 s" in gateway.log(), 30, "the end is logged")
        assert f"(process {workers[0].pid}) has ended with code -9" in gateway.log()
        gateway.wait_for_workers()
        wait_for(lambda: counted(gateway) == CONNECTIONS + answered, 30, "no count is lost")

    assert gateway.end(signal.SIGTERM) < 30
    assert gateway.code == 0
    assert gateway.log().endswith("aiokafka08: stopped\n")
    assert "Traceback" not in gateway.log()


def test_workers_end_with_a_gateway_that_is_killed(gateway: WorkersGateway, tmp_path: Path) -> None:
    """No file is left, not even of a gateway that measures."""
    with connect(gateway.port) as client:
        assert ask(client)
        gateway.end(signal.SIGKILL)
        assert not ask(client)
    assert [one.name for one in tmp_path.iterdir()] == ["gateway.log"]


async def learn(table: WorkerTable, node_ids: Iterable[int]) -> None:
    learning = table.learn(node_ids)
    assert learning is not None
    await learning


def use_table(number: int, pipe: Connection) -> None:
    """Be a worker that finds brokers 0 and its own number, then too many."""

    async def run() -> None:
        table = WorkerTable(pipe)
        await learn(table, [number, 0])
        table.add([number, 0])
        own = table.indices[number]
        await learn(table, range(MAX_BROKERS + 1))
        ports = {str(number): {number: own}}
        await table.send(Report([], Counter(), [], ports, Counter()))
        try:
            table.add(range(MAX_BROKERS + 1))
        except IllegalStateError:
            await table.stopped.wait()

    asyncio.run(run())


async def test_workers_get_the_indices_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "SILENT_S", 120.0)  # they report once
    context, processes = multiprocessing.get_context("spawn"), []

    def new_process(number: int, pipe: Connection) -> BaseProcess:
        processes.append(context.Process(target=use_table, args=(number, pipe)))
        return processes[-1]

    table = PortTable()
    workers = Workers(2, new_process, gateway_options("kafka:9092"), table)
    await workers.start()
    assert table.indices[0] == 0
    assert sorted(table.indices.values()) == [0, 1, 2]
    ports = {number: workers.address_of(number, "kafka", 9092)[1] for number in (0, 1, 2)}
    assert sorted(ports.values()) == [9092, 9093, 9094]
    await workers.stop()
    assert [one.exitcode for one in processes] == [0, 0]


@pytest.mark.fast
@pytest.mark.parametrize("answers", [True, False])
async def test_keeper_that_is_stuck_holds_up_nobody_else(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of brokers with a new one waits for its port. Without an answer it has port 0."""
    if not answers:
        monkeypatch.setattr(workers_module, "ANSWER_S", 0.1)
    port, goes_on, has_gone_on = free_ports(), threading.Event(), threading.Event()
    keeper, pipe = multiprocessing.Pipe()

    def keep() -> None:
        assert keeper.recv() == [0]
        keeper.send({0: 0})
        assert keeper.recv() == [5]
        goes_on.wait(10)
        has_gone_on.set()
        keeper.send({0: 0, 5: 1})

    def answer(frame: bytes) -> bytes:
        nodes = {0: broker.port, 5: broker.port}
        return frame[4:8] + (broker.metadata(nodes) if frame[1] == 3 else bytes(6))

    with keeper, pipe:
        async with ScriptedBroker(answer) as broker:
            table, keeping = WorkerTable(pipe), asyncio.create_task(asyncio.to_thread(keep))
            options = gateway_options(broker.address, f"{HOST}:{port}")
            gateways = Gateways([options], table)
            await gateways.start()
            async with (
                await RawClient.connect(port) as first,
                await RawClient.connect(port) as other,
            ):
                first.send_request(MetadataRequest([]), 1)
                await until(lambda: len(broker.requests) == 1)
                for _ in range(3):
                    other.send(LIST_GROUPS)
                    assert await other.frame()
                assert not has_gone_on.is_set()
                if answers:
                    goes_on.set()
                found = decode_response(MetadataRequest, 1, await first.frame())
                ports = {one.node_id: one.port for one in found.brokers}
                assert ports == {0: port, 5: port + 1 if answers else 0}
                assert has_gone_on.is_set() == answers
                goes_on.set()
                await keeping
                await until(lambda: 5 in table.indices)
                assert (await other.call(MetadataRequest([]), 1)).brokers[1].port == port + 1
            await gateways.stop()


def serve(number: int, pipe: Connection, targets: str, listen: str) -> None:
    """Be a worker."""

    async def run() -> None:
        table = WorkerTable(pipe)
        await work(Gateways([gateway_options(targets, listen)], table, shares_ports=True), table)

    asyncio.run(run())


async def test_worker_that_is_stopped_is_killed_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_module, "SILENT_S", 3.0)  # three reports
    listen, context = f"{HOST}:{free_ports()}", multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        arguments = cluster.bootstrap_servers, listen

        def new_process(number: int, pipe: Connection) -> BaseProcess:
            processes.append(context.Process(target=serve, args=(number, pipe, *arguments)))
            return processes[-1]

        workers = Workers(1, new_process, gateway_options(*arguments), PortTable())
        await workers.start()
        try:
            (stopped,) = processes
            assert stopped.pid is not None
            os.kill(stopped.pid, signal.SIGSTOP)
            await until(lambda: stopped.exitcode == -signal.SIGKILL, timeout_s=60)
            text = f"worker 1 (process {stopped.pid}) has not reported for 6 s, and ended with"
            await until(lambda: text in caplog.text, timeout_s=60)
            await until(lambda: len(workers.states()) == 1, timeout_s=60)
            address = workers.address_of(0, "", 0)
            async with await RawClient.connect(address[1]) as client:
                client.send(LIST_GROUPS)
                assert await client.frame()
        finally:
            await workers.stop()
    assert processes[-1].exitcode == 0


async def test_sigterm_ends_workers_whose_clients_are_connected(tmp_path: Path) -> None:
    """One of them has a request in flight, which the target never answers."""

    def run() -> None:
        with (
            workers_gateway(broker.address, tmp_path, 2) as gateway,
            connect(gateway.port),
            connect(gateway.port) as waits,
        ):
            waits.sendall(len(LIST_GROUPS).to_bytes(4, "big") + LIST_GROUPS)
            wait_for(lambda: LIST_GROUPS in broker.requests, 60, "the request is in flight")
            gateway.end(signal.SIGTERM)
            assert gateway.code == 0
            # A worker ends by its own limit; or by its keeper's, on a busy machine.
            limits = "connections closed after 5 s with requests", "is killed: it hasn't ended"
            assert any(limit in gateway.log() for limit in limits), gateway.log()
            assert "Traceback" not in gateway.log()

    async with ScriptedBroker(lambda frame: b"") as broker:
        await asyncio.to_thread(run)


async def test_worker_that_cannot_start_ends_the_others() -> None:
    context, processes = multiprocessing.get_context("spawn"), []

    def new_process(number: int, pipe: Connection) -> BaseProcess:
        if number == 1:
            processes.append(context.Process(target=os._exit, args=(3,)))
        else:
            processes.append(context.Process(target=use_table, args=(number, pipe)))
        return processes[-1]

    workers = Workers(2, new_process, gateway_options("kafka:9092"), PortTable())
    with pytest.raises(KafkaConnectionError, match=r"worker 1 .* has ended with code 3, before"):
        await workers.start()
    assert all(one.exitcode is not None for one in processes)
