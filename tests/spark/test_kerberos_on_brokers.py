"""Spark's driver and its Python workers through Kerberos, with a keytab of `--files`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaProducer
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import SERVICE
from tests.brokers.wire import fetch
from tests.sasl.conftest import StartCluster, kdc, options_of, sasl_cluster
from tests.spark.conftest import PACKAGES, SHORT_JVM, quick_home
from tests.support.paths import ROOT

__all__ = ["kdc", "sasl_cluster"]

RELEASE = "0.10.2.2"

pytestmark = [
    *(pytest.mark.spark, pytest.mark.real, pytest.mark.full, pytest.mark.timeout(600)),
    pytest.mark.release(RELEASE),
]

COUNT = 40


async def test_stream_reads_and_writes_with_a_keytab_of_files(
    kdc: Kdc, sasl_cluster: StartCluster, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each worker is a process of its own, with its own tickets in memory; there is no cache."""
    cluster = await asyncio.to_thread(sasl_cluster, RELEASE)
    topic, copy = unique_topic(), unique_topic("copy")
    for name in (topic, copy):
        await asyncio.to_thread(cluster.create_topic, name, 2)
    sent = {b"%d" % number for number in range(COUNT)}
    async with AIOKafkaProducer(**options_of(cluster, "GSSAPI")) as producer:
        for value in sent:
            await producer.send_and_wait(topic, value)
    before = kdc.tickets("client")
    options = {
        "kafka.bootstrap.servers": cluster.sasl_bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.kerberos.service.name": SERVICE,
        "kafka.sasl.kerberos.keytab": "./client.keytab",
        "kafka.sasl.kerberos.principal": "client",
    }
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    environment |= {
        "PYTHONPATH": PACKAGES,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": quick_home(),
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={tmp_path} {SHORT_JVM}",
    }
    job = str(ROOT / "tests" / "spark" / "kerberos_job.py")
    keytab = str(kdc.keytab("client"))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, job, json.dumps(options), keytab, str(tmp_path), topic, copy],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    copied = [
        message.value
        for partition in (0, 1)
        for message in await asyncio.to_thread(fetch, cluster.port(0), copy, partition)
    ]
    assert kdc.tickets("client") - before <= 8  # one for each process, not for each of 16 tasks
    assert len(copied) == COUNT
    assert {*copied} == sent
