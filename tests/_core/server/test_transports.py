"""`PacedOutput`: how much memory unsent bytes take."""

from __future__ import annotations

import asyncio

from aiokafka08._core.server.transports import PacedOutput
from aiokafka08.protocol.types import Buffer


class Transport(asyncio.Transport):
    """A transport whose peer has taken all but `unsent_bytes`, which a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent_bytes = 0
        self.closes = False

    def write(self, data: Buffer) -> None:
        self.unsent_bytes += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.closes = True

    def is_closing(self) -> bool:
        return self.closes


def test_write_counts_whole_until_its_end_is_sent() -> None:
    """The transport keeps the whole buffer that it has sent in part."""
    transport = Transport()
    output = PacedOutput(transport)
    for size in (100, 300, 50):
        output.write_all([bytes(size - 4), bytes(4)])
    assert output.memory_bytes == 450
    for unsent_bytes, held_bytes in (449, 450), (350, 350), (51, 350), (50, 50), (1, 50), (0, 0):
        transport.unsent_bytes = unsent_bytes
        assert output.memory_bytes == held_bytes


def test_unsent_bytes_of_a_closing_transport_count() -> None:
    transport = Transport()
    output = PacedOutput(transport)
    output.write_all([bytes(100)])
    output.close()
    assert output.memory_bytes == 100
    output.drop()
    assert output.memory_bytes == 0
