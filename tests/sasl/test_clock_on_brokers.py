"""A client whose clock is off, by libfaketime of Debian; those of brokers and KDC are right."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaProducer
from tests.brokers.kdc import Kdc
from tests.sasl.conftest import REQUEST_TIMEOUT_S, Options, StartCluster, options_of
from tests.support.debian_tools import debian_folder, skipped_if_missing
from tests.support.full import in_full

START = """
import asyncio, json, sys, time
from aiokafka08 import AIOKafkaProducer

async def start():
    began = time.monotonic()
    try:
        async with AIOKafkaProducer(**json.loads(sys.argv[1])):
            outcome = "started"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print(json.dumps([outcome, time.monotonic() - began]))

asyncio.run(start())
"""


def outcome(options: Options, off_by: str) -> str:
    """Start a producer in a process whose clock is off; return its error, or "started"."""
    with skipped_if_missing("libfaketime", "libfaketime"):
        library = next(debian_folder("libfaketime").glob("usr/lib/*/faketime/libfaketime.so.1"))
    fake = {
        "LD_PRELOAD": str(library),
        "FAKETIME": off_by,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", START, json.dumps(options)],
        env={**os.environ, **fake},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout, done.stderr
    text, seconds = json.loads(done.stdout)
    assert seconds < REQUEST_TIMEOUT_S
    return str(text)


async def outcome_with_cache(
    start: StartCluster, version: str, off_by: str, cache: Path, *, has_broker_ticket: bool
) -> str:
    """Return the outcome of a client with a ticket cache that kinit has filled."""
    cluster = await asyncio.to_thread(start, version)
    assert cluster.sasl.kdc is not None
    await asyncio.to_thread(cluster.sasl.kdc.kinit, "client", cache)
    options = options_of(cluster, "GSSAPI", sasl_kerberos_keytab=None, sasl_kerberos_principal=None)
    if has_broker_ticket:
        async with AIOKafkaProducer(**options):  # it puts the ticket into the cache
            pass
    return await asyncio.to_thread(outcome, options, off_by)


@pytest.fixture
def cache(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{path}")
    return path


@pytest.mark.parametrize(
    ("version", "off_by"),
    [("0.9.0.1", "-10m"), *in_full(("0.9.0.1", "+10m"), ("3.9.1", "-10m"), ("3.9.1", "+10m"))],
)
async def test_kdc_that_refuses_a_clock_is_one_error_that_names_it(
    version: str, off_by: str, sasl_cluster: StartCluster, cache: Path
) -> None:
    text = await outcome_with_cache(sasl_cluster, version, off_by, cache, has_broker_ticket=False)
    assert text.startswith("AuthenticationFailedError: ")
    assert "the clocks of client and KDC differ too much" in text


@pytest.mark.parametrize(
    ("version", "off_by", "cause"),
    [
        ("0.9.0.1", "-10m", "the clock of this machine is behind the KDC's"),
        ("3.9.1", "+10m", "the broker refuses: .*Check that the clocks of client and broker agree"),
        *in_full(
            ("3.9.1", "-10m", "the clock of this machine is behind the KDC's"),
            ("0.9.0.1", "+10m", "closed the connection.*the clocks of client and broker agree"),
            ("0.10.2.2", "+10m", "closed the connection.*the clocks of client and broker agree"),
        ),
    ],
)
async def test_ticket_at_a_wrong_time_is_one_error_that_names_the_clock(
    version: str, off_by: str, cause: str, sasl_cluster: StartCluster, cache: Path
) -> None:
    """The KDC isn't asked: the cache has the broker's ticket."""
    text = await outcome_with_cache(sasl_cluster, version, off_by, cache, has_broker_ticket=True)
    assert text.startswith("AuthenticationFailedError: ")
    assert re.search(cause, text), text


@pytest.mark.parametrize(
    ("version", "off_by"), [("0.9.0.1", "+10m"), *in_full(("3.9.1", "-10m"), ("3.9.1", "+10m"))]
)
async def test_keytab_works_with_a_wrong_clock(
    version: str, off_by: str, sasl_cluster: StartCluster
) -> None:
    """MIT Kerberos corrects its time by the KDC's answer to the keytab."""
    cluster = await asyncio.to_thread(sasl_cluster, version)
    options = options_of(cluster, "GSSAPI")
    assert await asyncio.to_thread(outcome, options, off_by) == "started"
