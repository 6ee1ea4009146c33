"""Groups in ZooKeeper, shared with Kafka 0.8's own Scala consumer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka08.consumer.membership.registry import Registry
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.errors import (
    CommitFailedError,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaUnavailableError,
)
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.ports import free_port
from tests.membership.foreign import ScalaMember
from tests.membership.worker import Worker
from tests.testing.targets import new_name

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]

PARTITIONS = 6

older = [
    pytest.param("0.8.1.1", marks=pytest.mark.full),
    pytest.param("0.8.0", marks=pytest.mark.full),
]


@pytest.fixture(params=["0.8.2.2"])
def cluster(request: pytest.FixtureRequest, broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get(request.param, 1)


@pytest.fixture
def stops() -> Iterator[list[Callable[[], object]]]:
    """What is to be stopped at the end."""
    stops: list[Callable[[], object]] = []
    yield stops
    for stop in stops:
        stop()


@pytest.fixture
def registry(cluster: RealCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


class Group:
    """A group as ZooKeeper has it."""

    def __init__(self, registry: KazooClient, cluster: RealCluster) -> None:
        self.name, self.topic = new_name("g"), new_name("t")
        self.registry = registry
        cluster.create_topic(self.topic, PARTITIONS)

    @property
    def root(self) -> str:
        return f"/consumers/{self.name}"

    def members(self) -> list[str]:
        try:
            return sorted(self.registry.get_children(f"{self.root}/ids"))
        except NoNodeError:
            return []

    def owners(self) -> dict[int, str]:
        found = {}
        for number in range(PARTITIONS):
            try:
                data, _ = self.registry.get(f"{self.root}/owners/{self.topic}/{number}")
            except NoNodeError:
                continue
            found[number] = data.decode().rpartition("-")[0]
        return found

    def offsets(self) -> list[int]:
        """What is committed, 0 where nothing is."""
        found = []
        for number in range(PARTITIONS):
            try:
                data, _ = self.registry.get(f"{self.root}/offsets/{self.topic}/{number}")
            except NoNodeError:
                data = b"0"
            found.append(int(data))
        return found

    def is_shared(self, members: int) -> bool:
        owners = self.owners()
        shares = Counter(owners.values())
        return (
            len(owners) == PARTITIONS
            and sorted(shares) == self.members()
            and set(shares.values()) == {PARTITIONS // members}
        )

    async def shared(self, members: int) -> None:
        """Wait until so many have it, all partitions owned, each a fair share."""
        await eventually(lambda: self.is_shared(members), f"sharing by {members}")


@pytest.fixture
def group(registry: KazooClient, cluster: RealCluster) -> Group:
    return Group(registry, cluster)


async def eventually(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(40):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"{what} didn't happen")


class Ours:
    """A member of ours that takes messages and commits as it goes."""

    def __init__(self, cluster: RealCluster, group: Group, **options: Any) -> None:
        self.values: list[str] = []
        self.consumer = AIOKafkaConsumer(
            group.topic, **{**options_for(cluster, group.name), **options}
        )

    async def __aenter__(self) -> Ours:
        await self.consumer.start()
        self._task = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.consumer.stop()

    async def _take(self) -> None:
        while True:
            try:
                async for record in self.consumer:
                    self.values.append(bytes(record.value or b"").decode())
            except KafkaUnavailableError:  # told once; it goes on trying
                continue


def options_for(cluster: RealCluster, group: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper_connect": cluster.zookeeper_connect,
        "group_id": group,
        "session_timeout_ms": 4000,
        "rebalance_backoff_ms": 300,
        "rebalance_max_retries": 30,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
    }


async def end_session(cluster: RealCluster, consumer: AIOKafkaConsumer) -> None:
    """Whoever connects as a session and closes it ends it."""
    session = consumer._membership._chosen._opening.result()  # type: ignore[attr-defined]
    thief = KazooClient(cluster.zookeeper_connect, client_id=session.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await asyncio.to_thread(thief.close)


async def produce(cluster: RealCluster, topic: str, prefix: str) -> set[str]:
    values = {f"{prefix}-{number}" for number in range(10 * PARTITIONS)}
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(sorted(values)):
            await producer.send_and_wait(topic, value.encode(), partition=number % PARTITIONS)
    return values


# --- with Scala -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["0.8.2.2", *older], indirect=True)
async def test_a_group_with_scala_members(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    async def scala(*, from_beginning: bool = False) -> ScalaMember:
        member = await asyncio.to_thread(
            ScalaMember, cluster, tmp_path, group.name, group.topic, from_beginning=from_beginning
        )
        stops.append(member.stop)
        return member

    first = await scala(from_beginning=True)
    await group.shared(1)
    async with Ours(cluster, group) as ours:
        await group.shared(2)
        sent = await produce(cluster, group.topic, "one")

        def taken(*more: Any) -> list[str]:
            found = [*first.values, *ours.values]
            return sorted([*found, *(value for one in more for value in one.values)])

        await eventually(lambda: set(taken()) == sent, "taking all")
        assert taken() == sorted(sent)
        assert ours.values
        assert first.values
        async with Ours(cluster, group) as other:
            await group.shared(3)
            await asyncio.to_thread(first.stop)
            await group.shared(2)
            sent |= await produce(cluster, group.topic, "two")
            await eventually(lambda: set(taken(other)) == sent, "taking all")
            assert taken(other) == sorted(sent)
        second = await scala()
        await group.shared(2)
        sent |= await produce(cluster, group.topic, "three")
        await eventually(lambda: set(taken(other, second)) == sent, "taking all")
        assert taken(other, second) == sorted(sent)
        assert second.values
    await group.shared(1)
    sent |= await produce(cluster, group.topic, "four")
    await eventually(lambda: set(taken(other, second)) == sent, "taking all")
    assert taken(other, second) == sorted(sent)


async def test_roundrobin_deals_as_scala_does(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    scala = await asyncio.to_thread(
        ScalaMember, cluster, tmp_path, group.name, group.topic, strategy="roundrobin"
    )
    stops.append(scala.stop)
    await group.shared(1)
    strategy = [RoundRobinPartitionAssignor]
    async with Ours(cluster, group, partition_assignment_strategy=strategy):
        await group.shared(2)
        async with Ours(cluster, group, partition_assignment_strategy=strategy):
            await group.shared(3)


async def test_roundrobin_over_topics_that_scala_means_by_a_pattern(
    cluster: RealCluster,
    registry: KazooClient,
    tmp_path: Path,
    stops: list[Callable[[], Any]],
) -> None:
    prefix = new_name("g")
    topics = [f"{prefix}-{letter}" for letter in "abc"]
    for topic in topics:
        await asyncio.to_thread(cluster.create_topic, topic, 4)

    def owners() -> list[str]:
        found = []
        for topic in topics:
            for number in range(4):
                path = f"/consumers/{prefix}/owners/{topic}/{number}"
                if registry.exists(path):
                    found.append(registry.get(path)[0].decode())
        return found

    def shared(members: int) -> bool:
        return sorted(Counter(owners()).values()) == [12 // members] * members

    scala = await asyncio.to_thread(
        ScalaMember, cluster, tmp_path, prefix, f"{prefix}-.*", strategy="roundrobin", pattern=True
    )
    stops.append(scala.stop)
    await eventually(lambda: shared(1), "owning all")
    options = options_for(cluster, prefix)
    options["partition_assignment_strategy"] = [RoundRobinPartitionAssignor]
    async with AIOKafkaConsumer(*topics, **options) as one:
        await eventually(lambda: shared(2), "sharing by two")
        assert len(one.assignment()) == 6
        async with AIOKafkaConsumer(*topics, **options):
            await eventually(lambda: shared(3), "sharing by three")


async def test_a_killed_scala_member_is_replaced(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    scala = await asyncio.to_thread(ScalaMember, cluster, tmp_path, group.name, group.topic)
    stops.append(scala.stop)
    await group.shared(1)  # from the beginning it begins only where the group has no offsets
    async with Ours(cluster, group) as ours:
        await group.shared(2)
        sent = await produce(cluster, group.topic, "one")
        await eventually(lambda: {*ours.values, *scala.values} == sent, "taking all")
        scala.process.kill()
        await group.shared(1)
        sent |= await produce(cluster, group.topic, "two")
        await eventually(lambda: {*ours.values, *scala.values} == sent, "taking all")


# --- sessions -------------------------------------------------------------------------------------


async def test_a_session_that_ends_costs_no_partition(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    async with Ours(cluster, group) as one, Ours(cluster, group) as two:
        await group.shared(2)
        before = group.members()
        await end_session(cluster, one.consumer)
        await eventually(lambda: group.members() != before, "a new member")
        await group.shared(2)
        await eventually(
            lambda: (
                len(one.consumer.assignment()) == len(two.consumer.assignment()) == PARTITIONS // 2
            ),
            "reading",
        )
        assert not one.consumer.assignment() & two.consumer.assignment()
        sent = await produce(cluster, group.topic, "one")
        await eventually(lambda: sorted([*one.values, *two.values]) == sorted(sent), "taking all")


async def test_after_a_pause_nothing_is_committed_that_others_may_have_moved_on_from(
    cluster: RealCluster, group: Group
) -> None:
    options = {**options_for(cluster, group.name), "enable_auto_commit": False}
    async with AIOKafkaConsumer(group.topic, **options) as consumer:
        sent = await produce(cluster, group.topic, "one")
        taken = [await consumer.getone() for _ in range(3)]
        time.sleep(3)  # as in a process that is stopped, the loop stands still
        with pytest.raises(CommitFailedError, match="session in ZooKeeper"):
            await consumer.commit()
        assert group.offsets() == [0] * PARTITIONS
        values: list[bytes | None] = []
        async with asyncio.timeout(40):
            while sum(group.offsets()) < len(sent):
                values.append((await consumer.getone()).value)
                with contextlib.suppress(CommitFailedError):  # until it has its share anew
                    await consumer.commit()
        assert {one.value for one in taken} <= {*values}  # read again, since nothing was committed


async def test_a_session_that_ends_while_a_round_backs_off_is_noticed(
    cluster: RealCluster, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**options_for(cluster, group.name), "rebalance_backoff_ms": 3_600_000}
    async with AIOKafkaConsumer(group.topic, **options) as consumer:
        membership: Any = consumer._membership
        registry = membership._chosen._registry
        tried = 0

        def fail(topics: frozenset[str]) -> None:
            nonlocal tried
            tried += 1
            raise KafkaUnavailableError("not now")

        with monkeypatch.context() as patch:
            patch.setattr(registry, "look", fail)
            membership.changed()
            await eventually(lambda: tried > 0, "backing off")
        [tp, *_] = consumer.assignment()
        await end_session(cluster, consumer)
        await eventually(lambda: len(group.members()) == 1, "a new member")
        await eventually(lambda: len(consumer.assignment()) == PARTITIONS, "reading")
        await consumer.commit({tp: 1})


class Proxy:
    """The way to ZooKeeper, for one who can be cut off so that nobody is told."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.partition(":")
        self._port = int(port)
        self._passes = asyncio.Event()
        self._passes.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: set[asyncio.Task[Any] | None] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._passes.set()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*filter(None, self._serving))

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._passes.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        self._writers.append(writer)
        await self._passes.wait()
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers.append(back)
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._passes.wait()
                writer.write(data)
        writer.close()


