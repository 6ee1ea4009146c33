"""Count the events of a topic by minute and kind, and plot the result as an SVG file.

spark-submit examples/spark_aggregate.py --bootstrap old:9092 --topic events --plot events.svg \
    --checkpoint /var/lib/events

Events are JSON: {"time": "2026-01-31T12:00:00Z", "kind": "login"}. The time is a field of the
event, since brokers before 0.10 store no timestamps. Events that are more than ten minutes late are
not counted. Each run counts the new events and then ends.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from aiokafka08.spark import register

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def counts(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return a stream of (minute, kind, count)."""
    register(spark)
    messages = (
        spark.readStream.format("kafka08")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    event = f.from_json(f.col("value").cast("string"), "time timestamp, kind string")
    return (
        messages.select(event.alias("event"))
        .select("event.time", "event.kind")
        .where("time IS NOT NULL")
        .withWatermark("time", "10 minutes")
        .groupBy(f.window("time", "1 minute").alias("window"), "kind")
        .count()
        .select(f.col("window.start").alias("minute"), "kind", "count")
    )


def plot(rows: list[Row]) -> str:
    """Return an SVG of stacked bars, one per minute."""
    minutes = sorted({row.minute for row in rows})
    kinds = sorted({row.kind for row in rows})
    colours = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    number = {(row.minute, row.kind): row["count"] for row in rows}
    highest = max((sum(number.get((m, k), 0) for k in kinds) for m in minutes), default=1)
    wide, high = 40 * max(len(minutes), 1) + 160, 300
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high + 60}" '
        'font-family="sans-serif" font-size="10">'
    ]
    for x, minute in enumerate(minutes):
        top = float(high)
        for kind in kinds:
            height = high * number.get((minute, kind), 0) / highest
            top -= height
            parts.append(
                f'<rect x="{40 * x + 8}" y="{top + 20:.1f}" width="32" height="{height:.1f}" '
                f'fill="{colours[kind]}"><title>{minute} {escape(kind)}: '
                f"{number.get((minute, kind), 0)}</title></rect>"
            )
        parts.append(f'<text x="{40 * x + 10}" y="{high + 35}">{minute:%H:%M}</text>')
    for y, kind in enumerate(kinds):
        x = wide - 140
        parts.append(f'<rect x="{x}" y="{15 * y + 20}" width="10" height="10" ')
        parts.append(f'fill="{colours[kind]}"/>')
        parts.append(f'<text x="{x + 15}" y="{15 * y + 29}">{escape(kind)}</text>')
    return "".join([*parts, "</svg>"])


def aggregate(
    spark: SparkSession, bootstrap: str, topic: str, checkpoint: str, image: Path
) -> list[Row]:
    """Count the events since the last run; plot and return the counts of all minutes."""
    table = str(Path(checkpoint) / "counts")

    def keep(changed: DataFrame, batch: int) -> None:
        # One folder per batch: a repeated batch overwrites its own counts.
        changed.write.mode("overwrite").parquet(f"{table}/batch={batch}")

    query = (
        counts(spark, bootstrap, topic)
        .writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(Path(checkpoint) / "query"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    newest = (
        spark.read.parquet(table)
        .groupBy("minute", "kind")
        .agg(f.max_by("count", "batch").alias("count"))
    )
    rows = newest.orderBy("minute", "kind").collect()
    image.write_text(plot(rows))
    return rows


def main() -> None:
    """Parse the arguments, count, and print the result."""
    parser = argparse.ArgumentParser(description="Count events by minute and kind.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, help="folder for the progress of the query")
    parser.add_argument("--plot", type=Path, default=Path("events.svg"))
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"count {given.topic}").getOrCreate()
    rows = aggregate(spark, given.bootstrap, given.topic, given.checkpoint, given.plot)
    for row in rows:
        print(f"{row.minute:%Y-%m-%d %H:%M} {row.kind}: {row['count']}")


if __name__ == "__main__":
    main()
