"""Records of offsets: there and back, hostile bytes, and the same bytes as MirrorMaker 2's jar."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.bridge.copy.offset_runs import OffsetRun
from aiokafka08.bridge.copy.run_formats import (
    Checkpoint,
    OffsetSync,
    RunsKey,
    checkpoints_topic,
    decode_runs,
    decode_runs_key,
    encode_checkpoint,
    encode_runs,
    encode_runs_key,
    encode_sync,
    offset_syncs_topic,
)
from aiokafka08.errors import KafkaProtocolError
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version
from tests.protocol.strategies import examples, texts

PEER = Path(__file__).parent / "MirrorPeer.java"
offsets = st.integers(-(2**63), 2**63 - 1)
partitions = st.integers(-(2**31), 2**31 - 1)

DECODERS: list[Callable[[bytes], Any]] = [decode_runs_key, decode_runs]


@examples(25)
@given(texts, partitions, offsets, st.lists(st.tuples(offsets, offsets, offsets), max_size=3))
def test_runs_decode_to_themselves(
    topic: str, partition: int, source: int, rows: list[tuple[int, int, int]]
) -> None:
    key = RunsKey(topic, partition, source)
    assert decode_runs_key(encode_runs_key(key)) == key
    runs = tuple(OffsetRun(*row) for row in rows)
    data = encode_runs(runs)
    assert decode_runs(data) == runs
    assert len(data) == 6 + 24 * len(runs)


def test_unknown_version_is_none() -> None:
    assert decode_runs(b"\0\1later") is None


@pytest.mark.parametrize("decode", DECODERS)
def test_hostile_bytes_raise_protocol_errors(decode: Callable[[bytes], Any]) -> None:
    rng = random.Random(19)
    for size in range(40):
        for _ in range(20):
            try:
                decode(bytes(rng.choices([0, 0, 0, 1, 5, 0xFF], k=size)))
            except KafkaProtocolError:
                pass


def test_topic_names_are_those_of_mirror_maker() -> None:
    assert offset_syncs_topic("old") == "mm2-offset-syncs.old.internal"
    assert checkpoints_topic("old") == "old.checkpoints.internal"


def test_mirror_maker_writes_the_same_bytes(tmp_path: Path) -> None:
    write_logging_files(tmp_path)
    tools = JavaTools(find_version("3.9.1-mirror"), tmp_path)

    def written(*args: object) -> tuple[bytes, ...]:
        done = tools.run(str(PEER), *map(str, args), input=None, timeout=60)
        assert done.returncode == 0, done.stderr
        return tuple(bytes.fromhex(line) for line in done.stdout.split())

    sync = OffsetSync("orders", 7, 2**40, 3)
    assert written("sync", *sync) == encode_sync(sync)
    checkpoint = Checkpoint("billing-ö", "old.orders", 7, 9, 2**33, "note ü")
    assert written("checkpoint", *checkpoint) == encode_checkpoint(checkpoint)
