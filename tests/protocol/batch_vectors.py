"""Logs of a real 4.1.0 with the records that Java's consumer reads from them.

    python -m tests.protocol.batch_vectors

writes them anew to `batch_vectors.json`: what `test_record_batch_on_brokers` compares, for tests
without a broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from tests.protocol.batch_oracle import Row

_FILE: Final = Path(__file__).with_name("batch_vectors.json")


class Log(NamedTuple):
    """The bytes of a partition, and its records."""

    data: bytes
    rows: list[tuple[Row, int]]
    """Each with the type of its timestamp."""


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def load() -> dict[str, Log]:
    """Return the logs by the name of their topic."""
    return {
        topic: Log(
            bytes.fromhex(log["data"]),
            [
                (
                    Row(
                        offset,
                        timestamp,
                        _bytes(key),
                        _bytes(value),
                        tuple((bytes.fromhex(name), _bytes(one)) for name, one in headers),
                    ),
                    kind,
                )
                for offset, kind, timestamp, key, value, headers in log["rows"]
            ],
        )
        for topic, log in json.loads(_FILE.read_text()).items()
    }


def main() -> None:
    """Write the file."""
    from tests.brokers.cluster import RealCluster
    from tests.protocol import test_record_batch_on_brokers as source

    with RealCluster("4.1.0") as cluster:
        source.write_topics(cluster)
        source.write_compacted(cluster, source.COMPACTED)
        port, topics = cluster.port(0), [*source.TOPICS, source.COMPACTED]
        seen = source.read_by_java(cluster, "read_uncommitted", *topics)
        logs = {
            topic: {
                "data": source.fetch_log(port, topic).hex(),
                "rows": [
                    [
                        row.offset,
                        kind,
                        row.timestamp_ms,
                        _hex(row.key),
                        _hex(row.value),
                        [[name.hex(), _hex(one)] for name, one in row.headers],
                    ]
                    for row, kind in seen[topic]
                ],
            }
            for topic in topics
        }
    _FILE.write_text(json.dumps(logs, indent=0) + "\n")


if __name__ == "__main__":
    main()
