"""librdkafka's default partitioner: a key gets the same partition as with kcat itself. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from aiokafka08.partitioner import StickyPartitioner


class ConsistentRandomPartitioner(StickyPartitioner):
    """Choose by CRC32 of the key; messages with an empty key or none go anywhere."""

    __slots__ = ()

    def __call__(
        self, key_bytes: bytes | None, all_partitions: Sequence[int], available: Sequence[int], /
    ) -> int:
        """See `Partitioner`."""
        return super().__call__(key_bytes or None, all_partitions, available)

    def _positive_hash(self, key: bytes) -> int:
        return zlib.crc32(key)
