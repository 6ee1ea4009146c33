"""Choose partitions by the Java client's hash of the key, murmur2 (pure Python).

The reference for the compiled twin (`_murmur2.h`, `_message_set_c.pyx`).

Invariant: a key goes to the partition that the Java client's default partitioner gives it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final

from aiokafka08.protocol._binary_column_py import BinaryColumn

_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_LITTLE_WORDS: Final = struct.Struct("<I")


def murmur2(data: bytes) -> int:
    """Return the Java client's murmur2 hash, unsigned like the result of aiokafka's `murmur2`.

    Java's `int` has the same 32 bits (`org.apache.kafka.common.utils.Utils.murmur2`).
    """
    length = len(data)
    whole_bytes = length & ~3
    hash_ = 0x9747B28C ^ length
    for (word,) in _LITTLE_WORDS.iter_unpack(data[:whole_bytes]):
        word = word * 0x5BD1E995 & _MASK
        hash_ = (hash_ * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & _MASK
    if whole_bytes != length:
        hash_ = (hash_ ^ int.from_bytes(data[whole_bytes:], "little")) * 0x5BD1E995 & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * 0x5BD1E995 & _MASK
    return hash_ ^ hash_ >> 15


def partitions_of(keys: BinaryColumn, partitions: Sequence[int]) -> array[int]:
    """Return the partition that the Java client gives each key; -1 for a null key.

    `partitions` are all partitions of the topic, ascending.

    Raises:
        ValueError: `partitions` is empty.
    """
    if not partitions:
        raise ValueError("no partitions to choose from")
    count = len(partitions)
    return array(
        "i",
        (-1 if key is None else partitions[(murmur2(key) & _POSITIVE) % count] for key in keys),
    )
