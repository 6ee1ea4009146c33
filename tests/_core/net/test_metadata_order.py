"""Metadata responses that arrive together: what an older request brings doesn't undo a newer one.

A large response is decoded and merged in steps. A small one that arrives behind it is done first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka08._core.net.router import Router
from aiokafka08.protocol.requests.metadata import (
    Broker,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import MetadataChanged
from tests._core.net.conftest import MakeConfig, Recorder
from tests._core.net.scripted_peers import Peer, PeerConnection, listening

pytestmark = pytest.mark.both_loops

OTHERS = [f"other-{number}" for number in range(4000)]
"""Topics that make a response large."""


def state(topic: str, leader: int) -> TopicState:
    return TopicState(0, topic, False, [PartitionState(0, 0, leader, [0, 1], [0, 1])])


class Brokers:
    """The peer, as node 0, names itself and another broker."""

    def __init__(self, peer: Peer, link: PeerConnection) -> None:
        self.peer = peer
        self.link = link

    def response(self, *topics: TopicState, other: int = 1) -> MetadataResponse:
        host, port = self.peer.address
        return MetadataResponse([Broker(0, host, port), Broker(other, host, 1)], -1, list(topics))

    async def answer(self, *responses: MetadataResponse) -> None:
        """Read as many requests, and answer them all at once, in their order."""
        requests = [await self.link.read() for _ in responses]
        for request, response in zip(requests, responses, strict=True):
            self.link.respond(request, response)


@pytest.fixture
def connect(make_config: MakeConfig, telemetry: Recorder) -> Callable[[], Any]:
    """`async with connect() as (router, brokers)`: a client that knows the topic t."""

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[tuple[Router, Brokers]]:
        async with listening() as peer:
            config = make_config(":".join(map(str, peer.address)), api_version="0.8.2")
            router = Router(config, telemetry)
            router.metadata.add_topics(["t"])
            starting = asyncio.create_task(router.start())
            brokers = Brokers(peer, await peer.link())
            await brokers.answer(brokers.response(state("t", 0)))
            await starting
            try:
                yield router, brokers
            finally:
                await router.stop()

    return connect


async def _fetch_all_and_refresh(
    router: Router, brokers: Brokers, listing: MetadataResponse, newer: MetadataResponse
) -> None:
    """Call `fetch_all()` and then `refresh()`, and answer both at once."""
    fetching = asyncio.create_task(router.metadata.fetch_all())
    await asyncio.sleep(0)
    refreshing = asyncio.create_task(router.metadata.refresh())
    await brokers.answer(listing, newer)
    await refreshing
    assert not fetching.done(), "the listing is too small for this test"
    await fetching


async def test_an_older_listing_does_not_undo_a_newer_refresh(
    connect: Callable[[], Any], telemetry: Recorder
) -> None:
    async with connect() as (router, brokers):
        others = [state(name, 0) for name in OTHERS]
        await _fetch_all_and_refresh(
            router,
            brokers,
            brokers.response(state("t", 0), *others),
            brokers.response(state("t", 1)),
        )
        snapshot = router.metadata.snapshot
        assert snapshot.leader(TopicPartition("t", 0)) == 1
        assert snapshot.leader(TopicPartition(OTHERS[-1], 0)) == 0
        assert len(snapshot.topics) == 1 + len(OTHERS)
        assert telemetry.of(MetadataChanged)[-1] == MetadataChanged((0, 1), 1 + len(OTHERS))


async def test_an_older_listing_does_not_drop_a_newer_topic(connect: Callable[[], Any]) -> None:
    """The topic was created between the two requests."""
    async with connect() as (router, brokers):
        router.metadata.add_topics(["new"])
        await _fetch_all_and_refresh(
            router,
            brokers,
            brokers.response(state("t", 0), *(state(name, 0) for name in OTHERS)),
            brokers.response(state("new", 1), state("t", 0)),
        )
        assert router.metadata.snapshot.leader(TopicPartition("new", 0)) == 1


async def test_brokers_of_an_older_listing_do_not_replace_newer_ones(
    connect: Callable[[], Any],
) -> None:
    async with connect() as (router, brokers):
        await _fetch_all_and_refresh(
            router,
            brokers,
            brokers.response(*(state(name, 1) for name in OTHERS), state("t", 1)),
            brokers.response(state("t", 2), other=2),
        )
        snapshot = router.metadata.snapshot
        assert snapshot.leader(TopicPartition("t", 0)) == 2
        assert snapshot.leader(TopicPartition(OTHERS[0], 0)) == 1  # named for these topics only


async def test_a_listing_that_is_newer_replaces_all(connect: Callable[[], Any]) -> None:
    async with connect() as (router, brokers):
        refreshing = asyncio.create_task(router.metadata.refresh())
        await asyncio.sleep(0)
        fetching = asyncio.create_task(router.metadata.fetch_all())
        await brokers.answer(
            brokers.response(state("t", 0)), brokers.response(state("t", 1), state("u", 1))
        )
        await asyncio.gather(refreshing, fetching)
        snapshot = router.metadata.snapshot
        assert snapshot.leader(TopicPartition("t", 0)) == 1
        assert set(snapshot.topics) == {"t", "u"}
