"""`bridge plan` and `bridge cutover` say what isn't ready, and what to do, on real clusters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.bridge.config import BridgeConfig, read_config
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.groups.target_groups import TargetGroups
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.when_available import when_available
from tests._tools.cli.conftest import Done, RunCommand
from tests.bridge.hand_copy import HandCopy, Message, create_topics, write_config
from tests.bridge.test_groups import commit, write_source
from tests.bridge.test_verify import write_target
from tests.brokers import RealCluster
from tests.support.waiting import until


class CopiedTopic(NamedTuple):
    """A topic whose messages are copied, and a group that has read 40 of them."""

    topic: str
    group: str
    config: BridgeConfig
    copy: HandCopy


@pytest.fixture
async def copied(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> CopiedTopic:
    topic, group = unique_topic("0-orders"), unique_topic("0-billing")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    messages = await write_source(source, topic)
    await commit(source, group, "zookeeper", topic, 40)
    more = f'[groups]\ninclude = ["{group}"]\n'
    config = write_config(tmp_path, unique_topic("b"), source, target, [topic], more)
    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages)
    return CopiedTopic(topic, group, config, copy)


async def bridge(cli: RunCommand, config: BridgeConfig, *arguments: str) -> Done:
    name, *options = arguments
    return await asyncio.to_thread(
        cli, "bridge", name, str(config.path), *options, "--format", "json"
    )


def steps_of(done: Done) -> dict[str, tuple[bool, str]]:
    return {row["step"]: (row["ready"], row["detail"]) for row in done.json}


async def at_target(copied: CopiedTopic) -> dict[TopicPartition, int]:
    """Return what the group has committed at the target."""
    cluster = Target(copied.config)
    try:
        place = TopicPartition(copied.topic, 0)
        return await when_available(lambda: cluster.committed(copied.group, [place]))
    finally:
        await cluster.close()


def replace_text(config: BridgeConfig, old: str, new: str) -> None:
    text = config.path.read_text()
    assert old in text
    config.path.write_text(text.replace(old, new))


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_pattern_that_matches_nothing_isnt_ready(
    copied: CopiedTopic, cli: RunCommand
) -> None:
    config, execute = copied.config, ("cutover", "--execute", "--quiet", "0.1")
    replace_text(config, f'"{copied.topic}"', f'"{copied.topic}", "cliks-.*"')
    found = steps_of(await bridge(cli, config, "plan", "--quiet", "0.1"))
    ready, detail = found["topics"]
    assert not ready
    assert "topics.include: 'cliks-.*' matches no topic of the source" in detail
    assert copied.topic in detail.partition("The topics found: ")[2]
    done = await bridge(cli, config, *execute)
    assert (done.code, list(steps_of(done))) == (1, ["topics"])

    replace_text(config, ', "cliks-.*"', "")
    replace_text(config, f'"{copied.group}"', f'"{copied.group}", "biling"')
    ready, detail = steps_of(await bridge(cli, config, "plan", "--quiet", "0.1"))["consumers"]
    assert not ready
    assert "groups.include: 'biling' matches no group of the source" in detail
    assert copied.group in detail.partition("The groups found: ")[2]
    done = await bridge(cli, config, "groups")
    assert (done.code, [row["group"] for row in done.json]) == (1, [copied.group])
    assert f"aiokafka08: {detail}\n" in done.err
    done = await bridge(cli, config, *execute)
    assert (done.code, list(steps_of(done))[-1]) == (1, "consumers")
    assert await at_target(copied) == {}

    replace_text(config, f'"{copied.group}", ', "")
    found = steps_of(await bridge(cli, config, "plan", "--quiet", "0.1"))
    assert found["groups"] == (
        False,
        "no group of [groups] has committed offsets in the topics of the bridge",
    )
    offsets = config.path.with_suffix(".csv")
    offsets.write_text("biling,other-topic,0,1\n")
    replace_text(config, '["biling"]', f'["biling"]\nstore = "file"\nfile = "{offsets}"')
    done = await bridge(cli, config, "groups", "--execute")
    assert (done.code, done.json) == (1, [])
    assert "no group of [groups] has committed offsets in the topics of the bridge" in done.err


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_cutover_stops_while_producers_write(
    copied: CopiedTopic, source: RealCluster, cli: RunCommand
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers) as producer:
        cutover = asyncio.create_task(
            bridge(cli, copied.config, "cutover", "--execute", "--quiet", "1")
        )
        while not cutover.done():
            await producer.send_and_wait(copied.topic, b"late", partition=0)
    done = await cutover
    assert done.code == 1
    last, (ready, detail) = [*steps_of(done).items()][-1]
    assert (last, ready) == ("producers", False)
    assert detail.startswith(f"still write to the source: {copied.topic} (+")
    assert await at_target(copied) == {}


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", ["source", "target"])
async def test_cutover_stops_while_a_group_has_members(
    place: str, copied: CopiedTopic, source: RealCluster, target: RealCluster, cli: RunCommand
) -> None:
    execute = ("cutover", "--execute", "--quiet", "0.1", "--no-verify")
    async with live_member(place, copied, source, target):
        done = await bridge(cli, copied.config, *execute)
        assert done.code == 1
        last, (ready, detail) = [*steps_of(done).items()][-1]
        assert (last, ready) == ("consumers", False)
        assert detail.startswith(f"stop the members of {copied.group} at the {place} (")
        assert "aiokafka08: stopped at 'consumers'; nothing was committed, from" in done.err
        assert await at_target(copied) == {}
    done = await bridge(cli, copied.config, *execute)
    assert (done.code, await at_target(copied)) == (0, {TopicPartition(copied.topic, 0): 40})


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_plan_and_cutover_agree_on_groups_that_read_on(
    copied: CopiedTopic, source: RealCluster, target: RealCluster, cli: RunCommand
) -> None:
    """Behind the cut-over a member at the target is no reason to stop it."""
    options = ("--quiet", "0.1")
    execute = ("cutover", "--execute", "--no-verify", *options)
    assert (await bridge(cli, copied.config, *execute)).code == 0
    async with live_member("target", copied, source, target):
        plan = await bridge(cli, copied.config, "plan", *options)
        done = await bridge(cli, copied.config, *execute)
    planned, found = steps_of(plan), steps_of(done)
    assert "next: nothing to do but to start" in plan.err
    for step in ("consumers", "groups"):
        assert planned[step] == found[step]
    ready, detail = planned["consumers"]
    assert ready
    assert "1 group, without members at the source; those that read on" in detail
    assert "stop" not in detail
    assert planned["groups"] == (True, "0 offsets to commit, 1 is at the target")
    assert done.code == 0
    assert found["carried over"][1].startswith(
        "0 offsets committed at the target (1 was there already). "
    )
    await commit(source, copied.group, "zookeeper", copied.topic, 50)
    async with live_member("target", copied, source, target):
        plan = await bridge(cli, copied.config, "plan", *options)
        done = await bridge(cli, copied.config, *execute)
    assert steps_of(plan)["consumers"] == steps_of(done)["consumers"]
    ready, detail = steps_of(plan)["consumers"]
    assert not ready
    assert detail.startswith(f"stop the members of {copied.group} at the target (")


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_plan_and_cutover_name_partitions_without_an_offset(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """There the group begins by its setting at the target, as it would have at the source."""
    topic, group = unique_topic("orders"), unique_topic("billing")
    await asyncio.to_thread(source.create_topic, topic, 3)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 3})
    await commit(source, group, "zookeeper", topic, 40)
    more = f'[groups]\ninclude = ["{group}"]\n'
    config = write_config(tmp_path, unique_topic("b"), source, target, [topic], more)
    copy = await asyncio.to_thread(HandCopy, config)
    for partition in range(2):  # 2 stays empty
        messages = await write_source(source, topic, partition)
        await asyncio.to_thread(copy.copy, topic, partition, messages)
    expected = (
        True,
        f"1 offset to commit, 0 are at the target. No offset is committed for {topic}/1 "
        f"({group}): there these groups begin at their auto.offset.reset at the target",
    )
    options = ("--quiet", "0.1")
    assert steps_of(await bridge(cli, config, "plan", *options))["groups"] == expected
    done = await bridge(cli, config, "cutover", "--execute", "--no-verify", *options)
    assert (done.code, steps_of(done)["groups"]) == (0, expected)


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_source_of_4_0_may_be_the_target(
    target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path, cli: RunCommand
) -> None:
    servers = target.bootstrap_servers
    path = tmp_path / "bridge.toml"
    path.write_text(
        f'name = "{unique_topic("b")}"\n[source]\nbootstrap = "{servers}"\n'
        f'[target]\nbootstrap = "{servers}"\n[topics]\ninclude = ["orders"]\n'
        '[groups]\nstore = "kafka"\n'
    )
    config = read_config(path)
    for name in ("plan", "groups", "status"):
        done = await bridge(cli, config, name)
        assert done.code != 0
        assert f"source.bootstrap={config.source.bootstrap!r}: " in done.err
        assert "it is a 4.x (or later) broker" in done.err
        assert "Are the source and the target swapped?" in done.err
        assert "current client" not in done.err


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_status_without_positions_shows_the_rest(
    copied: CopiedTopic, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed bridge leaves a transaction open, and the target waits for its end."""

    async def time_out(self: Target, group: str, partitions: object) -> None:
        raise TargetUnavailableError("_TIMED_OUT: Failed to get committed offsets")

    monkeypatch.setattr(Target, "committed", time_out)
    done = await bridge(cli, copied.config, "status")
    assert done.code == 1
    [row] = done.json
    assert (row["topic"], row["position"], row["end"], row["lag"]) == (copied.topic, None, 60, None)
    assert "positions unknown: _TIMED_OUT: Failed to get committed offsets. If 'bridge run'" in (
        done.err
    )
    assert "again in a minute" in done.err


