"""`Metadata`: shared refreshes, waiting for topics, failures, listeners, the stop."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._core.net.limits import NetLimits
from aiokafka08._core.net.router import Router
from aiokafka08.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import ConnectFailed, MetadataChanged, MetadataFailed
from aiokafka08.testing import Answer, Close, Delay, EmbeddedCluster, Hang, Omit
from tests._core.net.conftest import MakeConfig, Recorder
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

Connect = Callable[..., Any]


@pytest.fixture
def connect(make_config: MakeConfig, telemetry: Recorder) -> Connect:
    """`async with connect(cluster, topics, **options) as router`"""

    @contextlib.asynccontextmanager
    async def connect(
        cluster: EmbeddedCluster, topics: tuple[str, ...] = (), **options: Any
    ) -> AsyncIterator[Router]:
        router = Router(make_config(cluster.bootstrap_servers, **options), telemetry)
        router.metadata.add_topics(topics)
        await router.start()
        try:
            yield router
        finally:
            await router.stop()

    return connect


def sent_metadata_requests(cluster: EmbeddedCluster) -> list[list[str] | None]:
    """The topics of the metadata requests, the version detection's left out."""
    history = cluster.history
    probing = {one.connection for one in history if type(one.request) is FetchRequest}
    return [
        one.request.topics
        for one in history
        if type(one.request) is MetadataRequest and one.connection not in probing
    ]


# --- one refresh for all --------------------------------------------------------------------------


async def test_a_hundred_callers_share_one_refresh(connect: Connect) -> None:
    async with EmbeddedCluster(topics={"t": 2}) as cluster, connect(cluster, ("t",)) as router:
        before = len(sent_metadata_requests(cluster))
        snapshots = await asyncio.gather(*(router.metadata.refresh() for _ in range(100)))
        assert len(sent_metadata_requests(cluster)) == before + 1
        assert set(map(id, snapshots)) == {id(router.metadata.snapshot)}


async def test_callers_during_a_refresh_share_the_next_one(connect: Connect) -> None:
    async with EmbeddedCluster(topics={"t": 2}) as cluster, connect(cluster, ("t",)) as router:
        before = len(sent_metadata_requests(cluster))
        cluster.fault(MetadataRequest, then=Delay(0.1))
        first = asyncio.create_task(router.metadata.refresh())
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        others = [asyncio.create_task(router.metadata.refresh()) for _ in range(100)]
        await first
        assert not any(other.done() for other in others)
        await asyncio.gather(*others)
        assert len(sent_metadata_requests(cluster)) == before + 2


async def test_refresh_ignores_a_response_from_before_the_call(connect: Connect) -> None:
    # The caller met NotLeaderForPartition; the running refresh got its response before that.
    tp = TopicPartition("t", 0)
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        assert router.metadata.snapshot.leader(tp) == 0
        cluster.fault(MetadataRequest, then=Delay(0.2))
        early = asyncio.create_task(router.metadata.refresh())
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        cluster.move_leader("t", 0, to=1)
        snapshot = await router.metadata.refresh()
        assert early.done()
        assert snapshot.leader(tp) == 1


async def test_a_topic_added_during_a_refresh_is_in_the_next_one(connect: Connect) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1, "u": 3}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        cluster.fault(MetadataRequest, then=Delay(0.1))
        refresh = asyncio.create_task(router.metadata.refresh())
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        router.metadata.add_topics(["u"])
        snapshot = await router.metadata.refresh()
        assert len(snapshot.partitions("u")) == 3
        await refresh


async def test_a_cancelled_caller_does_not_cancel_the_refresh(connect: Connect) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster, ("t",)) as router:
        cluster.fault(MetadataRequest, then=Delay(0.1))
        callers = [asyncio.create_task(router.metadata.refresh()) for _ in range(3)]
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        callers[0].cancel()
        await asyncio.gather(*callers[1:])
        assert callers[0].cancelled()


