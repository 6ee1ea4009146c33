"""What `SourceChecksums` reads of messages that share an offset."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.source.source_clients import source_router
from aiokafka08.bridge.verify.checked_source import SourceChecksums
from aiokafka08.bridge.verify.sequence_check import message_crc
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.conformance.contract.wire.requests import nested

TP = TopicPartition("t", 0)


@pytest.fixture
async def source() -> AsyncIterator[SourceChecksums]:
    """Of a partition with four messages at offset 0 and one at 1."""
    async with EmbeddedCluster(version="0.9", topics={"t": 1}) as cluster:
        cluster.append_raw("t", 0, nested(0, 4))
        cluster.append("t", 0, [b"last"])
        config = parse_config(
            f'name = "x"\n[source]\nbootstrap = "{cluster.bootstrap_servers}"\n'
            '[target]\nbootstrap = "127.0.0.1:1"\n[topics]\ninclude = ["t"]\n'
        )
        async with source_router(config) as router:
            checksums = SourceChecksums(router)
            yield checksums
            await checksums.close()


@pytest.mark.parametrize("leave_out", range(5))
async def test_resume_leaves_out_only_what_was_compared(
    source: SourceChecksums, leave_out: int
) -> None:
    portions = [portion async for portion in source.read(TP, 0, 2, leave_out)]
    assert all(portions)
    wanted = [message_crc(None, value) for value in (b"0", b"1", b"2", b"3", b"last")]
    assert [crc for portion in portions for crc in portion.crcs] == wanted[leave_out:]