@asynccontextmanager
async def live_member(
    place: str, copied: CopiedTopic, source: RealCluster, target: RealCluster
) -> AsyncIterator[None]:
    """Keep a member in the group, at the source by ZooKeeper or at the target, during the block."""
    if place == "source":
        async with AIOKafkaConsumer(
            copied.topic,
            bootstrap_servers=source.bootstrap_servers,
            zookeeper_connect=source.zookeeper_connect,
            group_id=copied.group,
            enable_auto_commit=False,
        ) as consumer:
            await until(consumer.assignment, "the member has partitions", 60)
            yield
        return
    joined = asyncio.Event()
    loop = asyncio.get_running_loop()
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "group.id": copied.group,
            "enable.auto.commit": False,
        }
    )

    def on_assign(consumer: object, partitions: object) -> None:
        loop.call_soon_threadsafe(joined.set)

    member.subscribe([copied.topic], on_assign=on_assign)
    leaving = threading.Event()

    def poll() -> None:
        while not leaving.is_set():
            member.poll(0.1)

    polling = asyncio.create_task(asyncio.to_thread(poll))
    try:
        async with asyncio.timeout(60):
            await joined.wait()
        yield
    finally:
        leaving.set()
        await polling
        await asyncio.to_thread(member.close)


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_forward_again_after_a_rollback_is_explained(
    copied: CopiedTopic,
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    cli: RunCommand,
) -> None:
    """Producers wrote to the target before the rollback, and to the source after it."""
    topic, group, config, copy = copied
    place = TopicPartition(topic, 0)
    there: list[Message] = [(0, None, b"there %d" % number) for number in range(3)]
    cluster = Target(config)
    try:
        await cluster.wait_stable({place: 61})  # the marker of the copy comes before them
        await asyncio.to_thread(write_target, target.bootstrap_servers, topic, there)
        await TargetGroups(cluster, config).commit(group, {place: (63, "")})
    finally:
        await cluster.close()
    await commit(source, group, "zookeeper", topic, 50)
    again = [b"again %d" % number for number in range(3)]
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        await (await producer.send_many(topic, again, partition=0))
    later: list[Message] = [(60 + number, None, value) for number, value in enumerate(again)]
    await asyncio.to_thread(copy.copy, topic, 0, later)

    done = await bridge(cli, config, "verify")
    assert f"{topic}/0: extra: offset 60 of the source, 61 of {topic}/0 at the target" in done.err
    assert "a message of another producer, which the bridge hasn't written" in done.err
    done = await bridge(cli, config, "plan", "--quiet", "0.1")
    ready, detail = steps_of(done)["verification"]
    assert not ready
    assert f"behind the bridge's: {topic}/0 from offset 61 on. If they belong there" in detail
    assert "--no-verify" in detail
    assert "next: see the step 'verification'" in done.err
    execute = ("cutover", "--execute", "--quiet", "0.1")
    steps = steps_of(await bridge(cli, config, *execute))
    assert steps["verification"] == (
        False,
        f"the target has messages of another producer, behind the bridge's: {topic}/0 from offset "
        "61 on. If they belong there, leave the verification out with --no-verify",
    )
    steps = steps_of(await bridge(cli, config, *execute, "--no-verify"))
    assert list(steps)[-1] == "groups"
    ready, detail = steps["groups"]
    assert not ready
    assert f"{group}, {topic}/0: behind: the target is at 63" in detail
    assert "If that was since a cut-over, nothing is to be done for them" in detail
    assert "'bridge groups --execute' leaves these where they are at the target" in detail
    assert "'bridge groups --execute --rewind' moves them back" in detail
    done = await bridge(cli, config, "groups", "--execute")
    assert (done.code, await at_target(copied)) == (1, {place: 63})
    done = await bridge(cli, config, "groups", "--execute", "--rewind")
    assert (done.code, await at_target(copied)) == (0, {place: 50})
    steps = steps_of(await bridge(cli, config, *execute, "--no-verify"))
    assert steps["carried over"][0]


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_last_line_says_whether_offsets_were_committed(
    copied: CopiedTopic, source: RealCluster, cli: RunCommand
) -> None:
    config = copied.config

    async def last_line(*arguments: str) -> str:
        return (await bridge(cli, config, *arguments)).err.splitlines()[-1]

    there, here = config.target.bootstrap, config.source.bootstrap
    planned = await last_line("groups")
    assert planned == f"aiokafka08: nothing changed at the target {there}; add --execute"
    assert await at_target(copied) == {}
    done = await last_line("groups", "--execute")
    assert done == f"aiokafka08: 1 offset committed at the target {there}"
    again = await last_line("groups", "--execute")
    assert again == f"aiokafka08: 0 offsets committed at the target {there} (1 was there already)"
    await commit(source, copied.group, "zookeeper", copied.topic, 30)
    dry = await last_line("cutover", "--rollback", "--dry-run")
    nothing = f"nothing changed at the source {here}; leave out --dry-run to commit"
    assert dry == f"aiokafka08: {nothing}"
    back = await last_line("cutover", "--rollback")
    assert back == f"aiokafka08: 1 offset committed at the source {here}"


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_plan_ends_with_what_to_do_next(
    copied: CopiedTopic, source: RealCluster, cli: RunCommand
) -> None:
    """Each call follows the advice of the one before."""
    topic, _, config, copy = copied

    async def plan() -> tuple[str, dict[str, tuple[bool, str]]]:
        done = await bridge(cli, config, "plan", "--quiet", "0.1")
        return done.err.splitlines()[-1].removeprefix("aiokafka08: "), steps_of(done)

    replace_text(config, f'"{topic}"', f'"{topic}|{topic}-2"')
    await asyncio.to_thread(source.create_topic, f"{topic}-2")
    assert (await plan())[0] == "next: start 'bridge run', which creates the topics"
    replace_text(config, f"|{topic}-2", "|none")
    line, steps = await plan()
    assert line == "next: run 'bridge verify'"
    assert steps["topics"] == (True, "1 topic, 1 partition")
    assert steps["copy"] == (True, "1 partition is copied to the end")
    assert steps["consumers"] == (True, "1 group, without members")
    assert steps["groups"] == (True, "1 offset to commit, 0 are at the target")
    assert (await bridge(cli, config, "verify")).code == 0
    line, steps = await plan()
    assert line == "next: stop producers and consumers, then 'bridge cutover --execute'"
    assert steps["verification"][1].endswith(": 60 messages are equal")
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        await producer.send_and_wait(topic, b"later", partition=0)
    line, _ = await plan()
    assert line == "next: start 'bridge run', and let it reach the end; then 'bridge verify'"
    await asyncio.to_thread(copy.copy, topic, 0, [(60, None, b"later")])
    _, steps = await plan()
    ready, detail = steps["verification"]
    assert ready
    assert detail.endswith(": 60 messages are equal; 1 offset copied since wasn't compared")


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_group_in_a_topic_that_is_not_copied_is_named_by_each_command(
    copied: CopiedTopic, source: RealCluster, unique_topic: Callable[..., str], cli: RunCommand
) -> None:
    """Its position would be dropped without a word, and "the groups are carried over" be said."""
    state, both = unique_topic("1-state"), unique_topic("1-both")
    await asyncio.to_thread(source.create_topic, state)
    await commit(source, both, "kafka", state, 3)
    await commit(source, copied.group, "zookeeper", state, 5)
    replace_text(copied.config, f'"{copied.group}"', f'"{copied.group}", "{both}"')
    nothing = f"othing of group '{both}' is carried over: the bridge doesn't copy {state}"
    part = f"that the bridge doesn't copy: '{copied.group}': {state}"
    options = ("--quiet", "0.1")
    ready, detail = steps_of(await bridge(cli, copied.config, "plan", *options))["groups"]
    assert ready
    assert nothing in detail
    assert part in detail
    done = await bridge(cli, copied.config, "groups")
    assert done.code == 0
    assert nothing in done.err
    assert part in done.err
    done = await bridge(cli, copied.config, "cutover", "--execute", "--no-verify", *options)
    assert done.code == 0
    assert nothing in steps_of(done)["carried over"][1]
    assert await at_target(copied) == {TopicPartition(copied.topic, 0): 40}


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_status_by_another_rename_names_the_real_copy(
    copied: CopiedTopic, cli: RunCommand
) -> None:
    done = await bridge(cli, copied.config, "status", "--rename", "(.*)=wrong.\\1")
    assert done.code == 0
    assert [row["position"] for row in done.json] == [None]
    assert f"has positions in other topics of the target: {copied.topic}. Give" in done.err
    done = await bridge(cli, copied.config, "status")
    assert (done.code, done.err) == (0, "")
