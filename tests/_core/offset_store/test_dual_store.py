"""Commits to two stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.dual_store import DualOffsetStore
from aiokafka08.structs import TopicPartition

COMMIT_S = 0.05


class SlowStore:
    """Keeps how long each commit might have taken."""

    def __init__(self) -> None:
        self.limits_s: list[float] = []

    async def commit(self, offsets: Any, identity: Any, *, timeout_s: float) -> None:
        self.limits_s.append(timeout_s)
        await asyncio.sleep(COMMIT_S)


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(None, 30.0), (2.0, 2.0), (0.01, 0.01)])
async def test_both_commits_share_one_timeout(timeout_s: float | None, limit_s: float) -> None:
    kafka, zookeeper = SlowStore(), SlowStore()
    store: Any = DualOffsetStore(kafka, zookeeper, 30.0)  # type: ignore[arg-type]
    await store.commit({TopicPartition("t", 0): (1, "")}, CommitIdentity(), timeout_s=timeout_s)
    assert kafka.limits_s == [limit_s]
    [left_s] = zookeeper.limits_s
    assert 0 <= left_s <= max(limit_s - COMMIT_S, 0) + 0.002  # the resolution of uvloop's time
