"""Errors about addresses name the keys of the bridge's file.

with named_addresses(config.source):
    await admin.start()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka08._core.properties import shorten
from aiokafka08.bridge.config import SourceConfig
from aiokafka08.errors import KafkaError, UnsupportedVersionError

START_TIMEOUT_MS: Final = 5_000
"""How long a client tries to reach a first broker; a run tries again and again."""
_TOO_NEW: Final = "it is a 4.x (or later) broker"
_INSTEAD: Final = ". Use a current client"
_NO_BROKER: Final = "no broker among bootstrap_servers: "


@contextmanager
def named_addresses(source: SourceConfig) -> Iterator[None]:
    """Let errors of the block about an address begin with its key, such as `source.bootstrap`.

    Args:
        source: the section of the file that has the addresses.
    """
    try:
        yield
    except KafkaError as error:
        text = error.text
        if text.startswith(_NO_BROKER):
            reasons = text.removeprefix(_NO_BROKER)
            text = f"source.bootstrap={shorten(source.bootstrap)}: no broker responds: {reasons}"
        elif isinstance(error, UnsupportedVersionError) and _TOO_NEW in text:
            too_new = text.partition(_INSTEAD)[0]
            text = (
                f"source.bootstrap={shorten(source.bootstrap)}: {too_new}. Are the source and the "
                "target swapped? [source] is the old cluster, from which the bridge copies"
            )
        elif source.zookeeper is not None and text.startswith(f"ZooKeeper {source.zookeeper}"):
            text = f"source.zookeeper: {text}".replace(
                "zookeeper_check='warn'", 'source.zookeeper_check = "warn"'
            )
        if text != error.text:
            error.args = tuple(
                text if argument == error.text else argument for argument in error.args
            )
        raise
