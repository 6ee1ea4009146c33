"""A peer that announces a huge response costs the client no memory, at each door to the network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aiokafka08._core.net.config import NetConfig, address_text
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.transport import open_connection
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08.errors import KafkaConnectionError, KafkaTimeoutError
from aiokafka08.protocol.frame import DEFAULT_MAX_FRAME_BYTES
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from tests._core.net.conftest import MakeConfig
from tests._core.net.scripted_peers import PeerConnection, listening
from tests.support.memory import reads_proc
from tests.support.zookeeper import UncheckedZookeeper

pytestmark = reads_proc

LARGEST_OF_ZOOKEEPER = 2**31 - 1


def peak_bytes() -> int:
    """Return the largest resident size since `forget_peak()`."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def announcing(size: int) -> Callable[[PeerConnection], Awaitable[None]]:
    """Return a peer that answers with this size and ten bytes."""

    async def run(link: PeerConnection) -> None:
        await link.reader.read(1)
        link.writer.write(size.to_bytes(4, "big") + b"\0\0\0\1" + bytes(6))
        await link.wait_eof()

    return run


@pytest.fixture
def config(make_config: MakeConfig) -> NetConfig:
    return make_config(request_timeout_ms=500)


async def probe(address: tuple[str, int], config: NetConfig) -> None:
    await probe_version(address, config)


async def request(address: tuple[str, int], config: NetConfig) -> None:
    version = BrokerVersion.of(BrokerLine.V0_8_2)
    connection = await open_connection(address, config, version, lambda *_: None)
    try:
        await connection.request(ListOffsetsRequest(-1, []))
    finally:
        connection.close("the test has ended")
        await connection.socket_closed


async def ask_zookeeper(address: tuple[str, int], config: NetConfig) -> None:
    def open_session() -> None:
        with temporary_session(UncheckedZookeeper(address_text(address)), 0.5, __name__):
            pass

    await asyncio.to_thread(open_session)


@pytest.mark.parametrize(
    ("door", "size"),
    [
        (probe, DEFAULT_MAX_FRAME_BYTES),
        (request, DEFAULT_MAX_FRAME_BYTES),
        (ask_zookeeper, LARGEST_OF_ZOOKEEPER),
    ],
    ids=["probe", "request", "zookeeper"],
)
async def test_announced_size_costs_no_memory(
    door: Callable[[tuple[str, int], NetConfig], Awaitable[None]], size: int, config: NetConfig
) -> None:
    async with listening(announcing(size)) as peer:
        forget_peak()
        before = peak_bytes()
        with pytest.raises((KafkaTimeoutError, KafkaConnectionError)):
            await door(peer.address, config)
        assert peak_bytes() - before < 20 << 20
