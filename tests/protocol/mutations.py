"""Mutate captured frames: flip bits, replace lengths, cut, repeat and swap pieces. Pure."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from aiokafka08.protocol.compression import Codec
from tests.protocol import batch_oracle
from tests.protocol.hostile import LENGTHS
from tests.protocol.oracle import crc32, entry, message, wrapper


def signed(message_set: bytes) -> bytes:
    """Return the set with right CRCs, as far as its sizes allow to follow it."""
    data, pos = bytearray(message_set), 0
    while len(data) - pos >= 16:
        size = struct.unpack_from(">i", data, pos + 8)[0]
        stop = pos + 12 + size
        if size < 4 or stop > len(data):
            break
        struct.pack_into(">I", data, pos + 12, crc32(data[pos + 16 : stop]))
        pos = stop
    return bytes(data)


def signed_batches(data: bytes) -> bytes:
    """Return a set of any formats with right CRCs, as far as its sizes allow to follow it."""
    parts, pos = [], 0
    while len(data) - pos >= 17:
        size = struct.unpack_from(">i", data, pos + 8)[0]
        stop = pos + 12 + size
        if size < 5 or stop > len(data):
            break
        sign = batch_oracle.signed if data[pos + 16] == 2 and size >= 49 else signed
        parts.append(sign(data[pos:stop]))
        pos = stop
    return b"".join([*parts, data[pos:]])


def wrapped(rng: random.Random, inside: bytes) -> bytes:
    """Return a set of a wrapper with these bytes inside, between two whole messages."""
    before, after = entry(0, message(None, b"before")), message(None, b"after")
    last = rng.choice((1, 2, 5, 30))
    codec = rng.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    return before + wrapper(last, inside, codec, magic=rng.randrange(2)) + entry(last + 1, after)


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the data with one to three faults; pieces of `others` may be inserted."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(7):
            case 0:  # a bit
                if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
            case 1:  # a byte
                if at < len(changed):
                    changed[at] = rng.randrange(256)
            case 2:  # a length
                stomp = struct.pack(">i", rng.choice(LENGTHS))[rng.choice((0, 2)) :]
                changed[at : at + len(stomp)] = stomp
            case 3:  # a length, slightly wrong
                if at + 4 <= len(changed):
                    value = struct.unpack_from(">i", changed, at)[0] + rng.randint(-3, 3)
                    struct.pack_into(">I", changed, at, value & 0xFFFFFFFF)
            case 4:  # cut off
                del changed[at:]
            case 5:  # a piece removed
                del changed[at : at + rng.randint(1, 8)]
            case 6:  # a piece of another frame inserted
                other = rng.choice(others)
                begin = rng.randrange(len(other) + 1)
                changed[at:at] = other[begin : begin + rng.randint(1, 40)]
    return bytes(changed)
