"""`Buffers`: what happens when the connections hold more than the limit. Pure."""

from __future__ import annotations

from aiokafka08.testing.buffers import Buffers


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
    buffers = Buffers(100)
    small, large, other = Holder(), Holder(), Holder()
    assert buffers.holds(small, 10)
    assert buffers.holds(large, 70)
    assert buffers.holds(other, 20)
    assert buffers.holds(small, 11)
    assert large.closed == (
        "it holds 70 bytes of requests and responses, the most of all connections; "
        "max_buffered_bytes=100 for all together"
    )
    assert (small.closed, other.closed) == (None, None)


def test_reporting_holder_may_be_closed_itself() -> None:
    buffers = Buffers(100)
    small, large = Holder(), Holder()
    buffers.holds(small, 50)
    assert not buffers.holds(large, 51)
    assert large.closed is not None
    assert buffers.holds(small, 100)


def test_kept_memory_is_dropped_first() -> None:
    buffers = Buffers(100)
    holders = [Holder(kept_bytes=40) for _ in range(3)]
    for holder in holders:
        assert buffers.holds(holder, 45)
    assert [holder.closed for holder in holders] == [None] * 3
    assert [holder.kept_bytes for holder in holders] == [0, 0, 0]


def test_newest_of_equal_holders_is_closed() -> None:
    buffers = Buffers(100)
    holders = [Holder() for _ in range(11)]
    assert [buffers.holds(holder, 10) for holder in holders] == [True] * 10 + [False]


def test_ended_holders_count_no_more() -> None:
    buffers = Buffers(100)
    first, second = Holder(), Holder()
    buffers.holds(first, 100)
    buffers.forget(first)
    buffers.forget(first)
    assert buffers.holds(second, 100)
    assert first.closed is None
