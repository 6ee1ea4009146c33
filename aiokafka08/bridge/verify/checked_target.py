"""Read the committed messages in a range of a target partition, for a `SequenceCheck`.

Invariant: each committed message of the range comes once, in the order of the offsets. Markers and
aborted messages don't come.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any, Final

from aiokafka08._wording import partition_name
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.verify.sequence_check import Portion
from aiokafka08.structs import TopicPartition

_PORTION_RECORDS: Final = 4096
_POLL_S: Final = 0.2
_NO_PROGRESS_S: Final = 60.0


class TargetChecksums:
    """Reads one partition of the target at a time."""

    def __init__(self, target: Target, config: BridgeConfig) -> None:
        self._target, self._config = target, config
        self._consumer: Any = None

    async def close(self) -> None:
        """Close the consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await self._target.call("leave the target", consumer.close)

    async def read(self, tp: TopicPartition, start: int, end: int) -> AsyncGenerator[Portion, None]:
        """Yield the messages from `start` to before `end`, in portions.

        Raises:
            TargetError: the target doesn't respond, or no longer has `start`.
        """
        action = f"read {partition_name(tp)} of the target"
        if start >= end:
            return
        if self._consumer is None:
            self._consumer = self._make_consumer()
        place = self._target.confluent.TopicPartition(*tp, start)
        await self._target.call(action, self._consumer.assign, [place])
        is_complete, idle_since = False, time.monotonic()
        while not is_complete:
            portion, is_complete = await self._target.call(action, self._portion, end)
            if portion:
                idle_since = time.monotonic()
                yield portion
            elif time.monotonic() - idle_since > _NO_PROGRESS_S:
                raise TargetUnavailableError(
                    f"{action}: no progress for {_NO_PROGRESS_S:.0f} s in front of offset {end}"
                )

    def _make_consumer(self) -> Any:
        return self._target.confluent.Consumer(
            {
                **self._target.settings,
                # Without a group librdkafka makes no consumer; nothing is committed for it.
                "group.id": self._config.position_group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "queued.max.messages.kbytes": 16 * 1024,
            }
        )

    def _portion(self, end: int) -> tuple[Portion, bool]:
        """Return a portion, and whether it is the last one; blocks, so it runs in a thread."""
        confluent = self._target.confluent
        portion = Portion()
        for message in self._consumer.consume(_PORTION_RECORDS, _POLL_S):
            if (error := message.error()) is not None:
                if error.code() == confluent.KafkaError._PARTITION_EOF:
                    return portion, True
                raise confluent.KafkaException(error)
            if message.offset() >= end:
                return portion, True
            portion.add(message.offset(), message.key(), message.value(), message.timestamp()[1])
        return portion, bool(portion) and portion.offsets[-1] + 1 >= end
