"""Which store the options ask for."""

from __future__ import annotations

from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.offset_store import OffsetStore
from aiokafka08.consumer.offset_store.none import NoOffsetStore
from aiokafka08.consumer.standing import Standing
from aiokafka08.errors import IllegalOperation, UnsupportedVersionError
from aiokafka08.net.router import Router


def choose_offset_store(config: ConsumerConfig, router: Router, standing: Standing) -> OffsetStore:
    """The store for these options.

    Raises:
        UnsupportedVersionError: they ask for one that isn't there.
    """
    if config.group_id is None:
        return NoOffsetStore(IllegalOperation("committed offsets belong to a group: set group_id"))
    refusal = UnsupportedVersionError(
        f"group_id={config.group_id!r}: this version of aiokafka08 doesn't commit offsets yet. "
        "Keep positions yourself: position() and seek()"
    )
    if config.enable_auto_commit:
        raise UnsupportedVersionError(
            f"{refusal.text}, and set enable_auto_commit=False (or leave group_id out)"
        )
    return NoOffsetStore(refusal)
