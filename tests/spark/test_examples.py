"""The Spark examples and the stream of docs/spark.md run, with the session's Spark."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import fill
from tests.support.paths import ROOT

aggregate = runpy.run_path(str(ROOT / "examples" / "spark_aggregate.py"))["aggregate"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_stream_of_the_page_goes_on_where_it_ended(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    session, _, _ = blocks[0].partition("events = (")
    [stream] = [block for block in blocks if '"/lake/checkpoints/events"' in block]
    program = (session + stream).replace("kafka1:9092,kafka2:9092", cluster.bootstrap_servers)
    cluster.create_topic("events")
    sent = []
    for value in (b"tea", b"milk"):
        cluster.append("events", 0, [value])
        sent.append(value)
        exec(program.replace('"/lake/', f'"{tmp_path}/'), {})
        written = spark.read.parquet(str(tmp_path / "events")).collect()
        assert sorted(bytes(row.value) for row in written) == sorted(sent)


def test_write_of_the_page_copies_a_topic(spark: Any, cluster: EmbeddedCluster) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    read, _, _ = blocks[0].partition("events.write")
    [write] = [block for block in blocks if '"copy"' in block]
    for topic in ("events", "copy"):
        cluster.create_topic(topic)
    cluster.append("events", 0, [b"tea"])
    exec((read + write).replace("kafka1:9092,kafka2:9092", cluster.bootstrap_servers), {})
    assert [message.value for message in cluster.log("copy", 0)] == [b"tea"]


def program(example: str, *arguments: str) -> None:
    """Run an example as a program in this process, where `getOrCreate` finds the session."""
    path = str(ROOT / "examples" / example)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")


def test_lake_job_of_guide_copies_what_is_new(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The session must outlive the program, which runs in this process."""
    page = (ROOT / "docs/guides/spark_deployment.md").read_text()
    [code] = re.findall(r"^```python\n# orders_to_lake.py\n(.*?)^```$", page, re.M | re.S)
    job = tmp_path / "orders_to_lake.py"
    job.write_text(code)
    cluster.create_topic("orders", 2)

    def orders() -> list[str]:
        arguments = ["--bootstrap", cluster.bootstrap_servers, "--lake", str(tmp_path)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(job), *arguments])
            runpy.run_path(str(job), run_name="__main__")
        return sorted(row.order for row in spark.read.parquet(f"{tmp_path}/orders").collect())

    cluster.append("orders", 0, [b"tea"])
    cluster.append("orders", 1, [b"milk"])
    assert orders() == ["milk", "tea"]
    assert orders() == ["milk", "tea"]
    cluster.append("orders", 1, [b"sugar"])
    assert orders() == ["milk", "sugar", "tea"]


def test_drain_copies_topic_and_prints_end_offsets(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedCluster(version="0.10", topics={"t": 3}) as target:

        def drain() -> Any:
            program(
                "spark_drain.py",
                *("--source", cluster.bootstrap_servers, "--target", target.bootstrap_servers),
                *("--topic", "t", "--checkpoint", str(tmp_path)),
            )
            copied = [[one.value for one in target.log("t", partition)] for partition in range(3)]
            there = [[one.value for one in cluster.log("t", partition)] for partition in range(3)]
            assert copied == there
            printed = capsys.readouterr().out.strip()
            assert printed.startswith("copied t up to ")
            return json.loads(printed.removeprefix("copied t up to "))

        fill(cluster, [5, 0, 3])
        assert drain() == {"t": {"0": 5, "1": 0, "2": 3}}
        fill(cluster, [1, 1, 1])
        assert drain() == {"t": {"0": 6, "1": 1, "2": 4}}
        assert drain() == {"t": {"0": 6, "1": 1, "2": 4}}


@pytest.mark.full
def test_aggregate_counts_by_minute_and_plots(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def send(*events: tuple[str, str]) -> None:
        for number, (minute, kind) in enumerate(events):
            event = {"time": f"2026-01-31T12:{minute}:07Z", "kind": kind}
            cluster.append("t", number % 3, [json.dumps(event).encode()])

    image = tmp_path / "plot.svg"
    send(("00", "in"), ("00", "in"), ("00", "out"), ("01", "in"))
    cluster.append("t", 0, [b"no JSON"])
    run = (spark, cluster.bootstrap_servers, "t", str(tmp_path / "checkpoint"), image)
    rows = aggregate(*run)
    assert [(row.minute.minute, row.kind, row["count"]) for row in rows] == [
        (0, "in", 2),
        (0, "out", 1),
        (1, "in", 1),
    ]
    send(("01", "in"), ("02", "<out>"))
    program(
        "spark_aggregate.py",
        *("--bootstrap", cluster.bootstrap_servers, "--topic", "t"),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--plot", str(image)),
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line[13:] for line in lines] == [
        ":00 in: 2",
        ":00 out: 1",
        ":01 in: 2",
        ":02 <out>: 1",
    ]
    rows = aggregate(*run)
    assert [(row.minute.minute, row.kind, row["count"]) for row in rows] == [
        (0, "in", 2),
        (0, "out", 1),
        (1, "in", 2),
        (2, "<out>", 1),
    ]
    tree = ElementTree.fromstring(image.read_text())
    assert len([one for one in tree.iter() if one.tag.endswith("title")]) == 9


@pytest.mark.full
def test_update_mode_of_the_page_writes_changed_rows(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """Spark refuses the mode for a Python sink; the page's foreachBatch writes what changed."""
    page = (ROOT / "docs" / "spark.md").read_text()
    [program] = [one for one in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
                 if "foreachBatch" in one]  # fmt: skip
    (tmp_path / "words").mkdir()
    words = spark.readStream.schema("word string").text(str(tmp_path / "words"))
    names: dict[str, Any] = {
        "words": words.withColumnRenamed("value", "word"),
        "servers": cluster.bootstrap_servers,
        "checkpoints": str(tmp_path / "checkpoints"),
    }
    cluster.create_topic("counts")

    def count(*given: str) -> dict[bytes | None, bytes | None]:
        begin = cluster.offsets("counts", 0).end
        (tmp_path / "words" / str(begin)).write_text("\n".join(given))
        exec(program, names)
        assert names["query"].awaitTermination(120)
        return {one.key: one.value for one in cluster.log("counts", 0)[begin:]}

    assert count("a", "b", "a") == {b"a": b"2", b"b": b"1"}
    assert count("b") == {b"b": b"2"}
    refused = (
        names["words"]
        .groupBy("word")
        .count()
        .selectExpr("CAST(count AS STRING) AS value")
        .writeStream.outputMode("update")
        .format("kafka08")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", "counts")
        .option("checkpointLocation", str(tmp_path / "refused"))
        .start()
    )
    with pytest.raises(Exception, match="kafka08 does not support Update mode"):
        refused.awaitTermination(120)