async def test_all_callers_get_the_error_if_no_broker_responds(
    connect: Connect, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster, ("t",)) as router:
        cluster.kill(0)
        results = await asyncio.gather(
            *(router.metadata.refresh() for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(result, NoBrokersAvailable) for result in results)
        assert "Connection refused" in str(results[0]) or "closed by the broker" in str(results[0])
        assert len(telemetry.of(MetadataFailed)) == 1
        assert router.metadata.snapshot.partitions("t")  # what was known stays


# --- when it is refreshed -------------------------------------------------------------------------


async def test_metadata_is_refreshed_by_age(connect: Connect) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        connect(cluster, ("t",), metadata_max_age_ms=50, retry_backoff_ms=1) as router,
    ):
        before = len(sent_metadata_requests(cluster))
        await until(lambda: len(sent_metadata_requests(cluster)) >= before + 3, "three refreshes")
        assert router.metadata.snapshot.partitions("t")


async def test_requested_refresh_runs_at_once(connect: Connect) -> None:
    tp = TopicPartition("t", 0)
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        cluster.move_leader("t", 0, to=1)
        assert router.metadata.snapshot.leader(tp) == 0
        router.metadata.request_refresh()
        await until(lambda: router.metadata.snapshot.leader(tp) == 1, "the new leader is known")


async def test_many_refresh_requests_send_few_requests(connect: Connect) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        connect(cluster, ("t",), retry_backoff_ms=100) as router,
    ):
        before = len(sent_metadata_requests(cluster))
        end = asyncio.get_running_loop().time() + 0.6
        while asyncio.get_running_loop().time() < end:
            router.metadata.request_refresh()
            await asyncio.sleep(0.001)
        # At once, and then after 0.1, 0.2, 0.4 s.
        assert 1 <= len(sent_metadata_requests(cluster)) - before <= 5


async def test_refreshes_go_on_after_an_outage(connect: Connect) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster, ("t",)) as router:
        cluster.kill(0, then="unnoticed")
        router.metadata.request_refresh()
        with pytest.raises(KafkaError):
            await router.metadata.refresh()
        cluster.restart(0)
        cluster.create_topic("u", 2)
        router.metadata.add_topics(["u"])
        await until(lambda: router.metadata.snapshot.partitions("u"), "found by itself")


async def test_a_closed_metadata_connection_is_retried(
    connect: Connect,
) -> None:
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        cluster.fault(MetadataRequest, then=Close())
        await router.metadata.refresh()


async def test_a_hanging_broker_is_replaced_by_another_in_time(
    connect: Connect,
) -> None:
    limits = NetLimits(unresponsive_s=0.1)
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster,
        connect(cluster, ("t",), request_timeout_ms=5000, limits=limits) as router,
    ):
        cluster.fault(MetadataRequest, then=Hang())
        await router.metadata.refresh()  # it costs `unresponsive_s`
        assert len(cluster.requests(MetadataRequest)) >= 2
        for _ in range(5):  # no further request goes to it while a response is due
            await asyncio.wait_for(router.metadata.refresh(), 2)


async def test_a_refresh_ends_within_the_request_timeout(connect: Connect) -> None:
    async with (
        EmbeddedCluster(brokers=5, topics={"t": 1}) as cluster,
        connect(cluster, ("t",), request_timeout_ms=3000) as router,
    ):
        cluster.fault(MetadataRequest, then=Hang(), times=None)
        for _ in range(2):
            with pytest.raises(NoBrokersAvailable, match="no broker responded"):
                await asyncio.wait_for(router.metadata.refresh(), 12)  # 15: each in turn


# --- never emptier --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-1, 3, 5, 17])
async def test_errors_for_all_topics_keep_the_snapshot(connect: Connect, code: int) -> None:
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 2, "u": 1}) as cluster,
        connect(cluster, ("t", "u")) as router,
    ):
        before = router.metadata.snapshot
        cluster.fault(MetadataRequest, then=Answer(code), times=None)
        after = await router.metadata.refresh()
        assert after.brokers == before.brokers
        for tp in (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)):
            assert after.leader(tp) == before.leader(tp) is not None


async def test_an_empty_cluster_is_no_error(connect: Connect) -> None:
    for version in ("0.8.0", "0.8.2", "0.9", "0.10"):
        async with EmbeddedCluster(version=version) as cluster, connect(cluster) as router:
            await router.metadata.refresh()
            assert await router.metadata.wait_for_topic("t", timeout_s=5)
            assert router.metadata.snapshot.leader(TopicPartition("t", 0)) == 0


