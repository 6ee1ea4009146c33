"""What callers pass to a simulation by mistake: one line says what is wrong."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08.testing.simulation import Network, SimulationError, World, simulate


async def scenario() -> int:
    await asyncio.sleep(1)
    return 1


def function() -> int:
    return 5


def refused(text: str, error: type[Exception] = ValueError) -> Any:
    return pytest.raises(error, match=f"^{re.escape(text)}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": "x"}, "seed='x': expected an integer"),
        ({"seed": None}, "seed=None: expected an integer"),
        ({"seed": 1.5}, "seed=1.5: expected an integer"),
        ({"network": (1, 30)}, "network=(1, 30): expected a Network, such as "),
        ({"network": 0}, "network=0: expected a Network, such as "),
        ({"clock": 5}, "clock=5: expected None or a function "),
        ({"advertised_host": "k"}, "advertised_host='k': expected no value: a simulation "),
        ({"advertised_port": 1}, "advertised_port=1: expected no value: a simulation "),
        ({"port": 9092}, "port=9092: expected no value: a simulation "),
    ],
)
def test_simulate_refuses_an_invalid_option(options: dict[str, Any], text: str) -> None:
    with refused(text), simulate(**{"seed": 1} | options):
        pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"latency_ms": 5}, "latency_ms=5: expected two finite numbers >= 0"),
        ({"latency_ms": (1,)}, "latency_ms=(1,): expected two finite numbers >= 0"),
        ({"latency_ms": ("1", "2")}, "latency_ms=('1', '2'): expected two finite numbers >= 0"),
        ({"latency_ms": (float("inf"),) * 2}, "latency_ms=(inf, inf): expected two finite "),
        ({"latency_ms": (30, 1)}, "latency_ms=(30, 1): expected two finite numbers >= 0"),
        ({"bytes_per_s": "x"}, "bytes_per_s='x': expected None or a number > 0"),
        ({"bytes_per_s": 0}, "bytes_per_s=0: expected None or a number > 0"),
        ({"window_bytes": 0.5}, "window_bytes=0.5: expected an integer >= 1"),
        ({"fragment": "no"}, "fragment='no': expected True or False"),
    ],
)
def test_network_refuses_an_invalid_option(options: dict[str, Any], text: str) -> None:
    with refused(text):
        Network(**options)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda world: world.run(scenario()), "function=<coroutine object scenario"),
        (lambda world: world.run(function), "function=<function function"),
        (lambda world: world.run(None), "function=None: expected a coroutine function"),
        (lambda world: world.run(scenario, limit_s="1"), "limit_s='1': expected a finite number "),
        (lambda world: world.hold(-500), "seconds=-500: expected a finite number of seconds >= 0"),
        (lambda world: world.skew("client", "5"), "seconds='5': expected a finite number "),
        (lambda world: world.call_later(-5, print), "seconds=-5: expected a finite number "),
        (lambda world: world.call_later(1, None), "function=None: expected a function that "),
        (lambda world: world.call_later(1, scenario), "function=<function scenario"),
        (
            lambda world: world.call_later(1, functools.partial(scenario)),
            "function=functools.partial(<function scenario",
        ),
        (lambda world: world.process("").__enter__(), "party='': expected the name of a party"),
        (lambda world: world.pause("broker 9"), "party='broker 9': expected one of 'broker 0'"),
        (lambda world: world.network.refuse("broker 9"), "party='broker 9': expected one of "),
        (lambda world: world.network.block(None, "broker"), "party='broker': expected one of "),
        (lambda world: world.network.reset("client", "broker x"), "party='broker x': expected "),
        (lambda world: world.network.half_open(3), "party=3: expected the name of a party"),
        (
            lambda world: world.network.set_link("a", "broker 9", Network()),
            "party='broker 9': expected one of ",
        ),
        (
            lambda world: world.network.set_link("client", "broker 0", (1, 2)),
            "network=(1, 2): expected a Network, such as ",
        ),
    ],
)
def test_a_world_refuses_an_invalid_argument(call: Callable[[World], object], text: str) -> None:
    with simulate(1, brokers=1) as world:
        with refused(text):
            call(world)
        assert world.run(scenario) == 1


def test_a_coroutine_in_place_of_its_function_is_told() -> None:
    with (
        simulate(1, brokers=1) as world,
        pytest.raises(ValueError, match=r"pass the function and its arguments"),
    ):
        world.run(scenario())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("pause", lambda world: world.pause("brokr 0")),
        ("skew", lambda world: world.skew("brokr 0", 5)),
        ("block", lambda world: world.network.block("brokr 0", "broker 0")),
        ("refuse", lambda world: world.network.refuse("brokr 0")),
        ("reset", lambda world: world.network.reset("broker 0", "brokr 0")),
        ("half_open", lambda world: world.network.half_open("brokr 0")),
        ("set_link", lambda world: world.network.set_link("brokr 0", "broker 0", Network())),
    ],
)
def test_a_fault_of_nobody_fails_the_run(name: str, fault: Callable[[World], object]) -> None:
    with simulate(1, brokers=1) as world:
        fault(world)
        with refused(f"{name}() of 'brokr 0': no party of this name has begun", SimulationError):
            world.run(scenario)


def test_a_fault_may_name_a_party_before_it_begins() -> None:
    with simulate(1, brokers=1) as world:
        world.network.set_link("shop", "broker 0", Network())

        async def begin() -> int:
            with world.process("shop"):
                return await scenario()

        assert world.run(begin) == 1


def test_run_after_the_block_is_refused() -> None:
    with simulate(1, brokers=1) as world:
        pass
    with refused("run() after the end of the block of simulate()", SimulationError):
        world.run(scenario)
