"""`ZookeeperMirror.stop()` while a thread writes, without a ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from aiokafka08._tools.gateway import zookeeper_mirror
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.zookeeper_mirror import ZookeeperMirror
from aiokafka08.errors import KafkaConnectionError
from aiokafka08.testing import EmbeddedCluster
from tests.support.waiting import until

pytestmark = pytest.mark.fast


class FailingWriter:
    """Its `write()` waits for `goes_on`, then raises `error`."""

    def __init__(self, error: Exception) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.closed = False
        self._error = error

    def write(self, *_state: object, **_how: object) -> None:
        self.begun.set()
        assert self.goes_on.wait(60)
        raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (RuntimeError("torn"), ["internal error: RuntimeError('torn')"]),
        (KafkaConnectionError(), []),
    ],
)
async def test_stop_ends_although_the_write_in_flight_fails(
    error: Exception,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    writer = FailingWriter(error)
    monkeypatch.setattr(zookeeper_mirror, "require_kazoo", lambda: None)
    monkeypatch.setattr(zookeeper_mirror, "new_writer", lambda *_: writer)
    async with EmbeddedCluster(1, version="0.10", topics={"t": 1}) as cluster:
        options = gateway_options(cluster.bootstrap_servers, zookeeper="127.0.0.1:1")
        mirror = ZookeeperMirror(options, lambda *_: ("127.0.0.1", 1), dict)
        mirror.start()
        await until(writer.begun.is_set, "the mirror writes")
        stopping = asyncio.create_task(mirror.stop())
        await asyncio.sleep(0)  # it has cancelled
        writer.goes_on.set()
        async with asyncio.timeout(30):
            await stopping
    assert writer.closed
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(": ")[2] for text in texts] == logged
