"""Errors about addresses name the keys of the bridge's file.

with named_addresses("source", config.source):
    await admin.start()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from aiokafka08.bridge.config import SourceConfig, TargetConfig
from aiokafka08.errors import KafkaError
from aiokafka08.properties import shorten

START_TIMEOUT_MS: Final = 5_000
"""How long a client tries to reach a first broker; a run tries again and again."""
_NO_BROKER: Final = "no broker among bootstrap_servers: "


@contextmanager
def named_addresses(
    section: Literal["source", "target"], cluster: SourceConfig | TargetConfig
) -> Iterator[None]:
    """Let errors of the block about an address begin with its key, such as `source.bootstrap`.

    Args:
        section: the section of the file that has the addresses.
        cluster: what the section says.
    """
    try:
        yield
    except KafkaError as error:
        text = error.text
        if text.startswith(_NO_BROKER):
            reasons = text.removeprefix(_NO_BROKER)
            text = (
                f"{section}.bootstrap={shorten(cluster.bootstrap)}: no broker responds: {reasons}"
            )
        elif cluster.zookeeper is not None and text.startswith(f"ZooKeeper {cluster.zookeeper}"):
            text = f"{section}.zookeeper: {text}"
        if text != error.text:
            error.args = tuple(text if one == error.text else one for one in error.args)
        raise
