"""`retry()`: results, final and passing failures, the deadline and its error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokafka08._core.net.backoff import Backoff
from aiokafka08._core.net.retry import attempt_timeout, is_final, retry
from aiokafka08.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    broker_error,
)

Attempt = Callable[[float], Awaitable[str | KafkaError]]


class Attempts:
    """Gives these outcomes, one per attempt, then the last one for ever."""

    def __init__(self, *outcomes: str | Exception, raises: bool = False) -> None:
        self.limits: list[float] = []
        self._outcomes = outcomes
        self._raises = raises

    async def __call__(self, limit_s: float) -> str | KafkaError:
        outcome = self._outcomes[min(len(self.limits), len(self._outcomes) - 1)]
        self.limits.append(limit_s)
        if isinstance(outcome, str):
            return outcome
        if self._raises or not isinstance(outcome, KafkaError):
            raise outcome
        return outcome


async def run(
    attempt: Attempt,
    timeout_s: float = 30,
    attempt_s: float = 5,
    made: list[KafkaError | None] | None = None,
) -> str:
    def timed_out(last: KafkaError | None) -> KafkaError:
        if made is not None:
            made.append(last)
        return KafkaTimeoutError("too late")

    return await retry(
        attempt,
        deadline=asyncio.get_running_loop().time() + timeout_s,
        backoff=Backoff(0.001, 0.001),
        timed_out=timed_out,
        attempt_s=attempt_s,
    )


@pytest.mark.parametrize("raises", [True, False])
async def test_failures_that_may_pass_are_retried(raises: bool) -> None:
    attempts = Attempts(
        KafkaConnectionError("a"), LeaderNotAvailableError("b"), "result", raises=raises
    )
    assert await run(attempts) == "result"
    assert len(attempts.limits) == 3


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("error", [IllegalStateError("stopped"), OffsetOutOfRangeError("x")])
async def test_a_final_failure_is_raised_at_once(error: KafkaError, raises: bool) -> None:
    attempts = Attempts(KafkaConnectionError("a"), error, raises=raises)
    with pytest.raises(type(error)) as caught:
        await run(attempts)
    assert caught.value is error
    assert len(attempts.limits) == 2


async def test_any_other_exception_is_raised_at_once() -> None:
    with pytest.raises(KeyError):
        await run(Attempts(KeyError("bug")))


async def test_the_deadline_error_is_made_from_the_last_failure() -> None:
    first, second = KafkaConnectionError("first"), KafkaConnectionError("second")
    made: list[KafkaError | None] = []
    with pytest.raises(KafkaTimeoutError, match="too late"):
        await run(Attempts(first, second), timeout_s=0.05, made=made)
    assert made == [second]


async def test_a_failure_at_the_deadline_keeps_an_earlier_one() -> None:
    """The last attempt, cut short by the deadline, tells nothing of the reason.

    A timer of uvloop may end it up to a millisecond before.
    """
    reason, made = KafkaConnectionError("reason"), list[KafkaError | None]()
    loop = asyncio.get_running_loop()

    async def attempt(limit_s: float) -> str | KafkaError:
        if not made:
            made.append(None)
            return reason
        end = loop.time() + limit_s - 0.0008
        while loop.time() < end:  # noqa: ASYNC110 - one sleep would end too late
            await asyncio.sleep(0)
        raise KafkaTimeoutError("no response in the rest of the time")

    with pytest.raises(KafkaTimeoutError, match="too late"):
        await run(attempt, timeout_s=0.05, made=made)
    assert made == [None, reason]


async def test_there_is_one_attempt_even_without_time() -> None:
    attempts = Attempts("result")
    assert await run(attempts, timeout_s=-1) == "result"
    assert attempts.limits == [0.0]


async def test_a_timeout_of_the_attempt_itself_is_no_failure_to_report() -> None:
    made: list[KafkaError | None] = []
    with pytest.raises(KafkaTimeoutError, match="too late"):
        await run(Attempts(TimeoutError()), timeout_s=0.02, made=made)
    assert made == [None]


async def test_each_attempt_gets_its_share_of_the_time() -> None:
    attempts = Attempts(KafkaConnectionError("a"), "result")
    await run(attempts, timeout_s=30, attempt_s=7)
    assert attempts.limits == [7, 7]
    attempts = Attempts("result")
    await run(attempts, timeout_s=2, attempt_s=7)
    assert 1 < attempts.limits[0] <= 2


def test_an_attempt_may_take_a_quarter_of_the_time_but_a_second() -> None:
    assert [attempt_timeout(limit) for limit in (40, 4, 2, 0.5)] == [10, 1, 1, 0.5]


def test_unknown_codes_are_not_final() -> None:
    assert not is_final(broker_error(999))
    assert is_final(broker_error(1))
    assert is_final(IllegalStateError("x"))
    assert not is_final(KafkaTimeoutError("x"))
