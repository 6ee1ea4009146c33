"""Every example runs as its docstring says, in a process of its own, on a real 0.8.2.2 broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.ports import free_port
from tests.support.environments import as_users
from tests.support.full import in_full
from tests.support.paths import ROOT
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.real

NewName = Callable[..., str]


@pytest.fixture
def cluster(broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get("0.8.2.2")


def run_example(name: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *arguments],
        input=stdin.decode(),
        capture_output=True,
        text=True,
        timeout=50,
        cwd=ROOT,
        env=as_users(),
    )
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def started(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a Python process, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=as_users() | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"{process.args!r} ended without a line that matches {pattern!r}")


async def read_values(cluster: RealCluster, topic: str, count: int) -> list[bytes | None]:
    """Read `count` values of the topic, partition by partition, each in order."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        found: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
        async with asyncio.timeout(30):
            while sum(map(len, found.values())) < count:
                for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                    found[tp.partition] += [record.value for record in records]
    return [value for values in found.values() for value in values]


def test_produce_and_consume_print_the_messages(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    options = ("--bootstrap", cluster.bootstrap_servers, "--topic", unique_topic())
    sent = run_example("produce", *options, "--count", "5").stdout.splitlines()
    assert len(sent) == 5
    read = run_example("consume", *options).stdout
    assert sorted(re.findall(r"b'hello \d'", read)) == [f"b'hello {n}'" for n in range(5)]


# --- the service ----------------------------------------------------------------------------------


APP = "examples.service:app"
GUNICORN = ("gunicorn", "--worker-class=uvicorn.workers.UvicornWorker", "--no-control-socket")


@contextmanager
def service(servers: str, *command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start the service by a server's command, and end it; print its log, which pytest shows after
    a failure.
    """
    with (
        tempfile.TemporaryFile("w+") as logged,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            stderr=logged,
            stdout=logged,
            text=True,
            cwd=ROOT,
            env=as_users() | {"KAFKA": servers} | environment,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()  # not kill(): the workers would stay
            try:
                process.wait(20)
            finally:
                process.kill()
                logged.seek(0)
                print(logged.read())


async def until_ready(client: httpx.AsyncClient) -> None:
    async def is_ready() -> bool:
        try:
            return (await client.get("/ready")).status_code == 200
        except httpx.ConnectError:  # it doesn't listen yet
            return False

    await eventually(is_ready, timeout_s=60, pause_s=0.05)


async def test_service_bills_each_order_on_0_8(cluster: RealCluster, unique_topic: NewName) -> None:
    orders, bills, port = unique_topic("orders"), unique_topic("bills"), free_port()
    for topic in (orders, bills):
        await asyncio.to_thread(cluster.create_topic, topic, 3)
    with service(
        cluster.bootstrap_servers,
        *("uvicorn", APP, f"--port={port}"),
        ZOOKEEPER=cluster.zookeeper_connect,
        METRICS_PORT="0",
        ORDERS=orders,
        BILLS=bills,
    ) as process:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_ready(client)
            bodies = [f'{{"user": {number}}}'.encode() for number in range(20)]
            responses = await asyncio.gather(
                *[client.post("/orders", content=body) for body in bodies]
            )
        assert [response.status_code for response in responses] == [200] * 20
        places = {(one.json()["partition"], one.json()["offset"]) for one in responses}
        assert len(places) == 20
        billed = await read_values(cluster, bills, 20)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) in (0, -signal.SIGTERM)
    assert sorted(filter(None, billed)) == sorted(b"bill for " + body for body in bodies)
    assert sorted(filter(None, await read_values(cluster, orders, 20))) == sorted(bodies)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("server", "listen"),
    [(("uvicorn",), "--port={}"), *in_full((GUNICORN, "--bind=127.0.0.1:{}"))],
    ids=["uvicorn", "gunicorn"],
)
async def test_service_with_two_workers_loses_no_answered_order_at_sigterm(
    server: tuple[str, ...], listen: str
) -> None:
    """Each worker has metrics of its own; both are members of the group."""
    port, metrics_port = free_port(), free_port()
    acknowledged: dict[tuple[int, int], bytes] = {}
    with EmbeddedCluster(version="0.9", topics={"orders": 4, "bills": 1}) as kafka:
        with service(
            kafka.bootstrap_servers,
            *(*server, APP, listen.format(port), "--workers=2"),
            METRICS_PORT=str(metrics_port),
        ) as process:

            async def send_orders(number: int) -> None:
                limits = httpx.Limits(max_keepalive_connections=0)  # a new worker each time
                address = f"http://127.0.0.1:{port}"
                async with httpx.AsyncClient(base_url=address, limits=limits) as client:
                    for count in itertools.count():
                        body = b"%d of %d" % (count, number)
                        try:
                            response = await client.post("/orders", content=body)
                        except httpx.TransportError:  # not answered
                            return
                        assert response.status_code == 200
                        place = response.json()
                        acknowledged[place["partition"], place["offset"]] = body

            async def partitions_of(worker: int) -> float:
                address = f"http://127.0.0.1:{metrics_port + worker}/metrics"
                async with httpx.AsyncClient() as client:
                    try:
                        text = (await client.get(address)).text
                    except httpx.TransportError:
                        return 0
                name = "aiokafka08_consumer_assigned_partitions"
                shown = re.search(name + r'{client_id="billing-\d+"} (\S+)', text)
                return float(shown[1]) if shown else 0

            async def both_read() -> bool:
                return [await partitions_of(worker) for worker in (0, 1)] == [2, 2]

            await eventually(both_read, timeout_s=100, pause_s=0.1)
            async with asyncio.TaskGroup() as senders:
                for number in range(8):
                    senders.create_task(send_orders(number))
                await until(lambda: len(acknowledged) >= 100, "orders are taken", timeout_s=30)
                process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 40) == 0
        stored = {
            (partition, message.offset): message.value
            for partition in range(4)
            for message in kafka.log("orders", partition)
        }
        assert len(acknowledged) >= 100
        assert acknowledged.items() <= stored.items()
        committed = 0
        for partition in range(4):
            commit = kafka.committed("billing", "orders", partition)
            committed += commit.offset if commit else 0
        keys = {message.key for message in kafka.log("bills", 0)}
        assert 0 < committed <= len(keys)  # no order is committed without its bill


@pytest.mark.full
@pytest.mark.timeout(200)
async def test_service_starts_again_when_its_file_changes(tmp_path: Path) -> None:
    """With `--reload`: the old process ends, and the new one gets the group's partitions."""
    program = tmp_path / "service.py"
    program.write_text((ROOT / "examples/service.py").read_text())
    port, metrics_port = free_port(), free_port()
    address = f"http://127.0.0.1:{metrics_port}/metrics"

    async def pid_of_reader() -> int | None:
        async with httpx.AsyncClient() as client:
            try:
                text = (await client.get(address)).text
            except httpx.TransportError:
                return None
        name = "aiokafka08_consumer_assigned_partitions"
        shown = re.search(name + r'{client_id="billing-(\d+)"} 4\.0', text)
        return int(shown[1]) if shown else None

    with (
        EmbeddedCluster(version="0.9", topics={"orders": 4, "bills": 1}) as kafka,
        service(
            kafka.bootstrap_servers,
            *("uvicorn", "service:app", f"--app-dir={tmp_path}", f"--port={port}"),
            *("--reload", f"--reload-dir={tmp_path}"),
            METRICS_PORT=str(metrics_port),
        ),
    ):

        async def is_read() -> bool:
            return await pid_of_reader() is not None

        await eventually(is_read, timeout_s=90, pause_s=0.1)
        old = await pid_of_reader()
        assert old is not None
        program.write_text(program.read_text() + "# changed\n")

        async def is_read_by_another() -> bool:
            return await pid_of_reader() not in (None, old)

        await eventually(is_read_by_another, timeout_s=60, pause_s=0.1)
        assert not psutil.pid_exists(old)


# --- the daemon -----------------------------------------------------------------------------------


async def test_ingest_daemon_sends_every_line_of_stdin(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    topic = unique_topic("lines")
    lines = [b"line %d" % number for number in range(20_000)]
    done = await asyncio.to_thread(
        run_example,
        "ingest_daemon",
        *("--bootstrap", cluster.bootstrap_servers, "--topic", topic, "--compression", "snappy"),
        stdin=b"\n".join(lines),
    )
    assert "20000 lines acknowledged, 0 failed" in done.stderr
    assert sorted(filter(None, await read_values(cluster, topic, 20_000))) == sorted(lines)


async def test_ingest_daemon_reads_a_regular_file(
    cluster: RealCluster, unique_topic: NewName, tmp_path: Path
) -> None:
    topic, file = unique_topic("file"), tmp_path / "lines"
    file.write_bytes(b"one\ntwo\nthree")
    arguments = ["--bootstrap", cluster.bootstrap_servers, "--topic", topic]
    with file.open("rb") as stdin:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "examples/ingest_daemon.py", *arguments],
            stdin=stdin,
            capture_output=True,
            timeout=50,
            cwd=ROOT,
            env=as_users(),
        )
    assert done.returncode == 0
    assert done.stderr.endswith(b" 3 lines acknowledged, 0 failed\n")
    assert sorted(filter(None, await read_values(cluster, topic, 3))) == [b"one", b"three", b"two"]


async def test_faststream_app_answers_with_the_correlation_id(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    orders, bills = unique_topic("orders"), unique_topic("bills")
    servers = cluster.bootstrap_servers
    with started(
        *("-m", "aiokafka08.compat", "examples/faststream_app.py"),
        KAFKA=servers,
        ORDERS=orders,
        BILLS=bills,
        AIOKAFKA08_HEADERS="embedded",
        AIOKAFKA08_ZOOKEEPER_CONNECT=cluster.zookeeper_connect,
    ) as process:
        async with (
            AIOKafkaProducer(bootstrap_servers=servers, headers="embedded") as producer,
            AIOKafkaConsumer(
                bills, bootstrap_servers=servers, auto_offset_reset="earliest", headers="embedded"
            ) as consumer,
        ):
            order = json.dumps({"number": 7, "item": "tea"}).encode()
            await producer.send_and_wait(orders, order, headers=[("correlation_id", b"id-7")])
            async with asyncio.timeout(40):
                answer = await consumer.getone()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert json.loads(answer.value or b"") == {"order": 7, "text": "one tea"}
    assert dict(answer.headers)["correlation_id"] == b"id-7"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("produce", ["--bootstrap", "kafka:x"], "error: .*port 'x'"),
        ("consume", ["--bootstrap", "kafka1 kafka2:9092"], "error: .*Separate addresses by commas"),
        ("consume", ["--topic", "a b"], "error: .*invalid topic name 'a b'"),
        (
            "ingest_daemon",
            ["--topic", "t", "--bootstrap", "kafka:1:2"],
            r"\d CRITICAL .*isn't an IPv6 address",
        ),
        ("ingest_daemon", ["--topic", "t", "--listen", "h:70000"], "'h:70000': expected HOST:PORT"),
    ],
)
def test_failure_is_an_error_of_one_line(name: str, arguments: list[str], expected: str) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=ROOT,
        env=as_users(),
    )
    assert done.returncode != 0
    assert re.search(expected, done.stderr)
    assert "Traceback" not in done.stderr


