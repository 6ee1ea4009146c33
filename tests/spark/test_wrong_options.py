"""The user sees the reason of a wrong option or column, in each kind of query."""

from __future__ import annotations

import socket
import traceback
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import fill, reading, writing
from tests.support.full import in_full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


def run(frame: Any, folder: Path, **options: str) -> None:
    """Run a streaming query to its end and raise its error; into the sink of the options."""
    writer = frame.writeStream.format("kafka08" if options else "noop")
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def stream(spark: Any, cluster: EmbeddedCluster, schema: str | None = None, **options: str) -> Any:
    reader = spark.readStream.format("kafka08")
    if schema is not None:
        reader = reader.schema(schema)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t"} | options
    return reader.options(**given).load()


def assert_reason_first(error: BaseException, reason: str) -> None:
    """Check that Spark's error has the reason in its first lines, above all frames but a few."""
    text = str(error)
    assert reason in "\n".join(text.splitlines()[:8]), text


def shown(error: BaseException) -> str:
    """Return all that a user sees of an error."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("kind", ["readStream", "read"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "Did you mean 'startingOffsets' or "),
        *in_full(
            (
                {"maxOffsetsPerTrigger": "none"},
                "maxOffsetsPerTrigger='none': expected an integer >= 1",
            ),
            ({"startingOffsets": "{"}, "startingOffsets='{': invalid JSON"),
            ({"assign": '{"t":[0]}'}, "expected exactly one of the options assign, subscribe"),
        ),
    ],
)
def test_wrong_read_option_raises_in_load(
    spark: Any, cluster: EmbeddedCluster, kind: str, options: dict[str, str], message: str
) -> None:
    """As in Spark's own source: not in the background, once the query runs."""
    reader = getattr(spark, kind).format("kafka08")
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t"} | options
    with pytest.raises(Exception) as caught:  # noqa: PT011
        reader.options(**given).load()
    assert_reason_first(caught.value, message)


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"endingOffsets": "latest"}, "endingOffsets='latest' is not supported in streaming"),
        *in_full(
            (
                COLUMNS,
                {"maxOffsetsPerTrigger": "none"},
                "maxOffsetsPerTrigger='none': expected an int",
            ),
            (
                "a int",
                {},
                "schema struct<a:int>: the schema of kafka08 is fixed; expected struct<key:",
            ),
        ),
    ],
)
def test_refused_stream_shows_the_reason_last(
    spark: Any,
    cluster: EmbeddedCluster,
    tmp_path: Path,
    schema: str | None,
    options: dict[str, str],
    message: str,
) -> None:
    """PySpark must not stop a reader that it was never given: that would hide the reason."""
    frame = stream(spark, cluster, schema, **options)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(frame, tmp_path)
    assert_reason_first(caught.value, message)
    assert "UnboundLocalError" not in shown(caught.value)


@pytest.mark.full
def test_wrong_option_at_a_restart_shows_the_reason(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """With a checkpoint, Spark doesn't ask for the initial offset."""
    fill(cluster, [3])
    run(stream(spark, cluster), tmp_path)
    for pending in (False, True):
        if pending:  # the last batch is repeated: its partitions are asked for first
            commits = tmp_path / "checkpoint" / "commits"
            for path in commits.glob("*0*"):
                path.unlink()
        with pytest.raises(Exception, match="endingOffsets='latest' is not supported") as caught:
            run(stream(spark, cluster, endingOffsets="latest"), tmp_path)
        assert "UnboundLocalError" not in shown(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.acks": "few"}, "kafka.acks='few': expected"),
        *in_full(
            ({"topics": "t"}, "topics=…: unknown option"),
            (
                {"topic": "t"},
                "no column 'value', columns: v; expected a column 'value' of type string",
            ),
        ),
    ],
)
def test_wrong_sink_shows_the_reason(
    spark: Any,
    cluster: EmbeddedCluster,
    tmp_path: Path,
    options: dict[str, str],
    message: str,
) -> None:
    fill(cluster, [3])
    with pytest.raises(Exception) as batch:  # noqa: PT011
        writing(reading(spark, cluster).selectExpr("value AS v"), cluster, **options)
    assert_reason_first(batch.value, message)
    source = stream(spark, cluster, startingOffsets="earliest").selectExpr("value AS v")
    given = {"kafka__bootstrap__servers": cluster.bootstrap_servers} | options
    with pytest.raises(Exception) as streamed:  # noqa: PT011
        run(source, tmp_path, **given)
    assert_reason_first(streamed.value, message)
    assert "UnboundLocalError" not in shown(streamed.value)


def use_wrong_address(spark: Any, servers: str, folder: Path, kind: str) -> None:
    """Run a query that waits for a broker for half a second, and would retry other requests."""
    options = {"kafka.request.timeout.ms": "500"}
    again = options | {"subscribe": "t", "fetchOffset.numRetries": "1000000"}
    if kind == "batch":
        reading(spark, servers, **again).count()
    elif kind == "stream":
        reader = spark.readStream.format("kafka08").options(**again)
        run(reader.option("kafka.bootstrap.servers", servers).load(), folder)
    else:
        writing(spark.range(1).selectExpr("'x' AS value"), servers, topic="t", **options)


@pytest.mark.parametrize("kind", ["batch", "stream", "write"])
def test_wrong_address_shows_the_reason_first(spark: Any, tmp_path: Path, kind: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{listener.getsockname()[1]}"  # refuses connections
        with pytest.raises(Exception) as caught:  # noqa: PT011
            use_wrong_address(spark, servers, tmp_path, kind)
    assert_reason_first(caught.value, f"no broker among bootstrap_servers: {servers}: ")
    advice = (
        "start the brokers, or correct the option kafka.bootstrap.servers, or set "
        "kafka.request.timeout.ms above 500"
    )
    assert_reason_first(caught.value, advice)