# --- topics ---------------------------------------------------------------------------------------


async def test_a_known_topic_needs_no_request(connect: Connect) -> None:
    async with EmbeddedCluster(topics={"t": 2}) as cluster, connect(cluster, ("t",)) as router:
        before = len(sent_metadata_requests(cluster))
        info = await router.metadata.wait_for_topic("t", timeout_s=5)
        assert list(info.partitions) == [0, 1]
        assert len(sent_metadata_requests(cluster)) == before


async def test_a_requested_topic_is_created_and_waited_for(connect: Connect) -> None:
    async with EmbeddedCluster(default_partitions=3) as cluster, connect(cluster) as router:
        info = await router.metadata.wait_for_topic("new", timeout_s=5)
        assert [one.leader for one in info.partitions.values()] == [0, 0, 0]
        assert info.error_code == 0


async def test_many_topics_at_once_share_their_refreshes(connect: Connect) -> None:
    topics = {f"t{i}": 1 for i in range(50)}
    async with EmbeddedCluster(topics=topics) as cluster, connect(cluster) as router:
        before = len(sent_metadata_requests(cluster))
        await asyncio.gather(
            *(router.metadata.wait_for_topic(topic, timeout_s=5) for topic in topics)
        )
        assert len(sent_metadata_requests(cluster)) == before + 1


async def test_lookup_of_a_topic_requests_that_topic_only(connect: Connect) -> None:
    """Each first send to a topic once requested, and merged, all topics known by then."""
    async with (
        EmbeddedCluster(topics={"t": 1, "u": 1, "v": 1}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        await router.metadata.wait_for_topic("u", timeout_s=5)
        assert sent_metadata_requests(cluster)[-1] == ["u"]
        await asyncio.gather(
            router.metadata.wait_for_topic("v", timeout_s=5), router.metadata.refresh()
        )
        assert sent_metadata_requests(cluster)[-1] == ["t", "u", "v"]
        assert router.metadata.snapshot.topics.keys() == {"t", "u", "v"}


async def test_a_missing_topic_raises_and_is_not_tracked(
    connect: Connect,
) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}, auto_create=False) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        with pytest.raises(
            UnknownTopicOrPartitionError, match="'nowhere' doesn't exist and the brokers"
        ):
            await router.metadata.wait_for_topic("nowhere", timeout_s=0.2)
        await router.metadata.refresh()
        assert sent_metadata_requests(cluster)[-1] == ["t"]


async def test_a_missing_topic_ends_the_wait_after_two_responses(
    connect: Connect,
) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}, auto_create=False) as cluster,
        connect(cluster, limits=NetLimits(topic_unknown_s=0.0)) as router,
    ):
        before = len(sent_metadata_requests(cluster))
        with pytest.raises(UnknownTopicOrPartitionError):
            await router.metadata.wait_for_topic("nowhere", timeout_s=1000, until_unknown=True)
        assert len(sent_metadata_requests(cluster)) - before == 2


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
async def test_unknown_topic_gets_more_time_if_it_may_be_created(
    connect: Connect, version: str
) -> None:
    """With KRaft, error 3 may mean that the topic is being created."""
    limits = NetLimits(topic_unknown_s=0.0, topic_creating_s=60.0)
    async with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        connect(cluster, ("t",), limits=limits) as router,
    ):
        unknown = Answer(UnknownTopicOrPartitionError.errno)
        cluster.fault(MetadataRequest, then=unknown, times=4)
        wait = router.metadata.wait_for_topic("new", timeout_s=1000, until_unknown=True)
        if version == "0.10":
            assert (await wait).partitions.keys() == {0}
        else:
            with pytest.raises(UnknownTopicOrPartitionError):
                await wait