async def test_who_is_cut_off_from_zookeeper_lets_go_before_its_session_ends(
    cluster: RealCluster, group: Group
) -> None:
    async with Proxy(cluster.zookeeper_connect) as proxy:
        options = {"session_timeout_ms": 8000, "zookeeper_connect": proxy.connect}
        async with Ours(cluster, group, **options) as cut_off, Ours(cluster, group) as other:
            await group.shared(2)
            await eventually(
                lambda: (
                    len(cut_off.consumer.assignment() | other.consumer.assignment()) == PARTITIONS
                ),
                "reading",
            )
            proxy.cut()
            both: set[object] = set()

            def taken_over() -> bool:
                both.update(cut_off.consumer.assignment() & other.consumer.assignment())
                return len(other.consumer.assignment()) == PARTITIONS

            await eventually(taken_over, "taking over")
            assert both == set()
            assert cut_off.consumer.assignment() == set()


@pytest.mark.parametrize("step", ["_create", "_delete"])
def test_an_answer_of_zookeeper_that_is_lost_leaves_no_second_member(
    cluster: RealCluster,
    group: Group,
    registry: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    member = Registry(registry, cluster.zookeeper_connect, group.name, 10, lambda: None)
    if step == "_delete":
        member.look(frozenset({"elsewhere"}))
    lose = {step}
    real = getattr(member, step)

    def lost(path: str, *args: Any) -> None:
        if step == "_create":
            real(path, *args)
        if lose:
            lose.clear()
            raise ConnectionLoss
        if step == "_delete":
            real(path, *args)

    monkeypatch.setattr(member, step, lost)
    topics = frozenset({group.topic})
    with pytest.raises(KafkaUnavailableError, match="ConnectionLoss"):
        member.look(topics)
    view = member.look(topics)
    assert group.members() == [member.member]
    assert view.threads == {group.topic: [f"{member.member}-0"]}


async def test_unsubscribing_is_told_again_where_zookeeper_was_away(
    cluster: RealCluster, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AIOKafkaConsumer(group.topic, **options_for(cluster, group.name)) as consumer:
        membership: Any = consumer._membership
        registry = membership._chosen._registry
        real = registry.leave
        failed: list[Any] = []

        def leave(owned: Any) -> None:
            if not failed:
                failed.append(owned)
                raise KafkaUnavailableError("not now")
            real(owned)

        monkeypatch.setattr(registry, "leave", leave)
        consumer.unsubscribe()
        await eventually(lambda: group.members() == [] and not group.owners(), "leaving")
        await eventually(lambda: consumer.metrics()["group_leaves"] == 1, "counting it")
        assert failed


@pytest.fixture
async def restarted(cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """Its ZooKeeper may be stopped."""
    yield cluster
    await asyncio.to_thread(cluster.heal)


@pytest.mark.full
async def test_workers_killed_and_paused_lose_nothing_and_no_offset_goes_back(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    options = "--zookeeper", cluster.zookeeper_connect
    workers = [Worker(cluster, group.name, group.topic, tmp_path, *options) for _ in range(3)]
    stops += [worker.stop for worker in workers]
    killed, paused, _ = workers
    await group.shared(3)
    sent = await produce(cluster, group.topic, "one")
    offsets = [0] * PARTITIONS

    def taken() -> list[str]:
        return [value for worker in workers for value in worker.values]

    def all_taken() -> bool:
        nonlocal offsets
        now = group.offsets()
        assert all(new >= old for new, old in zip(now, offsets, strict=True)), (now, offsets)
        offsets = now
        return set(taken()) == sent and sum(now) == len(sent)

    await eventually(all_taken, "taking all")
    killed.process.kill()
    sent |= await produce(cluster, group.topic, "two")
    await group.shared(2)
    await eventually(all_taken, "taking all")
    paused.process.send_signal(signal.SIGSTOP)
    sent |= await produce(cluster, group.topic, "three")
    await group.shared(1)
    await eventually(all_taken, "taking all")
    paused.process.send_signal(signal.SIGCONT)
    await group.shared(2)
    sent |= await produce(cluster, group.topic, "four")
    await eventually(all_taken, "taking all")
    again = len(taken()) - len(sent)
    assert again <= 2 * len(sent) // 4, f"{again} messages were taken more than once"


@pytest.mark.full
async def test_zookeeper_away_for_longer_than_the_session(
    restarted: RealCluster, group: Group
) -> None:
    async with Ours(restarted, group) as one, Ours(restarted, group) as two:
        await group.shared(2)
        before = await produce(restarted, group.topic, "before")
        done = [len(before) // PARTITIONS] * PARTITIONS
        await eventually(lambda: group.offsets() == done, "committing")
        await asyncio.to_thread(restarted.stop_zookeeper)
        await eventually(
            lambda: not one.consumer.assignment() | two.consumer.assignment(), "letting go"
        )
        await asyncio.to_thread(restarted.start_zookeeper)
        await group.shared(2)
        await eventually(
            lambda: len(one.consumer.assignment() | two.consumer.assignment()) == PARTITIONS,
            "reading",
        )
        assert group.offsets() == done
        sent = before | await produce(restarted, group.topic, "one")
        await eventually(lambda: {*one.values, *two.values} == sent, "taking all")


# --- what is there and what isn't -----------------------------------------------------------------


async def test_garbage_in_the_registry_is_skipped_with_a_warning(
    cluster: RealCluster, group: Group, registry: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{group.root}/ids/garbage"
    registry.create(path, b"{not json", makepath=True)
    with caplog.at_level(logging.WARNING, "aiokafka08.consumer"):
        async with Ours(cluster, group) as ours:
            assert len(ours.consumer.assignment()) == PARTITIONS
    assert f"the node {path} is skipped: b'{{not json' is no JSON" in caplog.text


async def test_a_partition_that_somebody_keeps_is_told(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    path = f"{group.root}/owners/{group.topic}/3"
    registry.create(path, b"somebody-0", makepath=True, ephemeral=True)
    ours = Ours(cluster, group, rebalance_max_retries=2, rebalance_backoff_ms=50)
    with pytest.raises(KafkaUnavailableError, match=r"partition=3.* is owned by 'somebody-0'"):
        await ours.consumer.start()
    assert group.owners() == {3: "somebody"}


async def test_subscribing_and_unsubscribing(cluster: RealCluster, group: Group) -> None:
    async with AIOKafkaConsumer(**options_for(cluster, group.name)) as consumer:
        assert group.members() == []
        consumer.subscribe(pattern=group.topic)
        await eventually(lambda: group.is_shared(1), "owning all")
        consumer.unsubscribe()
        await eventually(lambda: group.members() == [] and not group.owners(), "leaving")


async def test_new_partitions_are_shared_too(cluster: RealCluster, group: Group) -> None:
    async with (
        Ours(cluster, group) as one,
        Ours(cluster, group) as two,
        AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=cluster.zookeeper_connect,
        ) as admin,
    ):
        await group.shared(2)
        await admin.create_partitions({group.topic: NewPartitions(PARTITIONS + 2)})
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(PARTITIONS + 2):
                await producer.send_and_wait(group.topic, b"%d" % number, partition=number)
        sent = [str(number) for number in range(PARTITIONS + 2)]
        await eventually(lambda: sorted([*one.values, *two.values]) == sent, "taking all")
        shares = one.consumer.assignment(), two.consumer.assignment()
        assert [len(share) for share in shares] == [PARTITIONS // 2 + 1] * 2
        assert not shares[0] & shares[1]


async def test_a_cancelled_start_leaves_no_member(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    path = f"{group.root}/owners/{group.topic}/3"
    registry.create(path, b"somebody-0", makepath=True, ephemeral=True)
    consumer = AIOKafkaConsumer(group.topic, **options_for(cluster, group.name))
    start = asyncio.create_task(consumer.start())  # waits for the partition
    await eventually(lambda: len(group.members()) == 1, "registering")
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert group.members() == []
    assert group.owners() == {3: "somebody"}


async def test_wrong_addresses(cluster: RealCluster, group: Group) -> None:
    options = options_for(cluster, group.name)
    port = free_port()
    for connect, error, text in (
        (f"127.0.0.1:{port}", KafkaConnectionError, f"127.0.0.1:{port} can't be reached"),
        (f"{cluster.zookeeper_connect}/none", KafkaUnavailableError, "has no chroot /none"),
    ):
        consumer = AIOKafkaConsumer(group.topic, **{**options, "zookeeper_connect": connect})
        with pytest.raises(error, match=text):
            await consumer.start()
    with pytest.raises(IllegalArgumentError, match="group_id='a/b' can't be a node"):
        AIOKafkaConsumer(group.topic, **{**options, "group_id": "a/b"})


async def test_a_membership_that_ends_leaves_nothing_that_is_committed_over_its_successors(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    strategy = [RoundRobinPartitionAssignor]
    options = {**options_for(cluster, group.name), "partition_assignment_strategy": strategy}
    async with AIOKafkaConsumer(group.topic, **options) as consumer:
        sent = await produce(cluster, group.topic, "one")
        taken = [await consumer.getone() for _ in sent]
        other = b'{"version":1,"subscription":{"elsewhere":1},"pattern":"static"}'
        registry.create(f"{group.root}/ids/other", other, ephemeral=True)
        with pytest.raises(KafkaConfigurationError, match="use range"):
            await consumer.getone()
        await eventually(lambda: group.members() == ["other"], "leaving")
        assert consumer.assignment() == set()
        assert sum(group.offsets()) == len(taken)
        for number in range(PARTITIONS):  # a successor goes on
            registry.set(f"{group.root}/offsets/{group.topic}/{number}", b"50")
    assert group.offsets() == [50] * PARTITIONS
