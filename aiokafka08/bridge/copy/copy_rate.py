"""`CopyRate`: how fast a run copies, and when it will have caught up. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from aiokafka08._wording import counted
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.wording import duration_text, size_text

# The rate covers only these last seconds, so that it soon shows if a cluster becomes slower.
WINDOW_S: Final = 10.0


class _Sample(NamedTuple):
    at: float
    records: int
    size: int


class CopyRate:
    """The rate of the last `WINDOW_S` seconds; `now` is the loop's time."""

    def __init__(self, status: CopyStatus, now: float) -> None:
        self._status = status
        self._samples = deque([_Sample(now, status.records, status.size)])

    def text(self, now: float) -> str:
        """Return the progress of the copy, its rate, and about how long the rest takes."""
        status, samples = self._status, self._samples
        samples.append(_Sample(now, status.records, status.size))
        # The oldest sample stays until the next one is as old as the window.
        while len(samples) > 2 and now - samples[1].at >= WINDOW_S:
            samples.popleft()
        copied = counted(status.records, "message")
        text = f"{copied} copied ({size_text(status.size)})"
        lag = status.lag()
        unknown = sum(one.end is None and one.stopped is None for one in status.partitions.values())
        if unknown < len(status.partitions):
            text += f", {'at least ' if unknown else ''}{lag} behind"
        passed = now - samples[0].at
        if passed <= 0 or not (records := status.records - samples[0].records):
            return text
        rate, bytes_per_s = records / passed, (status.size - samples[0].size) / passed
        text += f", {rate:.0f}/s ({size_text(bytes_per_s)}/s)"
        return f"{text}, about {duration_text(lag / rate)} left" if lag and not unknown else text


def summary_text(status: CopyStatus, seconds: float) -> str:
    """Return how much a run has copied in `seconds`, with the rate while messages were in
    flight.
    """
    text = (
        f"{counted(status.records, 'message')} in {counted(status.transactions, 'transaction')}, "
        f"{size_text(status.size)} in {duration_text(seconds)}"
    )
    if status.copying_s <= 0 or not status.records:
        return text
    rate = round(status.records / status.copying_s)
    return f"{text}, {counted(rate, 'message')}/s while it copied"
