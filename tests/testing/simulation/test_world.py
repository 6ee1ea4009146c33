"""Virtual time, parties, and the rules of a run."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from types import BuiltinMethodType
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
import uvloop

from aiokafka08 import AIOKafkaProducer, environment
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.simulation import (
    LeftoverError,
    SimulationError,
    WaitsForeverError,
    World,
    simulate,
)
from aiokafka08.testing.simulation.party import PARTY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka


@pytest.fixture
def world() -> Iterator[World]:
    with simulate(1, brokers=1) as world:
        yield world


def test_an_hour_takes_no_time_but_is_on_all_clocks(world: World) -> None:
    async def wait() -> list[float]:
        loop = asyncio.get_running_loop()
        clocks = (loop.time, environment.wall_time, environment.monotonic)
        before = [clock() for clock in clocks]
        await asyncio.sleep(3600)
        return [clock() - start for clock, start in zip(clocks, before, strict=True)]

    assert world.run(wait) == pytest.approx([3600.0] * 3)
    assert world.virtual_s == pytest.approx(3600, abs=1)


def test_callbacks_run_in_order_and_timers_by_time(world: World) -> None:
    async def schedule() -> list[int]:
        ran: list[int] = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, ran.append, 5)
        at = loop.time() + 1
        for number in (3, 4):
            loop.call_at(at, ran.append, number)
        cancelled = loop.call_later(1, ran.append, 0)
        cancelled.cancel()
        for number in (1, 2):
            loop.call_soon(ran.append, number)
        await asyncio.sleep(3)
        return ran

    assert world.run(schedule) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("delay_s", [1e-15, 1e-10, 5e-7])
def test_a_timer_with_the_least_delay_lets_time_pass(world: World, delay_s: float) -> None:
    """1000 s + 1e-15 s is 1000 s: a timer that sets itself again would stop the time."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ended: asyncio.Future[None] = loop.create_future()

        def again() -> None:
            if loop.time() - began > 1e-5:
                ended.set_result(None)
            else:
                loop.call_later(delay_s, again)

        loop.call_later(delay_s, again)
        await ended
        return loop.time() - began

    assert world.run(scenario) == pytest.approx(1.1e-5, rel=0.1)


def test_a_timer_never_runs_before_its_time(world: World) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + 1
        early: asyncio.Future[float] = loop.create_future()
        late: asyncio.Future[float] = loop.create_future()
        loop.call_at(at, lambda: early.set_result(loop.time()))
        loop.call_at(at + 1e-10, lambda: late.set_result(loop.time()))
        assert await early == at
        assert await late == at + 1e-10

    world.run(scenario)


def test_a_callback_that_stops_time_is_named(world: World) -> None:
    async def spin() -> None:
        loop = asyncio.get_running_loop()

        def set_again() -> None:
            loop.call_soon(set_again)

        set_again()
        await asyncio.sleep(1)

    with pytest.raises(
        SimulationError, match=r"100,000 iterations.*\n.*spin.*set_again.*test_world"
    ):
        world.run(spin)


def test_a_task_that_stops_time_is_named(world: World) -> None:
    async def yield_for_ever() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match=r"100,000 iterations.*\n.*\n +.*yield_for_ever"):
        world.run(yield_for_ever)


def test_many_cancelled_timers_are_forgotten(world: World) -> None:
    async def cancel() -> int:
        loop = asyncio.get_running_loop()
        for _ in range(1000):
            loop.call_later(100, print).cancel()
        return len(loop._timers)  # type: ignore[attr-defined]

    assert world.run(cancel) < 200


def test_a_deadlock_names_each_waiting_task_and_its_line(world: World) -> None:
    async def wait_for_a_lock() -> None:
        lock = asyncio.Lock()
        await lock.acquire()
        await lock.acquire()

    with pytest.raises(WaitsForeverError) as raised:
        world.run(wait_for_a_lock)
    text = str(raised.value)
    assert "nothing is scheduled any more" in text
    assert "wait_for_a_lock" in text
    assert "Lock.acquire" in text
    assert f"{__file__}:" in text
    assert "waits for <Future pending" in text


