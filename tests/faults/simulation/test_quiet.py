"""A lonely client recovers by its own rules: seeds of the quiet scenario, and what they judge."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.net.metadata_cache import Metadata
from aiokafka08.protocol.api import Request
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Close
from aiokafka08.testing.simulation import simulate
from tests.faults.simulation.quiet import explain, run
from tests.faults.simulation.runner import frozen_modules

SEEDS = 100
SEEDS_OF_A_TEST = 10
FULL_SEEDS = 1000
MOVED = 13
"""The leader moves in this seed."""
COMMITS = 16


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    with frozen_modules():
        yield


def _judge(seeds: range) -> None:
    texts = [f"seed {seed}: {one}" for seed in seeds for one in run(seed)]
    assert not texts, "\n".join(texts)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_A_TEST), ids="seeds-{}".format)
def test_quiet_seeds_show_no_anomaly(first: int) -> None:
    _judge(range(first, first + SEEDS_OF_A_TEST))


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(SEEDS, FULL_SEEDS, 100), ids="seeds-{}".format)
def test_many_quiet_seeds_show_no_anomaly(first: int) -> None:
    _judge(range(first, first + 100))


def test_offsets_are_listed_by_the_next_leader_of_a_broker_that_hangs() -> None:
    """Seed 53: the second attempt began before the refresh, at the same broker."""
    assert run(53, "lister") == []


def test_client_that_learns_nothing_makes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Metadata, "request_refresh", lambda self: None)
    assert {"no-progress"} <= {one.name for one in run(MOVED, "reader")}


def test_story_ends_with_the_first_anomaly_and_has_what_brokers_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Metadata, "request_refresh", lambda self: None)
    story = explain(MOVED, "reader")
    assert "no-progress: " in story[-1]
    assert any(
        re.search(r" c0 → broker \d: Fetch( quiet/\d from 0)? × \d+$", line) for line in story
    )
    assert any(re.search(r" c0 reads quiet/\d from 0 on$", line) for line in story)
    assert any(" log  c0: connected to " in line for line in story)


def test_commit_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = AIOKafkaConsumer.commit
    calls = itertools.count()

    async def commit(consumer: Any, offsets: Any = None) -> None:
        await complete(consumer, offsets)
        if next(calls):
            await complete(consumer, dict.fromkeys(offsets, 0))

    monkeypatch.setattr(AIOKafkaConsumer, "commit", commit)
    assert "commit-went-back" in {one.name for one in run(COMMITS, "committer")}


@pytest.mark.parametrize("struck", [FetchRequest, ProduceRequest])
def test_failed_request_refreshes_the_metadata(struck: type[Request[Any]]) -> None:
    """Nothing else asks here: the broker stays, and metadata never ages."""

    async def play() -> None:
        cluster = world.cluster
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "metadata_max_age_ms": 24 * 3600 * 1000,
        }
        client: Any
        if struck is FetchRequest:
            client = AIOKafkaConsumer("t", **options)
        else:
            client = AIOKafkaProducer(**options)
        async with client:
            if struck is ProduceRequest:
                await client.send_and_wait("t", b"1", partition=0)
            await asyncio.sleep(10)
            # The probe of a broker's version names no topic.
            asked = cluster.next_request(MetadataRequest, where=lambda one: "t" in one.topics)
            cluster.fault(struck, then=Close())
            if struck is ProduceRequest:
                await client.send_and_wait("t", b"2", partition=0)
            async with asyncio.timeout(20):
                await asyncio.wrap_future(asked)

    with simulate(1, brokers=2, version="0.9", topics={"t": 1}) as world:
        world.run(play)
