"""`Notifier`: which waiters are woken, deadlines, the count of notifications."""

from __future__ import annotations

import asyncio

from aiokafka08._core.concurrency.notifier import Notifier


async def test_notify_wakes_all_waiters() -> None:
    notifier = Notifier()
    waiters = [asyncio.create_task(notifier.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    notifier.notify()
    assert await asyncio.gather(*waiters) == [True] * 3


async def test_waiters_are_woken_in_the_order_of_their_calls() -> None:
    notifier, woken = Notifier(), list[int]()

    async def wait(number: int) -> None:
        await notifier.wait()
        woken.append(number)

    waiters = [asyncio.create_task(wait(number)) for number in range(100)]
    await asyncio.sleep(0)
    notifier.notify()
    await asyncio.gather(*waiters)
    assert woken == list(range(100))


async def test_a_waiter_that_begins_after_notify_is_not_woken() -> None:
    notifier = Notifier()
    notifier.notify()
    waiter = asyncio.create_task(notifier.wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiter.done()
    notifier.notify()
    assert await waiter


async def test_wait_returns_false_at_the_deadline() -> None:
    notifier = Notifier()
    assert not await notifier.wait(asyncio.get_running_loop().time())


async def test_count_tells_of_a_notification_between_check_and_wait() -> None:
    notifier = Notifier()
    before = notifier.count
    notifier.notify()
    assert notifier.count != before


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    notifier = Notifier()
    waiter = asyncio.create_task(notifier.wait(asyncio.get_running_loop().time() + 3600))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert waiter.cancelled()
    notifier.notify()
