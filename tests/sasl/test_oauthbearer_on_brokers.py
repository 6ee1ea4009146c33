"""OAUTHBEARER on 3.9.1, whose own validator takes tokens that nobody has signed."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.abc import AbstractTokenProvider
from aiokafka08.errors import AuthenticationFailedError, NoBrokersAvailable
from aiokafka08.telemetry import Disconnected, Event
from tests.brokers.sasl import SCOPE, java_reads
from tests.sasl.conftest import Options, StartCluster, options_of, raises_in_time

VERSION = "3.9.1"
SECRET = "a-secret-of-the-provider"

pytestmark = pytest.mark.release(VERSION)

UniqueTopic = Callable[..., str]


class Provider(AbstractTokenProvider):
    """Makes tokens of alice, which expire after `life_s`."""

    def __init__(self, life_s: float = 600, scope: str = SCOPE) -> None:
        self.life_s = life_s
        self.scope = scope
        self.made = 0

    async def token(self) -> str:
        self.made += 1
        now = time.time()
        claims = {"sub": "alice", "iat": now - 60, "exp": now + self.life_s, "scope": [self.scope]}
        parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
        encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
        return ".".join([*encoded, ""])


class RaisingProvider(Provider):
    async def token(self) -> str:
        raise RuntimeError(SECRET)


class HangingProvider(Provider):
    async def token(self) -> str:
        return await asyncio.get_running_loop().create_future()


async def options_with(start: StartCluster, provider: Provider, **others: object) -> Options:
    cluster = await asyncio.to_thread(start, VERSION)
    return options_of(
        cluster, "OAUTHBEARER", tls=True, sasl_oauth_token_provider=provider, **others
    )


async def test_token_is_accepted(sasl_cluster: StartCluster, unique_topic: UniqueTopic) -> None:
    topic = unique_topic()
    options = await options_with(sasl_cluster, Provider())
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"tea")
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    read = await asyncio.to_thread(java_reads, cluster, "OAUTHBEARER", topic, 1, tls=True)
    assert read == ["tea"]
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        assert (await consumer.getone()).value == b"tea"


@pytest.mark.parametrize(
    ("provider", "cause"),
    [
        pytest.param(Provider(life_s=-30), "refuses: .*invalid_token.*Check the token", id="old"),
        pytest.param(
            Provider(scope="other"), "refuses: .*insufficient_scope.*Check the token", id="scope"
        ),
        pytest.param(
            RaisingProvider(), "OAUTHBEARER: sasl_oauth_token_provider raised Runt", id="raises"
        ),
    ],
)
async def test_wrong_token_is_one_error_that_names_the_cause(
    provider: Provider, cause: str, sasl_cluster: StartCluster
) -> None:
    options = await options_with(sasl_cluster, provider)
    with raises_in_time(AuthenticationFailedError, cause, SECRET):
        await AIOKafkaProducer(**options).start()


async def test_provider_that_hangs_is_a_timeout(sasl_cluster: StartCluster) -> None:
    options = await options_with(sasl_cluster, HangingProvider(), start_timeout_ms=1000)
    with raises_in_time(NoBrokersAvailable, "token_provider hasn't returned a token"):
        await AIOKafkaProducer(**options).start()


async def test_session_ends_with_the_token_and_nothing_is_lost(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic
) -> None:
    """The broker tells the token's life; the client comes with a new one before it is over."""
    topic = unique_topic()
    events: list[Event] = []
    provider = Provider(life_s=2)
    options = await options_with(sasl_cluster, provider, on_event=events.append)
    async with AIOKafkaProducer(**options) as producer:

        async def is_renewed() -> bool:
            await producer.send_and_wait(topic, b"tea", partition=0)
            return provider.made >= made + 2

        made = provider.made
        sent = 0
        async with asyncio.timeout(60):
            while not await is_renewed():
                sent += 1
        last = await producer.send_and_wait(topic, b"tea", partition=0)
    assert last.offset == sent + 1
    reasons = {event.reason for event in events if isinstance(event, Disconnected)}
    assert "the SASL session ends" in reasons
    assert not [reason for reason in reasons if "closed by the broker" in reason]
