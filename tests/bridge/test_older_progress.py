"""What an older release kept of a bridge is read: its own topics, and a verification's progress.

The files in tests/bridge/progress are of commit 26f081b9, before the modules of the bridge were
moved into folders: the records of both topics, as a target keeps them after compaction (keys and
values in hexadecimal), and the file of an interrupted verification. Neither holds a pickle, nor the
name of a module.
"""

from __future__ import annotations

import json
from pathlib import Path

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.copy_positions import StoredRuns
from aiokafka08.bridge.copy.offset_runs import OffsetRun, RunRecord
from aiokafka08.bridge.sink.claims import Claim, decode_claims, next_claim
from aiokafka08.bridge.source.topic_identity import _decoded, _Identity
from aiokafka08.bridge.target.target_cluster import TargetRecord
from aiokafka08.bridge.verify.sequence_check import CheckProgress, Difference
from aiokafka08.bridge.verify.verification import OffsetPair, PartitionVerdict
from aiokafka08.bridge.verify.verify_state import VerifyState, last_verification, state_path
from aiokafka08.structs import TopicPartition

FOLDER = Path(__file__).parent / "progress"
ORDERS = TopicPartition("orders", 0)
"""130 transactions of 10 messages: a page and three records."""
HOLES = TopicPartition("orders", 1)

VERDICTS = [
    PartitionVerdict(
        "orders",
        0,
        "old.orders",
        CheckProgress(
            source_next=1300,
            target_next=1430,
            source_count=1300,
            target_count=1300,
            crc=0x1F3A5B7C,
            last_crc=0x0BADCAFE,
            last_timestamp=1795800000000,
            first_pair=(0, 0),
            last_pair=(1299, 1428),
        ),
        is_complete=True,
        first_map=OffsetPair(0, 0, 0),
        last_map=OffsetPair(1299, 1428, 1428),
    ),
    PartitionVerdict(
        "orders",
        1,
        "old.orders",
        CheckProgress(
            source_next=13,
            target_next=4,
            source_count=4,
            target_count=5,
            crc=77,
            difference=Difference("twice", 12, 3, 3),
            last_crc=99,
            last_timestamp=1795800000500,
            first_pair=(7, 0),
            last_pair=(9, 2),
        ),
        waiting=2,
        is_of_another=True,
        before=7,
    ),
    PartitionVerdict("payments", 0, "old.payments", CheckProgress(0, 0), has_begun=False),
]


def kept(topic: str) -> list[TargetRecord]:
    """Return the records of the topic "state" or "offsets", in the order of the log."""
    return [
        TargetRecord(
            0,
            offset,
            bytes.fromhex(one["key"]),
            None if one["value"] is None else bytes.fromhex(one["value"]),
            0,
        )
        for offset, one in enumerate(json.loads((FOLDER / "own_topics.json").read_text()))
        if one["topic"] == topic
    ]


def test_names_by_which_a_bridge_finds_its_progress_stay() -> None:
    config = parse_config(
        'name="copy"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="b:1"\n'
        '[topics]\ninclude=["t"]\n'
    )
    assert config.position_group == "aiokafka08-bridge.copy"
    assert config.offsets_topic == "aiokafka08-bridge.copy.offsets"
    assert config.state_topic == "aiokafka08-bridge.copy.state"
    assert config.transactional_id(1) == "aiokafka08-bridge.copy.1"
    assert state_path(FOLDER / "bridge.toml") == FOLDER / "bridge.verify.json"


def test_claims_and_identities_of_an_older_release_are_read() -> None:
    records = kept("state")
    claims = decode_claims((one.key, one.value) for one in records)
    assert claims == [Claim("5d0c", 4, 4), Claim("a17e", 2, 4)]
    assert next_claim(claims, "new", 3) == Claim("new", 3, 4)
    assert _decoded(records) == {
        "orders": _Identity("zookeeper 8589934594 below 4294967300"),
        "payments": _Identity("zookeeper 8589934600", "zookeeper 8589934700 below 4294967300"),
    }


def test_offset_runs_of_an_older_release_are_read_and_continued() -> None:
    stored = StoredRuns()
    stored.add_all(kept("offsets"))
    assert not stored.damaged
    runs = [OffsetRun(10 * number, 11 * number, 10) for number in range(130)]
    holes = [OffsetRun(7, 0, 3), OffsetRun(12, 3, 2), OffsetRun(14, 6, 1), OffsetRun(20, 7, 1)]
    assert list(stored.offset_map(ORDERS)) == runs
    assert list(stored.offset_map(HOLES)) == holes
    logs = stored.run_logs()
    assert {tp: log.end_target for tp, log in logs.items()} == {ORDERS: 1429, HOLES: 8}
    added, after = logs[ORDERS].append([OffsetRun(1300, 1430, 10)])
    assert added == [RunRecord(1300, (OffsetRun(1300, 1430, 10),))]
    assert after.end_target == 1440


def test_verification_of_an_older_release_is_resumed() -> None:
    path = FOLDER / "bridge.verify.json"
    state = VerifyState(path, "copy", timestamps=True)
    state.load()
    assert list(state.verdicts.values()) == VERDICTS
    found = last_verification(path)
    assert found is not None
    assert (found.at, found.is_equal, found.count) == (1795800001.5, False, 1304)
    assert found.ends == {ORDERS: 1300, HOLES: 13, TopicPartition("payments", 0): 0}