async def test_a_topic_that_is_created_meanwhile_is_found(
    connect: Connect,
) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}, auto_create=False) as cluster,
        connect(cluster, limits=NetLimits(topic_unknown_s=1000.0)) as router,
    ):
        asked = cluster.next_request(MetadataRequest)
        wait = router.metadata.wait_for_topic("late", timeout_s=1000, until_unknown=True)
        waiting = asyncio.create_task(wait)
        await asyncio.wrap_future(asked)
        cluster.create_topic("late")
        assert (await waiting).partitions.keys() == {0}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 256])
async def test_invalid_topic_names_are_never_sent(connect: Connect, name: str) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster, ("t",)) as router:
        metadata = router.metadata
        with pytest.raises(InvalidTopicError):
            await metadata.wait_for_topic(name, timeout_s=5)
        with pytest.raises(InvalidTopicError):
            metadata.add_topics(["u", name])
        with pytest.raises(InvalidTopicError):
            metadata.set_topics([name])
        await metadata.refresh()
        assert not any(topics and name in topics for topics in sent_metadata_requests(cluster))


@pytest.mark.parametrize("may_create", [True, False])
async def test_wait_for_a_missing_topic_warns_with_similar_names(
    connect: Connect, caplog: pytest.LogCaptureFixture, may_create: bool
) -> None:
    """Otherwise a consumer's start() is silent until its timeout."""
    limits = NetLimits(topic_unknown_s=0.1)
    topics = {"orders": 1, "audit": 1}
    async with (
        EmbeddedCluster(topics=topics, auto_create=False) as cluster,
        connect(cluster, limits=limits) as router,
    ):
        router.metadata.all_topics = not may_create
        router.metadata.may_create_topics = may_create
        with pytest.raises(UnknownTopicOrPartitionError):
            await router.metadata.wait_for_topic("ordrs", timeout_s=1)
        with pytest.raises(UnknownTopicOrPartitionError):
            await router.metadata.wait_for_topic("zzz", timeout_s=1)
        assert may_create == ("audit" not in router.metadata.snapshot.topics)
    texts = [record.message.split(": ", 1)[1] for record in caplog.records]
    assert texts == [
        "topic 'ordrs' doesn't exist, or this principal may not describe it; waiting for it. "
        "Similar topics: orders",
        "topic 'zzz' doesn't exist, or this principal may not describe it; waiting for it. "
        "No topic is similar",
    ]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The topics of the warnings about missing topics."""
    found = [re.search("topic '(.*)' doesn't exist", record.message) for record in caplog.records]
    return [match[1] for match in found if match]


async def test_a_topic_that_the_brokers_list_gets_no_warning(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """It was created meanwhile; or only the broker that had been asked didn't know it yet."""
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster) as router:
        router.metadata.warn_missing("t")
        router.metadata.warn_missing("zzz")
        await until(lambda: "zzz" in warned(caplog), "the warning")
        assert warned(caplog) == ["zzz"]


async def test_a_topic_that_is_found_meanwhile_gets_no_warning(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster, ("t",)) as router:
        cluster.fault(MetadataRequest, then=Omit(), where=lambda request: not request.topics)
        router.metadata.warn_missing("t")
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        router.metadata.warn_missing("zzz")
        await until(lambda: "zzz" in warned(caplog), "the warning")
        assert warned(caplog) == ["zzz"]


async def test_a_missing_topic_gets_its_warning_after_an_outage_once(
    connect: Connect, caplog: pytest.LogCaptureFixture, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster, ("t",)) as router:

        def warn() -> list[str]:
            router.metadata.warn_missing("zzz")  # as `TopicSearch` does with each look
            return warned(caplog)

        cluster.kill(0)
        attempts = len(telemetry.of(ConnectFailed))
        await until(
            lambda: warn() or len(telemetry.of(ConnectFailed)) >= attempts + 3, "three attempts"
        )
        assert not warned(caplog)
        cluster.restart(0)
        await until(warn, "the warning")
        await router.metadata.refresh()
        assert warn() == ["zzz"]