def test_a_run_beyond_its_limit_names_what_waits(world: World) -> None:
    async def poll_for_ever() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(WaitsForeverError, match=r"limit is over.*\n.*\n.*poll_for_ever"):
        world.run(poll_for_ever, limit_s=60)


async def _leave_a_task() -> None:
    world_tasks.append(asyncio.create_task(asyncio.sleep(10), name="forgotten"))


async def _leave_a_timer() -> None:
    asyncio.get_running_loop().call_later(10, print, "late")


async def _leave_a_connection() -> None:
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, "kafka0", 9092)


world_tasks: list[asyncio.Task[None]] = []


@pytest.mark.parametrize(
    ("scenario", "named"),
    [
        (_leave_a_task, r"tasks:\n *forgotten"),
        (_leave_a_timer, "timers: <TimerHandle"),
        (_leave_a_connection, "connections: <SimulatedTransport client → broker 0 open>"),
    ],
)
def test_what_a_run_leaves_behind_is_an_error(
    world: World, scenario: Callable[[], Coroutine[Any, Any, None]], named: str
) -> None:
    with pytest.raises(LeftoverError, match=named):
        world.run(scenario)


def test_the_cluster_is_controlled_between_runs(world: World) -> None:
    world.cluster.create_topic("t")
    world.cluster.append("t", 0, [b"x"])
    world.run(asyncio.sleep, 1)
    assert world.cluster.offsets("t", 0).end == 1
    world.cluster.kill(0)
    world.cluster.restart(0)
    world.run(asyncio.sleep, 1)


def test_timers_of_the_cluster_are_not_left_behind(world: World) -> None:
    """Retention's timer is set by the method that the scenario calls."""

    async def append() -> None:
        world.cluster.create_topic("t")
        world.cluster.append("t", 0, [b"x"])

    world.run(append)


def test_an_exception_in_a_callback_fails_the_run(world: World) -> None:
    async def divide() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    with pytest.raises(SimulationError, match=r"event loop reports.*ZeroDivisionError"):
        world.run(divide)


# --- parties --------------------------------------------------------------------------------------


def test_a_paused_party_runs_its_callbacks_later_in_order(world: World) -> None:
    async def run() -> list[tuple[str, float]]:
        ticks: list[tuple[str, float]] = []

        async def tick(name: str) -> None:
            for _ in range(4):
                await asyncio.sleep(1)
                ticks.append((name, round(world.virtual_s, 1)))

        with world.process("one"):
            one = asyncio.create_task(tick("one"))
        with world.process("two"):
            two = asyncio.create_task(tick("two"))
        await asyncio.sleep(1.5)
        world.pause("one")
        await asyncio.sleep(10)
        world.resume("one")
        await asyncio.gather(one, two)
        return ticks

    ticks = world.run(run)
    assert [at for name, at in ticks if name == "two"] == [1, 2, 3, 4]
    assert [at for name, at in ticks if name == "one"] == [1, 11.5, 12.5, 13.5]


def test_only_paused_parties_left_is_a_deadlock_that_names_them(world: World) -> None:
    async def pause_myself() -> None:
        world.pause("client")
        await asyncio.sleep(1)

    with pytest.raises(WaitsForeverError, match="Paused: client"):
        world.run(pause_myself)


def test_a_held_loop_makes_timers_late(world: World) -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        late: asyncio.Future[float] = loop.create_future()
        loop.call_later(1, lambda: late.set_result(loop.time() - began))
        world.hold(5)
        return await late

    assert world.run(run) == 5.0


def test_each_party_has_its_own_wall_clock(world: World) -> None:
    world.skew("ahead", 30)
    with world.process("ahead"):
        ahead = environment.wall_time()
    assert ahead - environment.wall_time() == 30


def test_threads_are_simulated_and_take_virtual_time(world: World) -> None:
    def block() -> str:
        world.threads.spend(7)
        return threading.current_thread().name

    async def run() -> tuple[str, float]:
        began = world.virtual_s
        name = await environment.run_in_thread(block)
        executor = environment.worker_threads(1, "x")
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(executor, len, "abc") == 3
        return name, world.virtual_s - began

    name, took_s = world.run(run)
    assert name == threading.current_thread().name
    assert 7 < took_s < 7.1


