"""Which options and broker lines have a group membership."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError
from aiokafka08.testing import EmbeddedCluster

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1", "0.8.2"])
async def test_subscribe_on_line_without_groups_raises(version: str) -> None:
    async with EmbeddedCluster(1, version, {"t": 1}) as cluster:
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "g",
            "enable_auto_commit": False,
            "offsets_storage": "kafka" if version == "0.8.2" else None,
        }
        with pytest.raises(UnsupportedVersionError, match=r"assign\(\)"):
            await AIOKafkaConsumer("t", **options).start()


def test_strategies_that_are_no_assignors_raise() -> None:
    for wrong in (["range"], [object], [RangePartitionAssignor, RangePartitionAssignor]):
        with pytest.raises(IllegalArgumentError, match="partition_assignment_strategy"):
            AIOKafkaConsumer("t", group_id="g", partition_assignment_strategy=wrong)