async def test_a_warning_names_a_topic_of_another_case(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    topics = {"Orders": 1, **{f"other-{number}": 1 for number in range(150)}}
    async with EmbeddedCluster(topics=topics) as cluster, connect(cluster) as router:
        router.metadata.warn_missing("orders")
        await until(lambda: warned(caplog), "the warning")
        assert "Similar topics: Orders" in caplog.text


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])
@pytest.mark.parametrize("all_topics", [False, True])
async def test_too_long_names_are_never_requested_by_name(
    connect: Connect, version: str, all_topics: bool
) -> None:
    """A request by name would create the topic, and an old broker can't start with it again."""
    long, other = "x" * 250, "y" * 255
    async with EmbeddedCluster(version=version, topics={"t": 1}) as cluster:
        async with connect(cluster, ("t",)) as router:
            router.metadata.all_topics = all_topics
            for name in (long, other):
                with pytest.raises(InvalidTopicError, match="expected at most 249 for a new topic"):
                    await router.metadata.wait_for_topic(name, timeout_s=5)
            await router.metadata.wait_for_topic("new", timeout_s=5)
            listed = await router.metadata.fetch_all()
        assert {state.topic for state in listed.topics} == {"t", "new"}
        assert not any(
            name in (topics or ())
            for topics in sent_metadata_requests(cluster)
            for name in (long, other)
        )


@pytest.mark.parametrize("version", ["0.8.2", "0.9"])
async def test_too_long_names_of_existing_topics_are_found(connect: Connect, version: str) -> None:
    long = "x" * 255
    async with EmbeddedCluster(version=version, topics={"t": 1, long: 2}) as cluster:
        async with connect(cluster, ("t", long)) as router:
            assert len((await router.metadata.wait_for_topic(long, timeout_s=5)).partitions) == 2
            assert set((await router.metadata.refresh()).topics) == {"t", long}
        assert not any(long in (topics or ()) for topics in sent_metadata_requests(cluster))


async def test_a_caller_that_gives_up_does_not_affect_others(connect: Connect) -> None:
    async with EmbeddedCluster(auto_create=False) as cluster, connect(cluster) as router:
        first = asyncio.create_task(router.metadata.wait_for_topic("t", timeout_s=10))
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        second = asyncio.create_task(router.metadata.wait_for_topic("t", timeout_s=10))
        third = asyncio.create_task(router.metadata.wait_for_topic("t", timeout_s=0.05))
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        first.cancel()
        with pytest.raises(UnknownTopicOrPartitionError):
            await third
        cluster.create_topic("t", 1)
        assert list((await second).partitions) == [0]
        await router.metadata.refresh()
        assert sent_metadata_requests(cluster)[-1] == ["t"]


async def test_partitions_without_leaders_are_waited_for(connect: Connect) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster, connect(cluster) as router:
        cluster.kill(1, then="leaderless")
        waiting = asyncio.create_task(router.metadata.wait_for_topic("t", timeout_s=10))
        await asyncio.wrap_future(cluster.next_request(MetadataRequest, nth=2))
        assert not waiting.done()
        timed_out = router.metadata.timed_out("t", 1.5)
        assert "within 1500 ms" in str(timed_out)
        assert "partitions [1] have no leader" in str(timed_out)
        cluster.elect()
        assert [one.leader for one in (await waiting).partitions.values()] == [0, 0]


async def test_leaders_any_needs_one_leader_only(connect: Connect) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster, connect(cluster) as router:
        cluster.kill(1, then="leaderless")
        async with asyncio.timeout(10):
            info = await router.metadata.wait_for_topic("t", timeout_s=60, leaders=any)
        assert [one.leader for one in info.partitions.values()] == [0, None]


