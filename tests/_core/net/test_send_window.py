"""`SendWindow`: how much one leader's link needs in flight, from measured times."""

from __future__ import annotations

from aiokafka08._core.net.send_window import (
    GROWTH_MESSAGES,
    MIN_BATCHES,
    MIN_GROWTH_BYTES,
    PARTITION_RATE,
    PROBE_BATCHES,
    PROBE_BYTES,
    STORABLE_BYTES,
    SendWindow,
    acks0_growth_bytes,
    growth_bytes,
)

BATCH_BYTES = 16 * 1024
SET_BYTES = 1024


class Link:
    """A link with a round trip, and a broker that takes a time for each batch."""

    def __init__(self, round_trip_s: float, batches_per_s: float) -> None:
        self.window = SendWindow(0.0, BATCH_BYTES)
        self.now = 0.0
        self._round_trip_s = round_trip_s
        self._batches_per_s = batches_per_s

    def request(self, batches: int) -> None:
        """Send one request while nothing else is in flight, and wait for its response."""
        sent_at, size = self.now, batches * SET_BYTES
        self.now += self._round_trip_s + batches / self._batches_per_s
        self.window.acknowledged(sent_at, self.now, batches, size, alone=True)


def near() -> Link:
    return Link(0.0003, 25_000)


def far() -> Link:
    return Link(0.05, 25_000)


def test_window_is_never_full_before_the_first_response() -> None:
    window = SendWindow(0.0, BATCH_BYTES)
    assert window.is_new
    assert not window.is_full(10_000)
    window.acknowledged(0.0, 1.0, 10_000, 10_000, alone=True)
    assert not window.is_new
    assert window.is_full(10_000)


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
    # 1,000 batches took 90 ms: 556 of them in a round trip. Twice that is full.
    assert not link.window.is_full(1000)
    assert link.window.is_full(1200)


def test_growth_is_what_a_partition_sends_in_a_round_trip() -> None:
    assert growth_bytes(0.0, 30) == growth_bytes(0.004, 30) == MIN_GROWTH_BYTES
    assert growth_bytes(0.05, 30) == PARTITION_RATE // 20


def test_growth_counts_messages_up_to_a_limit() -> None:
    assert growth_bytes(0.0, 300) == 300 * GROWTH_MESSAGES
    assert growth_bytes(0.0, 1050) == growth_bytes(0.0, 1e9) == STORABLE_BYTES
    assert growth_bytes(0.05, 1050) == PARTITION_RATE // 20


def test_with_acks0_batches_in_flight_share_the_round_trip() -> None:
    assert acks0_growth_bytes(0.0, 5) == acks0_growth_bytes(0.02, 5) == MIN_GROWTH_BYTES
    assert acks0_growth_bytes(0.05, 5) == acks0_growth_bytes(0.01, 1) == PARTITION_RATE // 100
    assert acks0_growth_bytes(0.5, 5) == STORABLE_BYTES


def test_only_small_requests_alone_measure_the_round_trip() -> None:
    window = SendWindow(0.7, BATCH_BYTES)
    window.acknowledged(0.0, 0.1, PROBE_BATCHES, PROBE_BYTES + 1, alone=True)
    window.acknowledged(1.0, 1.1, PROBE_BATCHES + 1, PROBE_BYTES, alone=True)
    window.acknowledged(2.0, 2.1, 1, 1, alone=False)
    window.acknowledged(3.0, 3.25, 1, PROBE_BYTES + 1, alone=True)
    assert window.round_trip_s == 0.7
    window.acknowledged(4.0, 4.5, PROBE_BATCHES, PROBE_BYTES, alone=True)
    assert window.round_trip_s == 0.5


def test_the_first_measured_round_trip_replaces_the_expected() -> None:
    """The probe of the version may have measured another broker."""
    window = SendWindow(0.001, BATCH_BYTES)
    assert window.round_trip_s == 0.001
    window.acknowledged(0.0, 0.5, 1, 1, alone=True)
    assert window.round_trip_s == 0.5


def test_a_large_request_measures_an_unknown_round_trip() -> None:
    """Under load all batches have grown, so there may be no small request."""
    window = SendWindow(0.0, BATCH_BYTES)
    window.acknowledged(0.0, 0.5, 1, 1024 * 1024, alone=True)
    window.acknowledged(1.0, 1.9, 1, 1024 * 1024, alone=True)
    assert window.round_trip_s == 0.5


def test_a_batch_that_has_not_grown_measures_the_round_trip() -> None:
    window = SendWindow(0.0, 4 * PROBE_BYTES)
    window.acknowledged(0.0, 0.5, 1, 4 * PROBE_BYTES, alone=True)
    assert window.round_trip_s == 0.5


def test_a_longer_round_trip_replaces_a_shorter_one_in_time() -> None:
    window = SendWindow(0.0, BATCH_BYTES)
    for number in range(20):
        window.acknowledged(number, number + (0.1 if number < 5 else 0.5), 1, 1, alone=True)
    assert window.round_trip_s == 0.5


def test_a_probe_is_due_first_and_after_100_round_trips() -> None:
    window = SendWindow(0.0, BATCH_BYTES)
    assert window.is_probe_due(0.0)
    window.acknowledged(0.0, 0.5, 1, 1, alone=True)
    assert not window.is_probe_due(50.0)
    assert window.is_probe_due(50.5)


def test_a_probe_of_grown_batches_is_not_repeated_at_once() -> None:
    window = SendWindow(0.001, BATCH_BYTES)
    window.acknowledged(0.0, 0.5, 1, 1024 * 1024, alone=True)
    assert not window.is_probe_due(1.0)
    assert window.is_probe_due(1.5)