def test_address_without_a_broker_is_an_error_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # an address that refuses is tried again
        port = server.getsockname()[1]

        def respond_in_http() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(respond_in_http)
            command = [sys.executable, "examples/produce.py", "--bootstrap", f"127.0.0.1:{port}"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=50, cwd=ROOT, env=as_users()
            )
            served.result()
    assert done.returncode != 0
    assert re.search(f"error: NoBrokersAvailable.*127.0.0.1:{port}", done.stderr)
    assert "Traceback" not in done.stderr


async def test_ingest_daemon_sends_its_lines_on_sigterm(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    topic = unique_topic("tcp")
    with started(
        "examples/ingest_daemon.py",
        *("--bootstrap", cluster.bootstrap_servers, "--topic", topic),
        *("--listen", "127.0.0.1:0"),
    ) as process:
        listening = await asyncio.to_thread(wait_for_line, process, r"listening on .*:(\d+)")
        with socket.create_connection(("127.0.0.1", int(listening[1]))) as peer:
            peer.sendall(b"one\ntwo\nthree\n")
            values = await read_values(cluster, topic, 3)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0
    assert sorted(filter(None, values)) == [b"one", b"three", b"two"]


# --- workers of a group ---------------------------------------------------------------------------


@contextmanager
def worker(printed: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a group worker that prints its work into a file, and its log into one beside it."""
    with printed.open("w") as stdout, printed.with_suffix(".log").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "examples/group_worker.py", *arguments],
            stdout=stdout,
            stderr=stderr,
            cwd=ROOT,
            env=as_users(),
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def wait_for_work(sent: set[str], *files: Path) -> None:
    def done() -> set[str]:
        return {line.split(" b")[1].strip("'") for file in files for line in _lines(file)}

    await until(lambda: done() == sent, "all work is done", timeout_s=40, pause_s=0.05)


def _lines(file: Path) -> list[str]:
    """Return the complete lines of a file that grows, or doesn't exist yet."""
    text = file.read_text() if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["0.8.2.2", *in_full("0.9.0.1")])
async def test_group_workers_share_and_hand_over(
    version: str, broker_clusters: BrokerClusters, unique_topic: NewName, tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("work")
    await asyncio.to_thread(cluster.create_topic, topic, 4)
    options = ["--bootstrap", cluster.bootstrap_servers, "--topic", topic, "--group", topic]
    if version.startswith("0.8"):
        options += ["--zookeeper", cluster.zookeeper_connect]
    sent: set[str] = set()

    async def produce(name: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(40):
                value = f"{name} {number}"
                await producer.send_and_wait(topic, value.encode(), partition=number % 4)
                sent.add(value)

    one, two = tmp_path / "one", tmp_path / "two"
    with worker(one, *options) as first, worker(two, *options) as second:
        for round_ in range(100):  # until both have partitions
            await produce(f"round {round_}")
            await wait_for_work(sent, one, two)
            if _lines(one) and _lines(two):
                break
        assert _lines(one)
        assert _lines(two)
        first.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(first.wait, 20) == 0
        before = len(_lines(one))
        await produce("later")
        await wait_for_work(sent, one, two)
        assert len(_lines(one)) == before
        second.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.wait, 20) == 0
    for file, process in ((one, first), (two, second)):
        for line in _lines(file.with_suffix(".log")):
            assert re.match(rf"\d{{4}}-\d\d-\d\d [\d:,]+ {process.pid} [A-Z]+ ", line), line
        assert f" {topic}-{process.pid}: group '{topic}': " in file.with_suffix(".log").read_text()