# --- what there isn't -----------------------------------------------------------------------------


async def _open_a_socket() -> None:
    socket.socket()


async def _start_a_thread() -> None:
    threading.Thread(target=print).start()


async def _use_the_thread_pool() -> None:
    await asyncio.to_thread(print)


async def _sleep() -> None:
    time.sleep(0)


async def _watch_a_socket() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def _run_a_program() -> None:
    await asyncio.create_subprocess_exec("true")


async def _connect_with_tls() -> None:
    await asyncio.open_connection("kafka0", 9092, ssl=True)


async def _make_a_loop() -> None:
    asyncio.new_event_loop()


async def _make_a_loop_of_uvloop() -> None:
    uvloop.new_event_loop()


async def _start_librdkafka() -> None:
    confluent_kafka.Producer({"bootstrap.servers": "kafka0:9092"})


async def _start_a_subclass() -> None:
    confluent_kafka.DeserializingConsumer({"bootstrap.servers": "kafka0:9092"})


async def _start_the_admin_client() -> None:
    confluent_kafka.admin.AdminClient({"bootstrap.servers": "kafka0:9092"})


async def _start_kafka_python() -> None:
    kafka.KafkaProducer(bootstrap_servers="kafka0:9092")


_HERE = rf"{__name__} \(.*test_world.py:\d+\) asks for"


@pytest.mark.parametrize(
    ("scenario", "named"),
    [
        (_make_a_loop, rf"{_HERE} another event loop"),
        (_make_a_loop_of_uvloop, rf"{_HERE} an event loop of uvloop"),
        (_start_librdkafka, rf"{_HERE} confluent_kafka.Producer, which has threads"),
        (_start_a_subclass, rf"{_HERE} confluent_kafka.Consumer, which has threads"),
        (_start_the_admin_client, rf"{_HERE} confluent_kafka.admin.AdminClient"),
        (_start_kafka_python, r"kafka\.[\w.]+ \(.*\) asks for a real socket"),
        (_open_a_socket, rf"{_HERE} a real socket"),
        (_start_a_thread, "asks for a thread"),
        (_use_the_thread_pool, r"asyncio.to_thread\(\).*no threads"),
        (_sleep, r"asks for time.sleep\(\)"),
        (_watch_a_socket, r"loop.add_reader\(\): a simulation has no real sockets"),
        (_run_a_program, "no processes and pipes|child watcher"),
        (_connect_with_tls, r"create_connection\(ssl\)"),
    ],
)
def test_what_cannot_be_simulated_is_named(
    world: World, scenario: Callable[[], Coroutine[Any, Any, None]], named: str
) -> None:
    with pytest.raises((SimulationError, NotImplementedError), match=named):
        world.run(scenario)


def test_other_clients_and_loops_work_after_a_run(world: World) -> None:
    world.run(asyncio.sleep, 1)
    for make_loop in (uvloop.new_event_loop, asyncio.new_event_loop):
        loop = make_loop()
        assert loop.run_until_complete(asyncio.sleep(0, "ran")) == "ran"
        loop.close()
    producer = confluent_kafka.Producer({})
    assert isinstance(producer, confluent_kafka.Producer)


def test_the_package_may_not_take_real_time_or_chance(world: World) -> None:
    source = "import time, os, random, secrets, uuid\nasync def read(): return {}\n"
    clocks = ("time.time()", "time.monotonic()", "time.perf_counter()")
    chance = ("os.urandom(1)", "random.random()", "random.shuffle([])", "uuid.uuid4()")
    for call in (*clocks, *chance, "uuid.uuid1()", "secrets.token_bytes()", "random.seed(1)"):
        module: dict[str, Any] = {"__name__": "aiokafka08.consumer.consumer"}
        exec(compile(source.format(call), "consumer.py", "exec"), module)
        with pytest.raises(SimulationError, match=r"consumer.py:2\) asks for"):
            world.run(module["read"])

    async def read() -> float:
        return time.time() + random.random()  # a user's own code may

    assert world.run(read) > 0
    assert time.time.__module__ == "time"
    assert isinstance(random.random, BuiltinMethodType)