@pytest.mark.parametrize("hangs", [False, True])
async def test_partitions_without_leaders_return_after_leaders_s(
    connect: Connect, hangs: bool
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster, connect(cluster) as router:
        cluster.kill(1, then="leaderless")
        wait = router.metadata.wait_for_topic("t", timeout_s=1000, leaders_s=0.3)
        asked = cluster.next_request(MetadataRequest)
        waiting = asyncio.create_task(wait)
        await asyncio.wrap_future(asked)
        if hangs:
            cluster.fault(MetadataRequest, then=Hang(), times=None)
        assert [one.leader for one in (await waiting).partitions.values()] == [0, None]


async def test_partitions_without_leaders_return_at_the_deadline(connect: Connect) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster, connect(cluster) as router:
        cluster.kill(1, then="leaderless")
        info = await router.metadata.wait_for_topic("t", timeout_s=0.3)
        assert [one.leader for one in info.partitions.values()] == [0, None]


async def test_topic_lookup_without_brokers_times_out_with_reason(
    connect: Connect,
) -> None:
    async with EmbeddedCluster() as cluster, connect(cluster) as router:
        cluster.kill(0)
        with pytest.raises(KafkaTimeoutError, match=r"within 300 ms; last error: .*refused"):
            await router.metadata.wait_for_topic("t", timeout_s=0.3)


async def test_zero_backoff_is_no_busy_loop(connect: Connect) -> None:
    async with (
        EmbeddedCluster(auto_create=False, topics={"u": 1}) as cluster,
        connect(cluster, retry_backoff_ms=0) as router,
    ):
        before = len(sent_metadata_requests(cluster))
        with pytest.raises(UnknownTopicOrPartitionError):
            await router.metadata.wait_for_topic("t", timeout_s=0.3)
        assert len(sent_metadata_requests(cluster)) - before < 12


# --- one topic that fails the responses of 0.8 ----------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1", "0.8.2"])
async def test_topics_are_requested_alone_if_one_fails_them(connect: Connect, version: str) -> None:
    async with EmbeddedCluster(
        brokers=2, version=version, topics={}, default_replication_factor=3
    ) as cluster:
        for i in range(3):
            cluster.create_topic(f"t{i}", 1, replication_factor=1)
        async with connect(cluster, ("t0", "t1", "t2")) as router:
            router.metadata.add_topics(["bad"])
            snapshot = await router.metadata.refresh()
            assert all(snapshot.leader(TopicPartition(f"t{i}", 0)) is not None for i in range(3))
            assert snapshot.topics["bad"].error_code == -1
            assert sent_metadata_requests(cluster)[-4:] == [["bad"], ["t0"], ["t1"], ["t2"]]
            # From then on the one alone, the others together.
            await router.metadata.refresh()
            assert sent_metadata_requests(cluster)[-2:] == [["t0", "t1", "t2"], ["bad"]]


async def test_bad_topics_stay_isolated_while_another_is_awaited(connect: Connect) -> None:
    async with EmbeddedCluster(default_replication_factor=2) as cluster:
        cluster.create_topic("t", 1, replication_factor=1)
        cluster.create_topic("u", 1, replication_factor=1)
        async with connect(cluster, ("t", "bad")) as router:
            await router.metadata.wait_for_topic("u", timeout_s=5)
            assert sent_metadata_requests(cluster)[-1] == ["u"]
            await router.metadata.refresh()
            assert sent_metadata_requests(cluster)[-2:] == [["t", "u"], ["bad"]]


async def test_an_isolated_topic_that_works_joins_the_others(connect: Connect) -> None:
    async with EmbeddedCluster(default_replication_factor=2) as cluster:
        cluster.create_topic("t", 1, replication_factor=1)
        async with connect(cluster, ("t", "bad")) as router:
            assert sent_metadata_requests(cluster)[-2:] == [["bad"], ["t"]]
            cluster.create_topic("bad", 1, replication_factor=1)
            await router.metadata.refresh()
            assert sent_metadata_requests(cluster)[-2:] == [["t"], ["bad"]]
            await router.metadata.refresh()
            assert sent_metadata_requests(cluster)[-1] == ["bad", "t"]


# --- all topics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])
async def test_all_topics_mode_tracks_every_topic(connect: Connect, version: str) -> None:
    async with (
        EmbeddedCluster(version=version, topics={"t": 1, "u": 1}) as cluster,
        connect(cluster) as router,
    ):
        router.metadata.all_topics = True
        snapshot = await router.metadata.refresh()
        assert set(snapshot.topics) == {"t", "u"}
        cluster.create_topic("v", 1)
        assert set((await router.metadata.refresh()).topics) == {"t", "u", "v"}


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
async def test_a_topic_is_created_in_all_topics_mode_too(connect: Connect, version: str) -> None:
    async with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        connect(cluster) as router,
    ):
        router.metadata.all_topics = True
        await router.metadata.refresh()
        info = await router.metadata.wait_for_topic("new", timeout_s=5)
        assert info.partitions[0].leader == 0
        assert set(router.metadata.snapshot.topics) == {"t", "new"}


