"""`LibrdkafkaLog`: pass librdkafka's log on to the bridge's logger.

Invariant: a line is a warning unless the caller gets its text as an error, too. It may be the only
text that has a reason, such as that of a failed TLS handshake.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from aiokafka08._core.limited_log import LimitedLog, later_in_thread

_log: Final = logging.getLogger("aiokafka08.bridge.librdkafka")

# The kinds of lines whose text the caller of librdkafka gets as an error, too. The bridge logs or
# raises that error, so the line is for debugging, although librdkafka logs it as critical.
_RETURNED: Final = frozenset({"FATAL", "TXNERR"})
# The parts that differ between clients and attempts: thread, client, id of the broker, and times.
# Without them lines are equal that each client repeats several times a second during an outage.
_VARYING: Final = re.compile(
    r"^(\[thrd:[^]]*\]: )?(\S+#[a-z]+-\d+: )?|(?<=\d)/\w+(?=:)| \(after .*"
)
_limited: Final = LimitedLog(_log, later_in_thread)  # of the process: each session has new clients


def close_librdkafka_log() -> None:
    """Log how often lines were repeated."""
    _limited.close()


class LibrdkafkaLog:
    """The value of confluent-kafka's setting `logger`; each line begins with `client_id`."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line; confluent-kafka calls it with the kind of the line as the first argument.

        Args:
            level: a level of the module `logging`.
            message: the format of the line.
            arguments: the arguments of the format.
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
