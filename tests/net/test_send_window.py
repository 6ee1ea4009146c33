"""`SendWindow`: how much one leader's link needs in flight, from measured times."""

from __future__ import annotations

from aiokafka08.net.send_window import (
    MIN_BATCHES,
    MIN_GROWTH_BYTES,
    PROBE_BATCHES,
    PROBE_BYTES,
    SendWindow,
)

REQUEST_BYTES = 1024 * 1024
BATCH_BYTES = 16 * 1024
SET_BYTES = 1024


class Link:
    """A link with a round trip, and a broker that takes a time for each batch and byte."""

    def __init__(self, round_trip_s: float, batches_per_s: float, bytes_per_s: float) -> None:
        self.window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
        self.now = 0.0
        self._round_trip_s = round_trip_s
        self._batches_per_s = batches_per_s
        self._bytes_per_s = bytes_per_s

    def request(self, batches: int, set_bytes: int = SET_BYTES) -> None:
        """Send one request while nothing else is in flight, and wait for its response."""
        sent_at, size = self.now, batches * set_bytes
        self.now += self._round_trip_s + batches / self._batches_per_s + size / self._bytes_per_s
        self.window.acknowledged(sent_at, self.now, batches, size, alone=True)


def near() -> Link:
    return Link(0.0003, 25_000, 100e6)


def far() -> Link:
    return Link(0.05, 25_000, 100e6)


def test_window_is_never_full_before_a_round_trip_is_measured() -> None:
    window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
    window.acknowledged(0.0, 1.0, 10_000, 10_000, alone=True)
    assert not window.is_full(10_000)
    assert window.round_trip_s is None


def test_one_request_of_many_batches_fills_a_near_link() -> None:
    link = near()
    for batches in (1, 500, 500):
        link.request(batches)
    assert link.window.is_full(500)
    assert link.window.is_full(MIN_BATCHES)
    assert not link.window.is_full(MIN_BATCHES - 1)


def test_a_far_link_takes_requests_until_the_round_trip_is_full() -> None:
    link = far()
    for batches in (1, 200, 200):
        link.request(batches)
    assert not link.window.is_full(200)
    for _ in range(30):
        link.request(1000)
    # 1,000 batches took 100 ms: 500 of them in a round trip. Twice that is full.
    assert not link.window.is_full(900)
    assert link.window.is_full(1100)


def test_plain_batches_stay_small_on_a_near_link() -> None:
    link = near()
    link.request(1)
    for _ in range(50):
        link.request(1, link.window.growth_bytes)
    assert link.window.growth_bytes == MIN_GROWTH_BYTES


def test_plain_batches_grow_to_the_request_size_on_a_far_link() -> None:
    link = far()
    assert link.window.growth_bytes == MIN_GROWTH_BYTES
    for _ in range(20):  # callers that don't use the link say nothing about its rate
        link.request(1)
    assert link.window.growth_bytes == REQUEST_BYTES
    for _ in range(50):
        link.request(1, link.window.growth_bytes)
    assert link.window.growth_bytes == REQUEST_BYTES


def test_plain_batches_grow_as_far_as_a_slow_far_link_needs() -> None:
    link = Link(0.05, 25_000, 8e6)
    link.request(1)
    for _ in range(100):
        link.request(1, link.window.growth_bytes)
    # Twice 8 MB/s x 50 ms would be 800 kB; one batch at a time reaches half of the rate.
    assert MIN_GROWTH_BYTES < link.window.growth_bytes < 600_000


def test_growth_stays_within_a_small_request_size() -> None:
    window = SendWindow(10_000, 10_000)
    assert window.growth_bytes == 10_000
    window.acknowledged(0.0, 1.0, 1, 100, alone=True)
    assert window.growth_bytes == 10_000


def test_only_small_requests_alone_measure_the_round_trip() -> None:
    window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
    window.acknowledged(0.0, 0.1, PROBE_BATCHES, PROBE_BYTES + 1, alone=True)
    window.acknowledged(1.0, 1.1, PROBE_BATCHES + 1, PROBE_BYTES, alone=True)
    window.acknowledged(2.0, 2.1, 1, 1, alone=False)
    assert window.round_trip_s is None
    window.acknowledged(3.0, 3.25, 1, PROBE_BYTES + 1, alone=True)
    assert window.round_trip_s is None
    window.acknowledged(4.0, 4.5, PROBE_BATCHES, PROBE_BYTES, alone=True)
    assert window.round_trip_s == 0.5


def test_a_batch_that_has_not_grown_measures_the_round_trip() -> None:
    window = SendWindow(REQUEST_BYTES, 4 * PROBE_BYTES)
    window.acknowledged(0.0, 0.5, 1, 4 * PROBE_BYTES, alone=True)
    assert window.round_trip_s == 0.5


def test_a_probe_of_grown_batches_is_not_repeated_at_once() -> None:
    window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
    window.acknowledged(0.0, 0.5, 1, 1, alone=True)
    window.acknowledged(50.0, 51.0, 1, REQUEST_BYTES, alone=True)
    assert not window.is_probe_due(60.0)
    assert window.round_trip_s == 0.5


def test_a_longer_round_trip_replaces_a_shorter_one_in_time() -> None:
    window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
    for number in range(20):
        window.acknowledged(number, number + (0.1 if number < 5 else 0.5), 1, 1, alone=True)
    assert window.round_trip_s == 0.5


def test_a_probe_is_due_first_and_after_100_round_trips() -> None:
    window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
    assert window.is_probe_due(0.0)
    window.acknowledged(0.0, 0.5, 1, 1, alone=True)
    assert not window.is_probe_due(50.0)
    assert window.is_probe_due(50.5)


def test_a_link_that_begins_with_a_grown_batch_is_measured() -> None:
    """A batch that has grown is sent first after a connection was lost."""
    link = far()
    link.request(1, MIN_GROWTH_BYTES)
    for _ in range(50):
        link.request(1, link.window.growth_bytes)
    assert link.window.growth_bytes == REQUEST_BYTES


def test_requests_too_large_to_measure_are_not_held_back() -> None:
    window = SendWindow(REQUEST_BYTES, BATCH_BYTES)
    assert window.is_new
    window.acknowledged(0.0, 0.5, 1, REQUEST_BYTES, alone=True)
    assert not window.is_new
    assert window.round_trip_s is None
    assert not window.is_probe_due(1.0)
    assert window.is_probe_due(1.5)
