"""Merged generators keep their order, stay within the budget, and are closed in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from aiokafka08._core.concurrency.merge import merge


class Sources:
    """Generators that yield (name, number), each after its gate opens; they count what is open."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.most_open = 0

    async def numbers(
        self, name: str, count: int, gate: asyncio.Event | None = None
    ) -> AsyncGenerator[tuple[str, int], None]:
        self.open.add(name)
        self.most_open = max(self.most_open, len(self.open))
        try:
            for number in range(count):
                if gate is not None:
                    await gate.wait()
                await asyncio.sleep(0)
                yield name, number
        finally:
            self.open.discard(name)


async def test_merged_items_keep_the_order_of_their_source() -> None:
    sources = Sources()
    made = [(1, sources.numbers(name, count)) for name, count in (("a", 5), ("b", 0), ("c", 9))]
    found = [item async for item in merge(made, 10)]
    assert [number for name, number in found if name == "a"] == [*range(5)]
    assert [number for name, number in found if name == "c"] == [*range(9)]
    assert sources.most_open == 2  # b ends at once
    assert not sources.open


@pytest.mark.parametrize(("budget", "most"), [(0, 1), (2, 2), (5, 5), (100, 8)])
async def test_sources_are_active_within_the_budget(budget: int, most: int) -> None:
    sources = Sources()
    made = [(1, sources.numbers(str(n), 3)) for n in range(8)]
    assert len([item async for item in merge(made, budget)]) == 24
    assert sources.most_open == most


async def test_waiting_source_does_not_delay_the_others() -> None:
    sources, gate = Sources(), asyncio.Event()
    made = [(1, sources.numbers("slow", 2, gate)), (1, sources.numbers("fast", 50))]
    found = []
    async with aclosing(merge(made, 10)) as merged:
        async for name, number in merged:
            found.append((name, number))
            if (name, number) == ("fast", 49):
                gate.set()
    assert found == [*(("fast", n) for n in range(50)), ("slow", 0), ("slow", 1)]


async def test_error_or_close_ends_all_sources() -> None:
    sources = Sources()

    async def failing() -> AsyncGenerator[tuple[str, int], None]:
        yield "failing", 0
        raise ValueError("broken")

    never = asyncio.Event()
    made = [(1, sources.numbers("hung", 1, never)), (1, failing()), (1, sources.numbers("a", 99))]
    with pytest.raises(ValueError, match="broken"):
        async for _ in merge(made, 10):
            pass
    assert not sources.open
    async with aclosing(merge([(1, sources.numbers("b", 99))], 10)) as merged:
        await anext(merged)
        assert sources.open
    assert not sources.open
