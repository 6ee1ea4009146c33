"""What `follow` makes of a consumer's errors; the commands show the rest."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.cli.moving.positions import OffsetSpan
from aiokafka08.cli.moving.read_plan import PartitionRange
from aiokafka08.cli.moving.read_records import follow
from aiokafka08.errors import OffsetOutOfRangeError
from aiokafka08.structs import TopicPartition

TP = TopicPartition("orders", 3)


class OvertakenConsumer:
    """A consumer whose log is truncated at once."""

    def assign(self, tps: list[TopicPartition]) -> None:
        assert tps == [TP]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.offset = offset

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {TP.partition}

    async def getmany(self, **options: Any) -> Any:
        raise OffsetOutOfRangeError({TP: self.offset}, "... seek() to an offset in the log")


async def test_lost_offset_is_named_in_words_of_the_command_line() -> None:
    consumer = cast("AIOKafkaConsumer[bytes, bytes]", OvertakenConsumer())
    with pytest.raises(OffsetOutOfRangeError) as raised:
        async for _ in follow(consumer, [PartitionRange(TP, 7, None, OffsetSpan(0, 9))]):
            pass
    text = raised.value.text
    assert text.startswith("topic 'orders', partition 3: the log has lost offset 7 before")
    assert text.endswith("go on with --from")
