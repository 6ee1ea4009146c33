"""Clients of a real 4.1.0 go on when a worker of the gateway is killed, and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests._tools.gateway.worker_processes import WorkersGateway, workers_gateway
from tests.brokers.cluster import RealCluster
from tests.support.delivery_check import DeliveryCheck

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(600)]

PROGRESS_S = 120


async def test_nothing_is_lost_when_each_worker_is_killed(
    modern_cluster: RealCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, old = new_topic(3), {"api_version": "0.10", "request_timeout_ms": 10_000}
    with workers_gateway(modern_cluster.bootstrap_servers, tmp_path, 2) as gateway:
        work = DeliveryCheck(
            gateway.bootstrap_servers, topic, 3, producer=old, consumer=old, outstanding=20
        )
        async with work.running(drain_timeout=PROGRESS_S):
            await work.acknowledged(20, timeout=PROGRESS_S)
            for _ in range(2):
                await asyncio.to_thread(kill_busy_worker, gateway)
                await work.acknowledged(20, timeout=PROGRESS_S)
        await work.check()
        clients = await asyncio.to_thread(gateway.clients)
        assert any(one["messages"] >= 20 for one in clients)  # but for a second of a killed worker


def kill_busy_worker(gateway: WorkersGateway) -> None:
    """Kill the worker with the most connections, and wait until another one is in its place."""
    busy = max(gateway.workers(), key=lambda one: len(one.net_connections("tcp")))
    busy.kill()
    busy.wait(30)
    gateway.wait_for_workers()
