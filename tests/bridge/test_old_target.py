"""A copy to a target below 0.11: in order and at least once, from and to embedded clusters."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge import copy as copy_module
from aiokafka08.bridge import daemon
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy import CHUNK_RECORDS, CopySession
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import (
    BridgeError,
    BridgeFencedError,
    TargetError,
    TargetUnavailableError,
)
from aiokafka08.bridge.groups import GroupTransfer
from aiokafka08.bridge.old_target import OldTarget
from aiokafka08.bridge.positions import read_stored_runs
from aiokafka08.bridge.sink import ordered
from aiokafka08.bridge.sink.claims import CLAIM_KEY, Claim, encode_claim
from aiokafka08.bridge.sink.ordered import OrderedSink
from aiokafka08.bridge.status import CopyStatus
from aiokafka08.bridge.target_choice import guarantee, with_releases
from aiokafka08.bridge.target_retry import when_available
from aiokafka08.bridge.topic_identity import TopicIdentities
from aiokafka08.bridge.verify import verify
from aiokafka08.errors import KafkaConfigurationError, UnsupportedVersionError
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Answer, EmbeddedCluster, Hang
from tests.bridge.begun import begun_transactions
from tests.full import in_full
from tests.waiting import until

pytestmark = [pytest.mark.timeout(120)]

TP = TopicPartition("t", 0)


@pytest.fixture
def old() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(version="0.8.2", topics={"t": 2}) as running:
        yield running


@pytest.fixture(params=["0.8.2", *in_full("0.9"), "0.10"])
def target(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    topics = {"t": 2, "aiokafka08-bridge.b.state": 1, "aiokafka08-bridge.b.offsets": 1}
    with EmbeddedCluster(version=request.param, topics=topics) as running:
        yield running


def config_of(
    source: EmbeddedCluster,
    target: EmbeddedCluster,
    more: str = "",
    *,
    of_target: str = "",
    of_copy: str = "transaction_s = 0.1",
) -> BridgeConfig:
    """Return a bridge's file; `of_target` and `of_copy` are further lines of these sections."""
    return parse_config(
        f'name = "b"\n[source]\nbootstrap = "{source.bootstrap_servers}"\n'
        f'[target]\nbootstrap = "{target.bootstrap_servers}"\n{of_target}\n'
        f'[topics]\ninclude = ["t"]\n[copy]\n{of_copy}\n{more}'
    )


def append(source: EmbeddedCluster, partition: int, count: int, first: int = 0) -> None:
    source.append("t", partition, [b"%d" % number for number in range(first, first + count)])


def stored(target: EmbeddedCluster, partition: int = 0) -> list[int]:
    return [int(one.value or b"-1") for one in target.log("t", partition)]


async def copy(config: BridgeConfig) -> CopyStatus:
    """Copy what is there, and return what was done."""
    status = CopyStatus()
    await run_bridge(config, status, until_caught_up=True)
    return status


def check_at_least_once(found: Sequence[int], count: int) -> None:
    """Each number, in order; a restart may go back, and nothing is left out behind it."""
    assert all(after <= before + 1 for before, after in pairwise([-1, *found])), found
    assert set(found) == set(range(count))
    assert found[-1] == count - 1


