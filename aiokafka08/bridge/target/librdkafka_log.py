"""`LibrdkafkaLog`: pass librdkafka's log on to the bridge's logger.

librdkafka logs an error of a transaction as critical, and returns it to the caller too. The bridge
logs or raises that, so the line of librdkafka is for debugging. Other lines, such as a failed TLS
handshake, may be the only place of a reason: they are warnings.
"""

from __future__ import annotations

import logging
from typing import Final

_log: Final = logging.getLogger("aiokafka08.bridge.librdkafka")

_RETURNED: Final = frozenset({"FATAL", "TXNERR"})
"""The kinds of lines whose text the caller of librdkafka gets as an error, too."""


class LibrdkafkaLog:
    """The value of confluent-kafka's setting `logger`.

    Args:
        client_id: with which each line begins.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line; confluent-kafka calls it with the kind of the line as the first argument.

        Args:
            level: of the module `logging`.
            message: the format of the line.
            arguments: what the format asks for.
        """
        is_returned = bool(arguments) and arguments[0] in _RETURNED
        fitting = logging.DEBUG if is_returned else min(level, logging.WARNING)
        _log.log(fitting, "%s: librdkafka: " + message, self._client_id, *arguments)
