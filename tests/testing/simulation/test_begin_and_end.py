"""What a simulation replaces for its block, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokafka08.testing.simulation import LeftoverError, SimulationError, simulate

KEPT: list[asyncio.Task[None]] = []
"""The tasks that go on; the event loop alone wouldn't keep them alive."""


@pytest.fixture(autouse=True)
def forget_tasks() -> Iterator[None]:
    yield
    KEPT.clear()


async def stubborn() -> None:
    while True:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            pass


async def begin_stubborn() -> None:
    KEPT.append(asyncio.create_task(stubborn()))
    await asyncio.sleep(1)


async def begin_stubborn_and_fail() -> None:
    await begin_stubborn()
    raise AssertionError("the user's failure")


async def spin() -> None:
    while True:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass


async def spin_and_fail() -> None:
    KEPT.append(asyncio.create_task(spin()))
    await asyncio.sleep(0)
    raise AssertionError("the user's failure")


async def draw() -> float:
    await asyncio.sleep(random.random())
    return random.random()


def test_the_module_random_is_drawn_from_the_seed() -> None:
    def run(seed: int) -> tuple[float, str]:
        with simulate(seed, brokers=1) as world:
            return world.run(draw), world.trace_hash

    before = random.getstate()
    assert run(1) == run(1)
    assert run(1)[0] != run(2)[0]
    assert random.getstate() == before


async def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


async def resolve() -> None:
    socket.getaddrinfo("localhost", 1)


async def run_a_program() -> None:
    subprocess.run(["true"], check=True)


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        (fork, "asks for a process"),
        (run_a_program, "asks for a process"),
        (resolve, r"asks for socket.getaddrinfo\(\)"),
    ],
)
def test_processes_and_real_names_are_refused(scenario: Callable[..., Any], text: str) -> None:
    with simulate(1, brokers=1) as world, pytest.raises(SimulationError, match=text):
        world.run(scenario)


@pytest.mark.parametrize("scenario", [begin_stubborn_and_fail, spin_and_fail])
def test_the_end_does_not_hide_the_failure(scenario: Callable[..., Any]) -> None:
    with (
        pytest.raises(AssertionError, match="the user's failure") as raised,
        simulate(1, brokers=1) as world,
    ):
        world.run(scenario)
    [note] = raised.value.__notes__
    assert note.startswith("The simulation's end failed too: ")


def test_a_task_that_never_ends_is_named_at_the_end() -> None:
    with (
        pytest.raises(LeftoverError, match=r"(?s)don't end when they are cancelled.*stubborn"),
        simulate(1, brokers=1) as world,
        pytest.raises(LeftoverError),
    ):
        world.run(begin_stubborn)


def test_a_lost_failed_task_in_a_cycle_fails_the_run() -> None:
    class Node:
        task: asyncio.Task[None]
        me: Node

    async def fail() -> None:
        raise ValueError("lost")

    async def lose() -> None:
        node = Node()
        node.me, node.task = node, asyncio.create_task(fail())
        await asyncio.sleep(1)

    gc.disable()  # as in a process that happens not to collect garbage during the run
    try:
        with (
            simulate(1, brokers=1) as world,
            pytest.raises(SimulationError, match=r"event loop reports.*lost"),
        ):
            world.run(lose)
    finally:
        gc.enable()