async def test_copy_is_equal_and_goes_on_where_it_ended(
    old: EmbeddedCluster, target: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in the verification; the guarantee is said aloud."""
    append(old, 0, 5000)
    old.append("t", 1, [None, b"", b"v"], [b"k", b"", None])
    config = config_of(old, target)
    with caplog.at_level(logging.WARNING, "aiokafka08.bridge"):
        assert (await copy(config)).records == 5003
    assert any("at least once: the target is of" in one.message for one in caplog.records)
    append(old, 0, 10, 5000)
    status = await copy(config)
    assert (status.records, status.lag()) == (10, 0)
    assert stored(target) == list(range(5010))
    assert [(one.key, one.value) for one in target.log("t", 1)] == [
        (b"k", None), (b"", b""), (None, b"v"),
    ]  # fmt: skip
    assert all(one.is_equal for one in await verify(config))


async def test_crash_before_positions_repeats_and_loses_nothing(
    old: EmbeddedCluster, target: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two copies the later one counts: offsets are translated to it."""
    append(old, 0, 300)
    config = config_of(old, target)
    await copy(config)
    append(old, 0, 200, 300)

    async def crash(*_: Any) -> None:
        raise BridgeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(OldTarget, "commit", crash)
        with pytest.raises(BridgeError, match="killed here"):
            await copy(config)
    append(old, 0, 100, 500)
    await copy(config)
    found = stored(target)
    check_at_least_once(found, 600)
    assert len(found) == 800
    connection = OldTarget(await with_releases(config))
    runs = (await read_stored_runs(config, connection)).offset_map(TP)
    await connection.close()
    last = {number: offset for offset, number in enumerate(found)}
    assert [runs.to_target(offset) for offset in range(600)] == [last[one] for one in range(600)]


async def test_copy_goes_on_behind_a_lost_end_of_the_target(
    old: EmbeddedCluster, target: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election, which these releases allow by default: offsets are given again."""
    append(old, 0, 500)
    config = config_of(old, target, of_target='compression = "none"')
    await copy(config)
    target.truncate("t", 0, 400)
    append(old, 0, 50, 500)
    with caplog.at_level(logging.WARNING, "aiokafka08.bridge"):
        await copy(config)
    assert [
        "topic 't', partition 0 at the target: the next message got offset 400; expected at least "
        "500" in one.message for one in caplog.records
    ].count(True) == 1  # fmt: skip
    caplog.clear()
    append(old, 0, 150, 550)
    assert (await copy(config)).records == 150
    assert not any("expected at least" in one.message for one in caplog.records)
    assert stored(target) == [*range(400), *range(500, 700)]
    connection = OldTarget(await with_releases(config))
    runs = (await read_stored_runs(config, connection)).offset_map(TP)
    await connection.close()
    found = {number: at for at, number in enumerate(stored(target))}
    assert [runs.to_target(number) for number in found] == list(found.values())
    assert runs.to_target(450) == 400


async def test_older_start_ends_at_its_next_commit(
    old: EmbeddedCluster, target: EmbeddedCluster
) -> None:
    """No broker fences it: it finds the newer claim before it commits a position."""
    config = config_of(old, target)
    append(old, 0, 100)
    earlier, later = CopyStatus(), CopyStatus()
    older = asyncio.create_task(run_bridge(config, earlier))
    newer = None
    try:
        await until(lambda: earlier.records == 100, "the older start copies", 30)
        newer = asyncio.create_task(run_bridge(config, later))
        await until(lambda: later.problem is None, "the newer start has claimed", 30)
        append(old, 0, 100, 100)
        with pytest.raises(BridgeFencedError, match="a newer start has taken over"):
            await asyncio.wait_for(older, 30)
        await until(lambda: later.lag() == 0 and later.records == 100, "the newer one copies", 30)
    finally:
        for task in (older, newer):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (older, newer)), return_exceptions=True)
    assert set(stored(target)) == set(range(200))
    assert stored(target)[-1] == 199


async def test_refused_record_stops_its_partition_only(old: EmbeddedCluster) -> None:
    topics = {"t": 2, "aiokafka08-bridge.b.state": 1, "aiokafka08-bridge.b.offsets": 1}
    with EmbeddedCluster(version="0.10", topics=topics, message_max_bytes=3000) as target:
        old.append("t", 0, [b"0", b"1", bytes(5000), b"3"])
        append(old, 1, 50)
        config = config_of(old, target, of_target='compression = "none"')
        status = await copy(config)
        assert list(status.stopped) == [TP]
        assert "the target refuses the record at offset 2 of the source" in status.stopped[TP]
        assert stored(target, 1) == list(range(50))


@pytest.mark.parametrize("version", ["0.9", "0.10"])
async def test_refused_record_of_a_batch_is_the_one_named(
    old: EmbeddedCluster, version: str
) -> None:
    """The broker refuses the batch by code 2; all that is in front of the record arrives."""
    topics = {"aiokafka08-bridge.b.state": 1, "aiokafka08-bridge.b.offsets": 1}
    with EmbeddedCluster(version=version, topics=topics) as target:
        target.create_topic("t", 2, config={"cleanup.policy": "compact"})
        values = [b"%d" % number for number in range(6000)]
        keys = [None if number in (4321, 4322, 5000) else b"k" for number in range(6000)]
        old.append("t", 0, values, keys)
        old.append("t", 1, values[:50], keys[:50])
        status = await copy(config_of(old, target))
        assert list(status.stopped) == [TP]
        assert "refuses the record at offset 4321 of the source" in status.stopped[TP]
        assert status.partitions[TP].position == 4321
        found = stored(target)
        assert not {4321, 4322, 5000}.intersection(found)
        check_at_least_once([one for one in found if one < 4321], 4321)
        assert stored(target, 1) == list(range(50))


async def test_end_of_a_backlog_is_committed_before_its_time(
    old: EmbeddedCluster, target: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows a round that wasn't full waits again, here until the bridge stops.

    The bridge goes on after the backlog, since the end of a copy ends its last round.
    """
    begun = begun_transactions(ordered, monkeypatch)
    append(old, 0, CHUNK_RECORDS + 5)
    limits, status = f"transaction_records = {CHUNK_RECORDS}\ntransaction_s = 60", CopyStatus()
    running = asyncio.create_task(run_bridge(config_of(old, target, of_copy=limits), status))
    try:
        await until(lambda: status.records == CHUNK_RECORDS + 5, "all are committed", 30)
        append(old, 0, 5, CHUNK_RECORDS + 5)
        await until(lambda: len(begun) == 3, "a round begins", 30)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [one.follows_full for one in begun] == [False, True, False]


async def test_record_above_the_buffer_stops_its_partition(
    old: EmbeddedCluster, target: EmbeddedCluster
) -> None:
    """The producer refuses it before the broker sees it; the source has compressed it."""
    old.append("t", 0, [b"0", b"1", bytes(100_000), b"3"], codec=Codec.GZIP)
    append(old, 1, 50)
    status = await copy(config_of(old, target, of_copy="transaction_s = 0.1\nbuffer_bytes = 65536"))
    assert list(status.stopped) == [TP]
    assert "refuses the record at offset 2 of the source" in status.stopped[TP]
    assert "copy.buffer_bytes" in status.stopped[TP]
    assert stored(target) == [0, 1]
    assert stored(target, 1) == list(range(50))


@pytest.fixture
async def recreated(
    old: EmbeddedCluster, target: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BridgeConfig]:
    """A bridge that has copied 5 messages, and whose topic was created again with 9 others."""
    append(old, 0, 5)
    identity = "zookeeper 1"

    async def read(_: TopicIdentities) -> dict[str, str]:
        return {"t": identity}

    monkeypatch.setattr(TopicIdentities, "_read", read)
    await copy(config_of(old, target))
    identity = "zookeeper 2"
    with EmbeddedCluster(version="0.8.2", topics={"t": 2}) as source:
        append(source, 0, 9, 100)
        yield config_of(source, target, of_copy='on_loss = "skip"')


async def test_recreated_topic_is_copied_from_its_beginning(
    recreated: BridgeConfig, target: EmbeddedCluster
) -> None:
    """With `on_loss="skip"`: the positions are 0 again, and the offsets those of the new topic."""
    assert (await copy(recreated)).records == 9
    assert stored(target) == [*range(5), *range(100, 109)]
    connection = OldTarget(await with_releases(recreated))
    runs = (await read_stored_runs(recreated, connection)).offset_map(TP)
    await connection.close()
    assert [runs.to_target(offset) for offset in range(9)] == list(range(5, 14))


async def test_claim_during_a_round_keeps_its_positions_away(
    old: EmbeddedCluster, target: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs may take 30 s to be written; a newer start may have set the positions to 0 by then."""
    append(old, 0, 5)
    config = config_of(old, target)
    write_all = OldTarget.write_all

    async def claim_behind(self: OldTarget, topic: str, records: Sequence[Any]) -> None:
        await write_all(self, topic, records)
        if topic == config.offsets_topic:
            claim = [(CLAIM_KEY, encode_claim(Claim("newer", 1, 1)))]
            await write_all(self, config.state_topic, claim)

    monkeypatch.setattr(OldTarget, "write_all", claim_behind)
    with pytest.raises(BridgeFencedError, match="run newer"):
        await asyncio.wait_for(copy(config), 60)
    connection = OldTarget(await with_releases(config))
    assert await connection.committed(config.position_group, [TP]) == {}
    await connection.close()


async def test_recreated_topic_begins_at_0_whatever_is_committed(
    recreated: BridgeConfig, target: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older start may commit its position once more behind the 0."""
    begin_anew = OrderedSink.begin_anew

    async def commit_behind(self: OrderedSink, *arguments: Any) -> None:
        await begin_anew(self, *arguments)
        await self._target.commit(recreated.position_group, {TP: (5, "")})

    monkeypatch.setattr(OrderedSink, "begin_anew", commit_behind)
    assert (await copy(recreated)).records == 9
    assert stored(target) == [*range(5), *range(100, 109)]


async def test_target_that_refuses_the_bridge_ends_the_session(
    old: EmbeddedCluster, target: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """TOPIC_AUTHORIZATION_FAILED is about no record: the next session copies it."""
    append(old, 0, 1)
    target.fault(
        ProduceRequest, then=Answer(29), where=lambda one: "t" in [of.topic for of in one.topics]
    )
    with caplog.at_level(logging.WARNING, "aiokafka08.bridge"):
        status = await copy(config_of(old, target))
    assert (status.sessions, status.stopped, stored(target)) == (2, {}, [0])
    [text] = [one.message for one in caplog.records if "the copy stopped" in one.message]
    assert "write: topic 't', partition 0, source offset 0: [Error 29]" in text


async def test_round_holds_no_more_than_the_buffer(
    old: EmbeddedCluster, target: EmbeddedCluster
) -> None:
    """It keeps its records until it ends, so that it can name a refused one."""
    for _ in range(20):
        old.append("t", 0, [bytes(1000)] * 50)
    limits = "transaction_s = 5\nbuffer_bytes = 65536\nfetch_bytes = 65536"
    config = config_of(old, target, of_copy=limits)
    status = await copy(config)
    assert status.records == 1000
    assert status.transactions >= 1000 * 1000 // (2 * 65536)


async def test_groups_move_to_an_old_target(old: EmbeddedCluster) -> None:
    topics = {"t": 2, "aiokafka08-bridge.b.state": 1, "aiokafka08-bridge.b.offsets": 1}
    topics |= {"source.checkpoints.internal": 1, "mm2-offset-syncs.source.internal": 1}
    with EmbeddedCluster(version="0.10", topics=topics) as target:
        append(old, 0, 10)
        target.append("t", 0, [b"-2"] * 3)  # offsets differ by three
        more = '[groups]\ninclude = ["g"]\nstore = "file"\nfile = "unused"\n'
        config = config_of(old, target, more)
        with pytest.raises(BridgeError, match="the target has messages in t, and bridge 'b'"):
            await copy(config)
        topics_of_both = replace(config.topics, append=config.topics.include)
        config = replace(config, topics=topics_of_both)
        await copy(config)
        transfer = GroupTransfer(await with_releases(config), {"g": {TP: (4, "text")}})
        try:
            [move] = await transfer.carry_over()
            assert (move.outcome, move.target_offset) == ("move", 7)
            assert await transfer.committed("g", [TP]) == {TP: 7}
            [move] = await transfer.plan()
            assert move.outcome == "same"
        finally:
            await transfer.close()


@pytest.mark.parametrize(
    ("version", "more", "error", "text"),
    [
        ("0.8.0", "", UnsupportedVersionError, "is of 0.8.0, which keeps no groups"),
        ("0.10", 'compression = "zstd"', KafkaConfigurationError, "expected none, gzip, snappy"),
        ("0.10", "", TargetError, r"only ZooKeeper creates topics.*target\.zookeeper"),
        (
            "0.10",
            'zookeeper = "localhost:1"',
            TargetError,
            r"target\.replication_factor=-1: .* expected an integer >= 1",
        ),
    ],
)
async def test_what_an_old_target_lacks_is_named(
    old: EmbeddedCluster, version: str, more: str, error: type[Exception], text: str
) -> None:
    with EmbeddedCluster(version=version, topics={"t": 2}) as target:
        config = config_of(old, target, of_target=more)
        with pytest.raises(error, match=text):
            await asyncio.wait_for(copy(config), 60)


@pytest.mark.parametrize(("release", "grows"), [("0.8.2.2", True), ("0.9", False)])
def test_guarantee_says_which_topic_grows(release: str, grows: bool) -> None:
    """Brokers of 0.8.2 compact no topic by default."""
    config = parse_config(
        'name = "b"\n[source]\nbootstrap = "a:1"\n[target]\nbootstrap = "b:1"\n'
        '[topics]\ninclude = ["t"]\n'
    )
    text = guarantee(replace(config, target=replace(config.target, release=release)))
    assert ("log.cleaner.enable" in text and config.offsets_topic in text) is grows


async def test_target_that_is_away_is_no_modern_one(old: EmbeddedCluster) -> None:
    """Otherwise an old target would be taken for a modern one while it restarts."""
    with EmbeddedCluster(version="0.10") as target:
        config = config_of(old, target)
    with pytest.raises(TargetUnavailableError):
        await with_releases(config)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.certificate.pem", "-----BEGIN CERTIFICATE-----"),
        ("ssl.cipher.suites", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("ssl.keystore.password", "of-no-value"),
        ("sasl.mechanism", "PLAIN"),
    ],
)
async def test_target_with_tls_of_librdkafka_only_counts_as_modern(
    name: str, text: str, unused_tcp_port: int
) -> None:
    """Without it this client's probe would fail, though librdkafka can connect."""
    config = parse_config(
        'name = "b"\n[source]\nbootstrap = "localhost:1"\n'
        f'[target]\nbootstrap = "localhost:{unused_tcp_port}"\n'
        f'[target.properties]\n"security.protocol" = "SSL"\n"{name}" = "{text}"\n'
        '[topics]\ninclude = ["t"]\n'
    )
    assert (await with_releases(config)).target.release is None


async def test_source_that_tells_no_release_is_copied(
    old: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that hangs at this question must not keep the bridge from its start."""
    monkeypatch.setattr(copy_module, "RELEASE_S", 0.1)
    append(old, 0, 10)
    ping_brokers, hung = AIOKafkaAdminClient.ping_brokers, 0

    async def hang_once(admin: AIOKafkaAdminClient) -> dict[int, Any]:
        nonlocal hung
        hung += 1
        if hung == 1:
            await asyncio.Event().wait()
        return await ping_brokers(admin)

    monkeypatch.setattr(AIOKafkaAdminClient, "ping_brokers", hang_once)
    topics = {"t": 2, "aiokafka08-bridge.b.state": 1, "aiokafka08-bridge.b.offsets": 1}
    with EmbeddedCluster(version="0.9", topics=topics) as target:
        status = await asyncio.wait_for(copy(config_of(old, target)), 60)
    assert (status.records, status.sessions) == (10, 1)
    assert hung


async def test_ended_session_is_gone_before_the_next(
    old: EmbeddedCluster, target: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions with their buffers would take twice the memory, and none would be returned."""
    append(old, 0, 100)
    ended: list[weakref.ref[CopySession]] = []
    left: list[CopySession | None] = []

    class Observed(CopySession):
        def __init__(self, *arguments: Any) -> None:
            left.extend(one() for one in ended)
            super().__init__(*arguments)
            ended.append(weakref.ref(self))

    commit = OldTarget.commit

    async def fail_once(*arguments: Any) -> None:
        if len(ended) == 1:
            raise TargetUnavailableError("away")
        await commit(*arguments)

    monkeypatch.setattr(daemon, "CopySession", Observed)
    monkeypatch.setattr(OldTarget, "commit", fail_once)
    monkeypatch.setattr(ordered, "when_available", partial(when_available, timeout_s=0.5))
    status = await asyncio.wait_for(copy(config_of(old, target)), 60)
    assert status.sessions == 2
    assert left == [None]


async def test_close_ends_a_write_that_hangs(old: EmbeddedCluster, target: EmbeddedCluster) -> None:
    """Otherwise a stop at the end of a round would take as long as the write may."""
    connection = OldTarget(await with_releases(config_of(old, target)))
    hanging = target.fault(ProduceRequest, then=Hang())
    writing = asyncio.create_task(connection.write("t", b"k", b"v"))
    await until(lambda: hanging.hits == 1, "the request has arrived", 30)
    writing.cancel()
    async with asyncio.timeout(5):
        await connection.close()
