"""`ProgressLog`: log that a copy has caught up, its progress while it is behind, and outages.

Invariant: "caught up" means that all partitions are copied up to the end offsets that the source
had at one moment, and that no message has waited for longer than `CLOSE_S` plus the time of two
transactions. If partitions or topics have stopped, they are logged in place of "caught up".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka08._wording import counted, some_of
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.status import CopyStatus, RepeatedError
from aiokafka08.bridge.wording import duration_text
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

# A copy that follows a busy source is never quite at its end, so a short wait counts as caught up.
CLOSE_S: Final = 3.0
# Once a message has waited for this long, and for twice the limit of "caught up", the copy is
# behind again.
BEHIND_S: Final = 60.0
# The time between two lines while the copy is behind.
LINE_S: Final = 60.0
_LOOK_S: Final = 0.5


class ProgressLog:
    """Looks at the status of a run twice a second, and logs its changes."""

    def __init__(self, config: BridgeConfig, status: CopyStatus) -> None:
        self._status = status
        self._client_id = config.client_id
        self._close_s = CLOSE_S + 2 * config.copy.transaction_s
        self._is_behind = True
        self._has_caught_up = False
        # Whether stopped partitions or topics were logged in place of "caught up".
        self._lacks_stopped = False
        # The ends at one moment, which the copy has to reach.
        self._goal: dict[TopicPartition, int] | None = None
        self._line_at: float | None = None
        # The clusters that were logged as away.
        self._away: dict[str, RepeatedError] = {}
        # The messages copied when the last line was logged.
        self._records = 0

    async def follow(self) -> None:
        """Look and log until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.look(loop.time())
            await asyncio.sleep(_LOOK_S)

    def look(self, now: float) -> None:
        """Log changes; while no session is running, only which clusters are away.

        `now` is the loop's time.
        """
        status = self._status
        self._look_away(dict(status.away))
        if status.problem is not None:
            return
        copied = {
            tp: partition
            for tp, partition in status.partitions.items()
            if partition.stopped is None
        }
        lag_s = max((partition.lag_s(now) for partition in copied.values()), default=0.0)
        if not self._is_behind and lag_s >= max(BEHIND_S, 2 * self._close_s):
            self._is_behind, self._goal, self._line_at = True, None, None
        problems = [*status.stopped.values(), *status.refused_topics.values()]
        if self._lacks_stopped and not problems:
            self._is_behind, self._lacks_stopped, self._goal = True, False, None
        if not self._is_behind:
            return
        if self._goal is None:
            ends = {tp: partition.end for tp, partition in copied.items()}
            known = {tp: end for tp, end in ends.items() if end is not None}
            if len(known) == len(ends):
                self._goal = known
        if self._goal is not None and lag_s < self._close_s:
            # Only partitions that are still copied: one that has stopped never reaches its goal.
            left = self._goal.keys() & copied.keys()
            if all(copied[tp].position >= self._goal[tp] for tp in left):
                self._caught_up(problems)
                return
        self._progress(now, sum(partition.lag or 0 for partition in copied.values()))

    def _look_away(self, away: Mapping[str, RepeatedError]) -> None:
        for cluster in away.keys() - self._away.keys():
            _log.warning(
                "%s: the %s is away, waiting for it: %s",
                self._client_id, cluster, away[cluster].text,
            )  # fmt: skip
        for cluster in self._away.keys() - away.keys():
            _log.warning(
                "%s: the %s is back after %s",
                self._client_id, cluster, duration_text(self._away[cluster].lasted_s),
            )  # fmt: skip
        self._away = dict(away)

    def _caught_up(self, problems: Sequence[str]) -> None:
        copied = f"{counted(self._status.records, 'message')} copied since the start"
        if problems:
            self._is_behind, self._lacks_stopped = False, True
            _log.warning(
                "%s: not caught up: %s, all but what is stopped: %s",
                self._client_id, copied, some_of(problems, separator=". "),
            )  # fmt: skip
            return
        again = " again" if self._has_caught_up else ""
        self._is_behind, self._has_caught_up = False, True
        _log.info("%s: caught up%s: %s", self._client_id, again, copied)

    def _progress(self, now: float, lag: int) -> None:
        if self._line_at is None and self._has_caught_up:
            _log.warning("%s: %d messages behind", self._client_id, lag)
        elif self._line_at is not None:
            if now - self._line_at < LINE_S:
                return
            rate = (self._status.records - self._records) / (now - self._line_at)
            _log.info(
                "%s: %d messages copied since the start, %d behind, %.0f messages/s%s",
                self._client_id, self._status.records, lag, rate,
                f", about {duration_text(lag / rate)} left" if rate and lag else "",
            )  # fmt: skip
        self._line_at, self._records = now, self._status.records
