"""`bench`, and the progress bar."""

from __future__ import annotations

import io

import pytest

from aiokafka08._tools.cli import progress
from aiokafka08._tools.cli.moving.benchmark import latency_row, throughput_row
from aiokafka08._tools.cli.progress import Progress
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand


@pytest.mark.kafka_cluster(topics={"test": 2})
def test_bench_moves_what_it_counts(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    at = ["-b", kafka_cluster.bootstrap_servers, "--format", "json"]
    flags = ["-c", "5000", "--size", "50", "-z", "gzip", "--rate", "100MB/s"]
    (row,) = cli("bench", "produce", "test", *at, *flags).json
    assert (row["messages"], row["bytes"]) == (5000, 250_000)
    assert sum(kafka_cluster.offsets("test", one).end for one in (0, 1)) == 5000
    (row,) = cli("bench", "consume", "test", *at).json
    assert (row["messages"], row["bytes"]) == (5000, 250_000)
    rows = cli("bench", "latency", "test", *at, "-c", "3").json
    assert [(row["bench"], row["messages"]) for row in rows] == [
        ("acknowledged", 3),
        ("end to end", 3),
    ]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows)


@pytest.mark.kafka_cluster(auto_create=False)
@pytest.mark.parametrize("name", ["produce", "consume", "latency"])
def test_bench_of_an_unknown_topic_is_one_line(
    name: str, cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    done = cli("bench", name, "nothing", "-b", kafka_cluster.bootstrap_servers)
    assert (done.code, done.out) == (1, b"")
    assert "topic 'nothing' doesn't exist" in done.err
    assert done.err.count("\n") == 1


def test_rows_have_rates_and_percentiles() -> None:
    row = throughput_row("produce", 1000, 50_000, 0.5)
    assert (row["messages_per_s"], row["mb_per_s"], row["seconds"]) == (2000, 0.1, 0.5)
    row = latency_row("end to end", [number / 1000 for number in range(100, 0, -1)], 10)
    assert (row["p50_ms"], row["p90_ms"], row["p99_ms"], row["max_ms"]) == (51, 91, 100, 100)
    assert row["bytes"] == 1000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "total", "delay_s", "is_drawn"),
    [
        (Terminal(), 10, 0.0, True),
        (Terminal(), None, 0.0, False),
        (Terminal(), 10, 100.0, False),
        (io.StringIO(), 10, 0.0, False),
    ],
    ids=["terminal", "unknown end", "short", "pipe"],
)
def test_bar_is_drawn_for_long_work_on_a_terminal(
    stderr: io.StringIO,
    total: int | None,
    delay_s: float,
    is_drawn: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "DELAY_S", delay_s)
    monkeypatch.setattr("sys.stderr", stderr)
    with Progress("consumed", total, "messages") as bar:
        bar.add(5)
        bar.add(5)
    assert ("consumed" in stderr.getvalue()) == is_drawn
