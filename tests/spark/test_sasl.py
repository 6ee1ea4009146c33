"""The data source's clients through SASL; Spark itself isn't needed for them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pyspark
import pytest

from aiokafka08.spark.driver import DriverClient, task_network
from aiokafka08.spark.options import read_options
from aiokafka08.testing import EmbeddedCluster


async def test_client_of_the_data_source_authenticates() -> None:
    async with EmbeddedCluster(
        version="0.10", topics={"t": 3}, sasl={"alice": "s3cret"}
    ) as cluster:
        options = read_options(
            {
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
                'required username="alice" password="s3cret";',
                "subscribe": "t",
            },
            streaming=False,
        )
        assert "s3cret" not in repr(options)

        def partitions() -> int:
            with contextlib.closing(DriverClient(options)) as client:
                return len(client.partitions())

        assert await asyncio.to_thread(partitions) == 3


def test_keytab_of_files_is_found_in_the_folder_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    given = {"client_id": "c", "sasl_kerberos_keytab": "./me.keytab"}
    assert task_network(given) == given
    (tmp_path / "me.keytab").touch()
    assert task_network(given)["sasl_kerberos_keytab"] == str(tmp_path / "me.keytab")
    assert task_network({"client_id": "c"}) == {"client_id": "c"}
