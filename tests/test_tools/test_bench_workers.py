"""The processes of the benchmark: this package's own clients, and the one that delays responses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Answer, Close, EmbeddedCluster
from tests.brokers import free_port
from tests.support.full import in_full
from tests.tools.bench.cases import values
from tests.tools.bench.measure import WARM_UP
from tests.tools.bench.run import FailedError, measure

pytestmark = pytest.mark.timeout(600)  # on a busy machine a process starts in half a minute

MESSAGES = 2000
DELAY_S = 0.2
CLOCK_S = 0.005
"""uvloop's clock has a resolution of a millisecond."""
TOPICS = {"several": 4, "more": 4}
READING = ("getmany", "iterate", "arrow")


def work(
    client: str,
    call: str,
    bootstrap: str,
    topic: object,
    compression: str | None = None,
    **options: int,
) -> dict[str, float]:
    job = {
        "client": client,
        "call": call,
        "produces": call not in READING,
        "bootstrap": bootstrap,
        "topic": topic,
        "messages": MESSAGES,
        "value_bytes": 100,
        "compression": compression,
        "options": options,
    }
    return measure([sys.executable, "-m", "tests.tools.bench.worker", json.dumps(job)])


@pytest.mark.kafka_cluster(topics={"three": 3})
def test_sent_messages_are_read(kafka_bootstrap_servers: str) -> None:
    sent = work("ours", "send", kafka_bootstrap_servers, "three")
    read = work("ours", "getmany", kafka_bootstrap_servers, "three")
    assert sent["messages"] == MESSAGES
    assert read["messages"] >= MESSAGES
    for one in (sent, read):
        assert one["seconds"] > 0
        assert one["cpu_seconds"] > 0
        assert one["ticker_max_ms"] >= one["ticker_p999_ms"] >= 0


@pytest.mark.kafka_cluster(topics={"three": 3})
def test_fill_writes_sets_of_the_requested_size(
    kafka_cluster: EmbeddedCluster,
) -> None:
    work("ours", "fill", kafka_cluster.bootstrap_servers, "three", set_bytes=6400, partitions=3)
    sets = [
        len(part.message_set)
        for request in kafka_cluster.requests(ProduceRequest)
        for topic in request.topics
        for part in topic.partitions
    ]
    assert sum(sets) == MESSAGES * 126
    # The last set of each partition has the rest.
    assert sorted(sets)[3:] == [50 * 126] * (len(sets) - 3)


@pytest.mark.kafka_cluster(topics={"three": 3})
@pytest.mark.parametrize(
    "call",
    ["one_by_one", *in_full("one_by_one_asyncio", "loops", "loops_asyncio")],
)
def test_a_floor_stores_the_messages_of_ours(kafka_cluster: EmbeddedCluster, call: str) -> None:
    for client in ("floors", "ours"):
        sent = work(client, call, kafka_cluster.bootstrap_servers, "three")
        assert sent["messages"] == MESSAGES
    stored = [
        message.value for partition in range(3) for message in kafka_cluster.log("three", partition)
    ]
    assert len(stored) == 2 * (MESSAGES + WARM_UP)
    assert set(map(stored.count, set(stored))) <= {2, 4, 2 * (WARM_UP + 1)}


@pytest.mark.kafka_cluster(topics={"three": 3})
def test_a_floor_with_the_codec_stores_the_messages(kafka_cluster: EmbeddedCluster) -> None:
    calls = ("send", "send_many", "send_many_few")
    for call in calls:
        sent = work("produce_floors", call, kafka_cluster.bootstrap_servers, "three")
        assert sent["messages"] == MESSAGES
    stored = Counter(
        message.value for partition in range(3) for message in kafka_cluster.log("three", partition)
    )
    warm_up, rest = values(MESSAGES, 100)[:WARM_UP], values(MESSAGES, 100)[WARM_UP:]
    assert stored == Counter(warm_up * 2 * len(calls)) + Counter(rest * len(calls))


@pytest.mark.kafka_cluster(topics={"three": 3})
@pytest.mark.parametrize("compression", [None, *in_full("lz4")])
def test_a_floor_with_the_codec_reads_the_messages(
    kafka_bootstrap_servers: str, compression: str | None
) -> None:
    work("produce_floors", "send_many", kafka_bootstrap_servers, "three", compression)
    for call in READING:
        read = work("consume_floors", call, kafka_bootstrap_servers, "three")
        assert MESSAGES <= read["messages"] <= MESSAGES + WARM_UP


@pytest.mark.kafka_cluster(topics={"three": 3})
@pytest.mark.parametrize("then", [Answer(7), Close()])
def test_a_floor_whose_messages_arent_stored_fails(
    kafka_cluster: EmbeddedCluster, then: Answer | Close
) -> None:
    kafka_cluster.fault(ProduceRequest, then=then, nth=3)
    with pytest.raises(FailedError, match=r"expected|closed by the broker"):
        work("produce_floors", "send", kafka_cluster.bootstrap_servers, "three")


@pytest.mark.kafka_cluster(topics={"three": 3})
def test_a_floor_whose_fetch_is_refused_fails(kafka_cluster: EmbeddedCluster) -> None:
    work("produce_floors", "send_many", kafka_cluster.bootstrap_servers, "three")
    kafka_cluster.fault(FetchRequest, then=Answer(6), nth=2)
    with pytest.raises(FailedError, match="error code 6"):
        work("consume_floors", "getmany", kafka_cluster.bootstrap_servers, "three")


@pytest.mark.kafka_cluster(topics=TOPICS)
@pytest.mark.parametrize("call", ["send", "send_many"])
def test_growth_counts_batches_and_bytes_sent(kafka_bootstrap_servers: str, call: str) -> None:
    sizes = {"max_batch_size": 6400, "max_request_size": 6400, "linger_ms": 60_000}
    sent = work("growth", call, kafka_bootstrap_servers, TOPICS, None, **sizes)
    # 250 messages of 126 bytes for each partition, 50 in a batch.
    assert sent["batches"] == 8 * 5
    assert sent["requests"] == sent["batches"]
    assert sent["bytes"] == MESSAGES * 126
    assert work("growth", "getmany", kafka_bootstrap_servers, TOPICS)["messages"] >= MESSAGES


def test_responses_are_delayed() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        pair = f"{port}=127.0.0.1:{upstream.getsockname()[1]}"
        command = [sys.executable, "-m", "tests.tools.bench.delay", pair]
        # Leaving the context closes its stdin, which ends it.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{DELAY_S}\n")
            process.stdin.flush()
            assert float(process.stdout.readline()) == DELAY_S
            threading.Thread(target=echo_once, args=(upstream,), daemon=True).start()
            with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
                begun = time.monotonic()
                client.sendall(b"ping")
                assert client.recv(4) == b"ping"
                took = time.monotonic() - begun
        assert process.returncode == 0
        assert took >= DELAY_S - CLOCK_S


def echo_once(upstream: socket.socket) -> None:
    connection, _ = upstream.accept()
    with connection:
        connection.sendall(connection.recv(4))
