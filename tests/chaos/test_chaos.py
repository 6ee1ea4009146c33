"""Run a producer and a consumer under a script of faults: nothing is lost, nothing leaks.

The seed in the test's id makes the script (`script.script_of`), which is printed on failure:
`pytest "tests/chaos/test_chaos.py::test_no_message_is_lost_under_random_faults[seed-17]"`
runs the same faults again.
"""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.errors import CorruptRecordException
from aiokafka08.producer.outcome import MAX_UNEXPLAINED_RETRIES
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import (
    Close,
    Corrupt,
    Delay,
    EmbeddedCluster,
    Hang,
    Omit,
    Silence,
    Truncate,
    WrongCorrelationId,
)
from aiokafka08.testing.cluster import AfterDeath
from aiokafka08.testing.faults import Effect
from tests.chaos.script import (
    BROKERS,
    CODES,
    PARTITIONS,
    Action,
    DropConnections,
    Kill,
    MoveLeader,
    Restart,
    Script,
    ShrinkIsr,
    StopBroker,
    Strike,
    script_of,
)
from tests.delivery_check import DeliveryCheck
from tests.waiting import until

EACH_RUN = {*range(10), 53, 129, 265, 621, 658}
"""Seeds that run without `--full`: arbitrary ones, and some that complete the kinds of fault."""

SEEDS = [
    pytest.param(seed, id=f"seed-{seed}", marks=() if seed in EACH_RUN else pytest.mark.full)
    for seed in range(1000)
]

TOPIC = "chaos"
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}

QUICK = {"request_timeout_ms": 1000, "retry_backoff_ms": 10}
"""Short, to detect silence soon; long enough for responses on a busy machine."""


async def play(script: Script, cluster: EmbeddedCluster, work: DeliveryCheck) -> None:
    """The steps of a script, and in the end a whole cluster again."""
    for step in script.steps:
        await work.acknowledged_anywhere(step.after)
        match step.act:
            case Strike(request, then, node, nth, times):
                cluster.fault(request, then=then, node=node, nth=nth, times=times)
            case MoveLeader(partition):
                cluster.restore_isr(TOPIC, partition)
                cluster.move_leader(TOPIC, partition)
            case DropConnections(node):
                cluster.drop_connections(node)
            case ShrinkIsr(partition):
                restore(cluster)
                cluster.shrink_isr(TOPIC, partition, follower(cluster, partition))
            case Kill(node, then, pause_s):
                restore(cluster)
                cluster.kill(node, then)
                if then != "elect":
                    await asyncio.sleep(pause_s)  # nothing may be acknowledged meanwhile
                    if then == "unnoticed":
                        cluster.notice(node)
                    cluster.elect()
            case StopBroker(node):
                restore(cluster)
                cluster.stop(node)
            case Restart(node, elsewhere):
                cluster.restart(node, 0 if elsewhere else None)
    cluster.clear_faults()
    restore(cluster)
    await work.acknowledged(10)


def restore(cluster: EmbeddedCluster) -> None:
    """All live replicas are in sync."""
    for partition in range(PARTITIONS):
        cluster.restore_isr(TOPIC, partition)


def follower(cluster: EmbeddedCluster, partition: int) -> int:
    return (cluster.leader(TOPIC, partition) + 1) % BROKERS


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_message_is_lost_under_random_faults(seed: int) -> None:
    script = script_of(seed)
    print(script)
    async with EmbeddedCluster(BROKERS, script.version) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, BROKERS, SAFE if script.is_safe else {})
        work = DeliveryCheck(
            cluster.bootstrap_servers,
            TOPIC,
            PARTITIONS,
            producer={**QUICK, **script.producer},
            consumer={**QUICK, **script.consumer},
            outstanding=20,
            pause_s=0.003,
            consumer_may_fail=True,
        )
        async with work.running(drain_timeout=20):
            await play(script, cluster, work)
        await work.check()
        check_against_cluster(script, cluster, work)
        if not has_effect(script, Hang):  # such a connection doesn't read, not even its end
            await until(lambda: cluster.connections() == 0, "all connections have ended", 5)


def check_against_cluster(script: Script, cluster: EmbeddedCluster, work: DeliveryCheck) -> None:
    """Judge again by the logs, which no client has read; and by what such scripts allow."""
    for partition in range(PARTITIONS):
        work.recorder.note_log(TopicPartition(TOPIC, partition), cluster.log(TOPIC, partition))
    work.judge()
    # The scripts have nothing that doesn't pass in time.
    assert all(one.status == "ok" for one in work.recorder.operations if one.sent)
    if has_effect(script, Corrupt):
        assert all(isinstance(error, CorruptRecordException) for error in work.raised)
    else:
        assert not work.raised


def has_effect(script: Script, effect: type[Effect]) -> bool:
    """Whether requests are struck so."""
    return any(
        isinstance(step.act, Strike) and isinstance(step.act.then, effect) for step in script.steps
    )


def test_a_seed_always_gives_the_same_script() -> None:
    scripts = [str(script_of(seed)) for seed in range(200)]
    assert scripts == [str(script_of(seed)) for seed in range(200)]
    assert len(set(scripts)) == 200


def test_scripts_stay_within_the_unexplained_retries() -> None:
    for seed in range(1000):
        strikes = [step.act for step in script_of(seed).steps if isinstance(step.act, Strike)]
        assert sum(one.times for one in strikes if one.is_unexplained) <= MAX_UNEXPLAINED_RETRIES


def test_seeds_of_each_run_cover_every_kind_of_fault() -> None:
    acts = [step.act for seed in EACH_RUN for step in script_of(seed).steps]
    assert {type(act) for act in acts} == set(get_args(Action))
    assert {act.then for act in acts if isinstance(act, Kill)} == set(get_args(AfterDeath))
    strikes = [act for act in acts if isinstance(act, Strike)]
    for request in (ProduceRequest, FetchRequest):
        effects = {strike.then for strike in strikes if strike.request is request}
        assert set(CODES[request]) <= effects
        wanted = {Close, Corrupt, Delay, Hang, Omit, Silence, Truncate, WrongCorrelationId}
        if request is ProduceRequest:
            wanted -= {Corrupt}  # its response has no checksum
        assert wanted <= set(map(type, effects))
