"""The protocol "consumer" in bytes: version 0 is encoded, all versions are decoded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition

VERSION_0 = struct.pack(">hih1si2s", 0, 1, 1, b"t", 2, b"ud")
# As Java 3.9 writes them: owned partitions from 1 on, the generation from 2, the rack from 3.
OWNED = struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 3)
LATER = [OWNED, OWNED + struct.pack(">i", 5), OWNED + struct.pack(">ih", 5, -1)]


def test_subscription_is_encoded_as_version_0() -> None:
    assert ConsumerProtocolMemberMetadata(0, ["t"], b"ud").encode() == VERSION_0


@pytest.mark.parametrize("version", range(4))
def test_subscription_of_each_version_is_decoded(version: int) -> None:
    data = struct.pack(">h", version) + VERSION_0[2:]
    data += LATER[version - 1] if version else b""
    read = ConsumerProtocolMemberMetadata.decode(data)
    assert read == ConsumerProtocolMemberMetadata(version, ["t"], b"ud")


def test_null_user_data_is_decoded_as_empty() -> None:
    data = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
    assert ConsumerProtocolMemberMetadata.decode(data).user_data == b""


@pytest.mark.parametrize("version", range(4))
def test_assignment_of_each_version_is_decoded(version: int) -> None:
    written = ConsumerProtocolMemberAssignment(0, [("t", [0, 3])], b"").encode()
    assert written == struct.pack(">hih1siiii", 0, 1, 1, b"t", 2, 0, 3, 0)
    read = ConsumerProtocolMemberAssignment.decode(struct.pack(">h", version) + written[2:])
    assert read.partitions() == [TopicPartition("t", 0), TopicPartition("t", 3)]


def test_empty_bytes_are_an_empty_assignment() -> None:
    assert ConsumerProtocolMemberAssignment.decode(b"").partitions() == []


@given(st.binary(max_size=40))
def test_random_bytes_raise_only_protocol_errors(data: bytes) -> None:
    for kind in (ConsumerProtocolMemberMetadata, ConsumerProtocolMemberAssignment):
        try:
            kind.decode(data)
        except KafkaProtocolError:
            pass
