"""`ReadBudget`: which connections read in an iteration of the event loop. Pure but for the loop."""

from __future__ import annotations

import asyncio

from aiokafka08._core.server.read_budget import ReadBudget

MIB = 1 << 20


class Sender:
    """A connection whose client sends without end."""

    def __init__(self, budget: ReadBudget) -> None:
        self.budget = budget
        self.reads: list[int] = []
        self.held = False

    def hold_reading(self) -> None:
        self.held = True

    def go_on_reading(self) -> None:
        self.held = False

    def read(self) -> None:
        """Read until the connection is held, at most 32 times, as libuv does."""
        for _ in range(32):
            if self.held:
                return
            self.reads.append(self.budget.next_bytes())
            self.budget.received(self, self.reads[-1])


async def iterations(senders: list[Sender], count: int) -> list[int]:
    """Let all read in each iteration; return how much was read in each."""
    totals = []
    for _ in range(count):
        before = sum(sum(one.reads) for one in senders)
        for one in senders:
            one.read()
        totals.append(sum(sum(one.reads) for one in senders) - before)
        await asyncio.sleep(0)
    return totals


async def test_who_sends_alone_reads_all_in_each_iteration() -> None:
    sender = Sender(ReadBudget())
    assert await iterations([sender], 5) == [2 * MIB] * 5
    assert set(sender.reads) == {2 * MIB}


async def test_many_senders_share_what_is_read() -> None:
    budget = ReadBudget()
    senders = [Sender(budget) for _ in range(1000)]
    first, *later = await iterations(senders, 200)
    assert first < 70 * MIB  # a buffer of each
    assert max(later) <= 3 * MIB
    amounts = [sum(one.reads) for one in senders]
    assert max(amounts) <= min(amounts) + 5 * MIB
    assert min(len(one.reads) for one in senders) >= 3


async def test_few_senders_have_large_reads() -> None:
    budget = ReadBudget()
    senders = [Sender(budget) for _ in range(4)]
    totals = await iterations(senders, 20)
    assert min(totals[1:]) >= 1.5 * MIB
    assert senders[3].reads[-1] == MIB // 2


async def test_iteration_has_one_large_copy() -> None:
    """A frame that grows beyond its buffer gets a larger one, with all that has arrived."""
    budget = ReadBudget()
    senders = [Sender(budget) for _ in range(10)]
    for one in senders:
        budget.received(one, MIB // 4, to_copy=10 * MIB)
    assert all(one.held for one in senders)
    for still_held in range(9, -1, -1):
        await asyncio.sleep(0)
        assert [one.held for one in senders].count(True) == still_held


async def test_ended_connection_isnt_woken() -> None:
    budget = ReadBudget()
    senders = [Sender(budget) for _ in range(3)]
    await iterations(senders, 1)
    for one in senders:
        one.read()
    ended = next(one for one in senders if one.held)
    budget.forget(ended)
    await iterations([one for one in senders if one is not ended], 3)
    assert ended.held
