"""The data source's clients through SASL; Spark itself isn't needed for them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pyspark
import pytest

from aiokafka08._core.sasl.scram import Scram
from aiokafka08.spark.driver import DriverClient, task_network
from aiokafka08.spark.options import ReadOptions, read_options
from aiokafka08.testing import EmbeddedCluster


def options_of(cluster: EmbeddedCluster, password: str) -> ReadOptions:
    return read_options(
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
            f'required username="alice" password="{password}";',
            "subscribe": "t",
        },
        streaming=False,
    )


async def test_client_of_the_data_source_authenticates() -> None:
    async with EmbeddedCluster(
        version="0.10", topics={"t": 3}, sasl={"alice": "s3cret"}
    ) as cluster:
        options = options_of(cluster, "s3cret")
        assert "s3cret" not in repr(options)

        def partitions() -> int:
            with contextlib.closing(DriverClient(options)) as client:
                return len(client.partitions())

        assert await asyncio.to_thread(partitions) == 3


async def test_each_call_of_the_driver_renews_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between calls its event loop doesn't run, and neither does a timer."""
    checked = 0

    async def renew(_: Scram) -> float:
        nonlocal checked
        checked += 1
        return 3600.0

    monkeypatch.setattr(Scram, "renew", renew)

    def checks_of_calls() -> list[int]:
        with contextlib.closing(DriverClient(options)) as client:
            client.partitions()
            before, counts = checked, []
            for _ in range(3):
                client.partitions()
                counts.append(checked - before)
            return counts

    async with EmbeddedCluster(
        version="0.10", topics={"t": 1}, sasl={"alice": "s3cret"}
    ) as cluster:
        options = options_of(cluster, "s3cret")
        assert await asyncio.to_thread(checks_of_calls) == [1, 2, 3]


def test_keytab_of_files_is_found_in_the_folder_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    given = {"client_id": "c", "sasl_kerberos_keytab": "./me.keytab"}
    assert task_network(given) == given
    (tmp_path / "me.keytab").touch()
    expected = str(tmp_path / "me.keytab")
    assert task_network(given)["sasl_kerberos_keytab"] == expected
    of_a_stream = str(tmp_path / "streaming_job")  # as Spark 4.1 says, without making it
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: of_a_stream)
    assert task_network(given)["sasl_kerberos_keytab"] == expected
    assert task_network({"client_id": "c"}) == {"client_id": "c"}
