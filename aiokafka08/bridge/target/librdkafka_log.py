"""`LibrdkafkaLog`: pass librdkafka's log on to the bridge's logger.

librdkafka logs an error of a transaction as critical, and returns it to the caller too. The bridge
logs or raises that, so the line of librdkafka is for debugging. Other lines, such as a failed TLS
handshake, may be the only place of a reason: they are warnings. Each client repeats them several
times a second while a cluster is away, so those that differ only in client, thread, broker id and
time are counted.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from aiokafka08._core.limited_log import LimitedLog

_log: Final = logging.getLogger("aiokafka08.bridge.librdkafka")

_RETURNED: Final = frozenset({"FATAL", "TXNERR"})
"""The kinds of lines whose text the caller of librdkafka gets as an error, too."""
_VARYING: Final = re.compile(
    r"^(\[thrd:[^]]*\]: )?(\S+#[a-z]+-\d+: )?|(?<=\d)/\w+(?=:)| \(after .*"
)
"""What differs between clients and attempts: thread, client, id of the broker, and times."""
_limited: Final = LimitedLog(_log)  # of the process: each session has new clients


def close_librdkafka_log() -> None:
    """Log how often lines have come again."""
    _limited.close()


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
        if fitting < logging.WARNING:
            _log.log(fitting, "%s: librdkafka: " + message, self._client_id, *arguments)
            return
        text = message % arguments
        key = _VARYING.sub("", str(arguments[-1])) if arguments else text
        _limited.report(
            (self._client_id, *arguments[:1], key), f"{self._client_id}: librdkafka: {text}"
        )
