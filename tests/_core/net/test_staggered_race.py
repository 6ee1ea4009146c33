"""`staggered_race()`: order of starts, the winner, errors, cancellation, discarded results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokafka08._core.net.staggered_race import AllAttemptsFailedError, Stagger, staggered_race
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

LONG = 60.0


class Ways:
    """ScriptedPeer attempts; `log` says which have begun, ended or were cancelled."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.release: dict[str, asyncio.Event] = {}

    def way(self, name: str, outcome: object, *, waits: bool = False) -> Callable[[], Any]:
        self.release[name] = asyncio.Event()

        async def attempt() -> object:
            self.log.append(f"{name} begins")
            try:
                if waits:
                    await self.release[name].wait()
                if isinstance(outcome, Exception):
                    raise outcome
            except asyncio.CancelledError:
                self.log.append(f"{name} cancelled")
                raise
            return outcome

        return attempt


Attempts = dict[str, Callable[[], Coroutine[Any, Any, Any]]]


async def race(attempts: Attempts, head_start_s: float = LONG, **options: Any) -> Any:
    return await asyncio.wait_for(
        staggered_race(attempts, delay_s=head_start_s, expected=(OSError,), **options), 5
    )


async def test_no_further_attempt_starts_after_a_success() -> None:
    ways = Ways()
    assert await race({"a": ways.way("a", 1), "b": ways.way("b", 2)}) == 1
    assert ways.log == ["a begins"]


async def test_a_shortened_delay_starts_the_next_attempt_earlier() -> None:
    ways = Ways()
    attempts = {
        "a": ways.way("a", 1, waits=True),
        "b": ways.way("b", 2, waits=True),
        "c": ways.way("c", 3),
    }
    stagger = Stagger(LONG)
    racing = asyncio.create_task(staggered_race(attempts, delay_s=stagger, expected=(OSError,)))
    await until(lambda: ways.log == ["a begins"], "the first")
    stagger.shorten(2 * LONG)
    await asyncio.sleep(0.05)
    assert ways.log == ["a begins"]
    stagger.shorten(0.01)
    assert await asyncio.wait_for(racing, 5) == 3
    assert ways.log[:3] == ["a begins", "b begins", "c begins"]


async def test_the_next_attempt_starts_at_once_after_a_failure() -> None:
    ways = Ways()
    attempts = {"a": ways.way("a", OSError()), "b": ways.way("b", OSError()), "c": ways.way("c", 3)}
    assert await race(attempts) == 3
    assert ways.log == ["a begins", "b begins", "c begins"]


async def test_a_hanging_attempt_is_cancelled_when_another_wins() -> None:
    ways = Ways()
    attempts = {"a": ways.way("a", 1, waits=True), "b": ways.way("b", 2)}
    assert await race(attempts, 0.01) == 2
    assert ways.log == ["a begins", "b begins", "a cancelled"]


async def test_a_slow_attempt_wins_if_it_succeeds_first() -> None:
    ways = Ways()
    attempts = {"a": ways.way("a", 1, waits=True), "b": ways.way("b", 2, waits=True)}
    racing = asyncio.create_task(race(attempts, 0.01))
    await until(lambda: len(ways.log) == 2, "all have begun")
    ways.release["a"].set()
    assert await racing == 1
    assert ways.log[-1] == "b cancelled"


async def test_all_errors_are_raised_in_order_when_all_fail() -> None:
    ways = Ways()
    first, second = OSError("first"), OSError("second")
    attempts = {"a": ways.way("a", first, waits=True), "b": ways.way("b", second)}
    racing = asyncio.create_task(race(attempts, 0.01))
    await until(lambda: len(ways.log) == 2, "all have begun")
    ways.release["a"].set()
    with pytest.raises(AllAttemptsFailedError) as caught:
        await racing
    assert list(caught.value.errors.items()) == [("a", first), ("b", second)]
    assert str(caught.value) == "first; second"


async def test_an_unexpected_exception_ends_the_race() -> None:
    ways = Ways()
    attempts = {"a": ways.way("a", 1, waits=True), "b": ways.way("b", ZeroDivisionError())}
    with pytest.raises(ZeroDivisionError):
        await race(attempts, 0.01)
    assert ways.log[-1] == "a cancelled"


async def test_cancelling_the_race_cancels_all_attempts() -> None:
    ways = Ways()
    attempts = {name: ways.way(name, 1, waits=True) for name in "abc"}
    racing = asyncio.create_task(race(attempts, 0.01))
    await until(lambda: len(ways.log) == 3, "all have begun")
    racing.cancel()
    await asyncio.wait((racing,))
    assert sorted(ways.log[3:]) == ["a cancelled", "b cancelled", "c cancelled"]


async def test_further_results_are_discarded() -> None:
    ways = Ways()
    attempts = {"a": ways.way("a", 1, waits=True), "b": ways.way("b", 2, waits=True)}
    discarded: list[int] = []
    racing = asyncio.create_task(race(attempts, 0.01, discard=discarded.append))
    await until(lambda: len(ways.log) == 2, "all have begun")
    for event in ways.release.values():
        event.set()
    assert await racing == 1
    assert discarded == [2]


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("cancels", [1, 2, 3])
async def test_no_result_is_lost_when_cancelled_at_any_moment(turns: int, cancels: int) -> None:
    made: list[str] = []
    discarded: list[str] = []

    def stubborn(name: str, patience: int) -> Callable[[], Any]:
        async def attempt() -> str:
            for _ in range(patience):  # it succeeds in the very moment that it is cancelled
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    break
            made.append(name)
            return name

        return attempt

    racing = asyncio.create_task(
        race({"a": stubborn("a", 3), "b": stubborn("b", 5)}, 0.0, discard=discarded.append)
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(cancels):
        racing.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((racing,))
    for _ in range(3):
        await asyncio.sleep(0)
    won = [] if racing.cancelled() else [racing.result()]
    assert sorted(won + discarded) == sorted(made)
