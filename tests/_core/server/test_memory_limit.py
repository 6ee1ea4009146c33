"""`MemoryLimit`: what happens when the connections hold more than the limit. Pure."""

from __future__ import annotations

from aiokafka08._core.server.memory_limit import MemoryLimit


class Holder:
    """A connection that keeps some memory for later requests."""

    def __init__(self, kept_bytes: int = 0) -> None:
        self.kept_bytes = kept_bytes
        self.closed: str | None = None

    def drop_kept(self) -> int:
        freed, self.kept_bytes = self.kept_bytes, 0
        return freed

    def evict(self, reason: str) -> None:
        self.closed = reason


def test_largest_holder_is_closed_by_name() -> None:
    limit = MemoryLimit(100, "max_buffered_bytes")
    small, large, other = Holder(), Holder(), Holder()
    assert limit.holds(small, 10)
    assert limit.holds(large, 70)
    assert limit.holds(other, 20)
    assert limit.holds(small, 11)
    assert large.closed == (
        "it holds 70 bytes of requests and responses, the most of all connections; "
        "max_buffered_bytes=100 for all together"
    )
    assert (small.closed, other.closed) == (None, None)


def test_reporting_holder_may_be_closed_itself() -> None:
    limit = MemoryLimit(100, "max_buffered_bytes")
    small, large = Holder(), Holder()
    limit.holds(small, 50)
    assert not limit.holds(large, 51)
    assert large.closed is not None
    assert limit.holds(small, 100)


def test_kept_memory_is_dropped_first() -> None:
    limit = MemoryLimit(100, "max_buffered_bytes")
    holders = [Holder(kept_bytes=40) for _ in range(3)]
    for holder in holders:
        assert limit.holds(holder, 45)
    assert [holder.closed for holder in holders] == [None] * 3
    assert [holder.kept_bytes for holder in holders] == [0, 40, 40]


def test_no_more_kept_memory_is_dropped_than_is_needed() -> None:
    """To free all of it at once would hold the event loop."""
    limit = MemoryLimit(100, "max_buffered_bytes")
    holders = [Holder(kept_bytes=4) for _ in range(21)]
    for holder in holders:
        assert limit.holds(holder, 5)
    assert [holder.kept_bytes for holder in holders].count(0) == 3


def test_newest_of_equal_holders_is_closed() -> None:
    limit = MemoryLimit(100, "max_buffered_bytes")
    holders = [Holder() for _ in range(11)]
    assert [limit.holds(holder, 10) for holder in holders] == [True] * 10 + [False]


def test_ended_holders_count_no_more() -> None:
    limit = MemoryLimit(100, "max_buffered_bytes")
    first, second = Holder(), Holder()
    limit.holds(first, 100)
    limit.forget(first)
    limit.forget(first)
    assert limit.holds(second, 100)
    assert first.closed is None