async def test_a_response_merges_into_the_current_snapshot(
    connect: Connect,
) -> None:
    limits = NetLimits(unresponsive_s=0.0)  # so that both brokers get a request
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1, "u": 1}) as cluster,
        connect(cluster, ("t",), limits=limits) as router,
    ):
        cluster.fault(MetadataRequest, then=Delay(0.5), where=lambda r: r.topics == ["t"])
        refresh = asyncio.create_task(router.metadata.refresh())
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        await router.metadata.fetch_all()
        assert not refresh.done()
        await refresh
        assert set(router.metadata.snapshot.topics) == {"t", "u"}


# --- listeners ------------------------------------------------------------------------------------


async def test_listeners_are_called_on_changes_only(connect: Connect, telemetry: Recorder) -> None:
    seen: list[ClusterSnapshot] = []
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        router.metadata.add_listener(seen.append)
        await router.metadata.refresh()
        assert not seen
        cluster.move_leader("t", 0, to=1)
        snapshot = await router.metadata.refresh()
        assert seen == [snapshot]
        assert telemetry.of(MetadataChanged)[-1] == MetadataChanged((0, 1), 1)


async def test_a_failing_listener_stops_nothing(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(snapshot: ClusterSnapshot) -> None:
        raise ZeroDivisionError("in the watcher")

    seen: list[ClusterSnapshot] = []
    async with (
        EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster,
        connect(cluster, ("t",)) as router,
    ):
        router.metadata.add_listener(fail)
        router.metadata.add_listener(seen.append)
        cluster.move_leader("t", 0, to=1)
        router.metadata.request_refresh()
        await until(lambda: len(seen) == 1, "the other listener is called")
        cluster.move_leader("t", 0, to=0)
        router.metadata.request_refresh()
        await until(lambda: len(seen) == 2, "the keeper lives on")
        assert caplog.text.count("metadata listener failed") == 2


async def test_impossible_addresses_do_not_end_the_refreshes(
    connect: Connect, make_config: MakeConfig
) -> None:
    async with EmbeddedCluster(topics={"t": 1}, advertised_host="a..b") as cluster:
        (info,) = cluster.nodes.values()
        router = Router(make_config(f"127.0.0.1:{info.port}"), Recorder())
        router.metadata.add_topics(["t"])
        await router.start()
        try:
            for _ in range(3):  # the bootstrap address stays the way back
                await router.metadata.refresh()
            with pytest.raises(KafkaError, match=r"a\.\.b"):
                await router.request(MetadataRequest(["t"]), node_id=0)
            cluster.create_topic("u", 1)
            router.metadata.add_topics(["u"])
            router.metadata.request_refresh()
            await until(lambda: router.metadata.snapshot.partitions("u"), "the keeper lives on")
        finally:
            await router.stop()


# --- stopped --------------------------------------------------------------------------------------


async def test_waiting_callers_get_an_error_when_stopped(connect: Connect) -> None:
    async with (
        EmbeddedCluster(auto_create=False, topics={"t": 1}) as cluster,
        connect(cluster, ("t",), request_timeout_ms=60_000) as router,
    ):
        metadata = router.metadata
        topics = asyncio.create_task(metadata.wait_for_topic("nowhere", timeout_s=60))
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        cluster.fault(MetadataRequest, then=Hang(), times=None)
        refresh = asyncio.create_task(metadata.refresh())
        everything = asyncio.create_task(metadata.fetch_all())
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        await router.stop()
        for waiting in (topics, refresh, everything):
            with pytest.raises(KafkaError):
                await asyncio.wait_for(waiting, 20)
        for call in (metadata.refresh, metadata.fetch_all):
            with pytest.raises(IllegalStateError, match="stopped"):
                await call()
        with pytest.raises(IllegalStateError, match="stopped"):
            await metadata.wait_for_topic("nowhere", timeout_s=60)
        with pytest.raises(IllegalStateError, match="stopped"):
            metadata.start()
