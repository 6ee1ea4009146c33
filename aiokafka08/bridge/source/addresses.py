"""`named_addresses`: errors of the source's clients name the keys of the bridge's file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka08._core.zookeeper.session import MissingChrootError
from aiokafka08._wording import shorten
from aiokafka08.bridge.config import SourceConfig
from aiokafka08.bridge.errors import BridgeError
from aiokafka08.errors import KafkaError, UnsupportedVersionError

# How long a client tries to reach a first broker; a run tries again and again.
START_TIMEOUT_MS: Final = 5_000
_TOO_NEW: Final = "it is a 4.x (or later) broker"
_INSTEAD: Final = ". Use a current client"
_ARGUMENTS: Final = re.compile(
    r"(?<![\w'\"./-])(zookeeper_connect|zookeeper_check|zookeeper_options|bootstrap_servers)"
    r"(?![\w'\"/-])(?:='([^']*)')?"
)
_KEYS: Final = {"zookeeper_connect": "zookeeper", "bootstrap_servers": "bootstrap"}
_NO_BROKER: Final = "no broker among bootstrap_servers: "


def in_keys(text: str) -> str:
    """Return a text of the source's clients with the file's keys in place of their arguments."""

    def of_argument(found: re.Match[str]) -> str:
        name, value = found.groups()
        key = f"source.{_KEYS.get(name, name)}"
        return key if value is None else f'{key} = "{value}"'

    return _ARGUMENTS.sub(of_argument, text)


@contextmanager
def named_addresses(source: SourceConfig) -> Iterator[None]:
    """Make the errors of the block name keys of the file, the key of a wrong address first.

    Raises:
        BridgeError: the chroot doesn't exist in ZooKeeper, so another attempt doesn't help.
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
        elif isinstance(error, MissingChrootError):
            raise BridgeError(f"source.zookeeper: {in_keys(text)}") from error
        else:
            is_of_zookeeper = source.zookeeper and text.startswith(f"ZooKeeper {source.zookeeper}")
            text = f"{'source.zookeeper: ' if is_of_zookeeper else ''}{in_keys(text)}"
        # The text is changed in place, so that the error keeps its type, its attributes and its
        # traceback.
        if text != error.text:
            error.args = tuple(
                text if argument == error.text else argument for argument in error.args
            )
        raise