def test_a_world_in_a_running_loop_is_refused() -> None:
    async def nest() -> None:
        with simulate(1):
            pass

    with pytest.raises(SimulationError, match=r"running asyncio\.\w+\._UnixSelectorEventLoop"):
        asyncio.run(nest())


def test_a_run_in_a_running_loop_is_refused(world: World) -> None:
    async def nest() -> None:
        world.run(asyncio.sleep, 1)

    with pytest.raises(SimulationError, match=r"run\(\) inside a running .*SimulatedLoop"):
        world.run(nest)


def test_a_call_later_runs_at_its_time_in_no_party(world: World) -> None:
    times: list[tuple[float, str]] = []
    at = world.virtual_s + 2
    world.call_later(2, lambda: times.append((world.virtual_s, PARTY.get())))
    world.call_later(100, times.clear)
    world.run(asyncio.sleep, 3)
    [(when, party)] = times
    assert when == pytest.approx(at, abs=1e-3)
    assert party == ""


def test_two_worlds_at_once_are_refused(world: World) -> None:
    with pytest.raises(SimulationError, match="two simulations at once"), simulate(2):
        pass


# --- other threads --------------------------------------------------------------------------------


def test_a_world_beside_a_threaded_cluster_is_refused() -> None:
    named = r"EmbeddedCluster.* in thread 'aiokafka08 embedded cluster'"
    with EmbeddedCluster() as cluster:
        with pytest.raises(SimulationError, match=named), simulate(1):
            pass
        assert environment.is_real
        cluster.create_topic("t")
    with simulate(1) as world:
        world.run(asyncio.sleep, 1)


def test_a_world_beside_a_client_in_a_thread_is_refused() -> None:
    started, end = threading.Event(), threading.Event()

    async def run_client() -> None:
        async with (
            EmbeddedCluster() as cluster,
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers),
        ):
            started.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=asyncio.run, args=(run_client(),), name="my service")
    thread.start()
    try:
        assert started.wait(30)
        named = "AIOKafkaProducer was started in thread 'my service'"
        with pytest.raises(SimulationError, match=named), simulate(1):
            pass
    finally:
        end.set()
        thread.join()
    with simulate(1):
        pass


def test_a_threaded_cluster_beside_a_world_is_refused(world: World) -> None:
    threads = threading.active_count()
    with pytest.raises(RuntimeError, match=r"EmbeddedCluster.*a simulation"), EmbeddedCluster():
        pass
    assert threading.active_count() == threads
    world.run(asyncio.sleep, 1)


def test_a_client_in_a_thread_beside_a_world_is_refused(world: World) -> None:
    async def start() -> None:
        await AIOKafkaProducer(bootstrap_servers="127.0.0.1:1").start()

    refused: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(start())
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "AIOKafkaProducer" in str(refused[0])
    assert "a simulation" in str(refused[0])


def test_nothing_is_left_after_a_failed_run() -> None:
    """Neither replaced functions nor an open loop; the next simulation works."""

    async def fail() -> None:
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, "kafka0", 9092)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), simulate(1) as world:
        world.run(fail)
    assert environment.is_real
    assert socket.socket.__init__.__qualname__ == "socket.__init__"
    with simulate(1) as world:
        world.run(asyncio.sleep, 1)


def test_the_simulation_reaches_no_module_of_the_client() -> None:
    """What `testing` may import; the rest is imported by the scenario."""
    code = (
        "import sys; from aiokafka08.testing.simulation import simulate\n"
        "with simulate(1) as world: pass\n"
        "client = ('aiokafka08._core.net', 'aiokafka08.consumer')\n"
        "print([m for m in sys.modules if m.startswith(client)])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_brokers_have_the_simulated_clock() -> None:
    """With the real one, a week of retention would be over since the simulated beginning."""
    with simulate(1, topics={"t": 1}) as world:

        async def scenario() -> None:
            world.cluster.append("t", 0, [b"kept"], timestamp_ms=int(world.wall_time() * 1000))
            await asyncio.sleep(60)
            assert [one.value for one in world.cluster.log("t", 0)] == [b"kept"]

        world.run(scenario)
