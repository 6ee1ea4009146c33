"""`Translator`: translate the requests of one client that have old versions.

`old_produce`, `old_fetch` and `old_offsets` translate; here is which of them gets a request, and
what is remembered of the client. `handler` has one for each connection.
"""

from __future__ import annotations

from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.old_fetch import FetchPositions, translate_fetch
from aiokafka08._tools.gateway.old_offsets import (
    translate_list_offsets,
    translate_offset_commit,
    translate_offset_fetch,
)
from aiokafka08._tools.gateway.old_produce import translate_produce
from aiokafka08._tools.gateway.translation import Translation
from aiokafka08.protocol.api import ApiKey


class Translator:
    """See the module.

    Args:
        is_read_committed: whether clients get no records of aborted and open transactions.
    """

    def __init__(self, *, is_read_committed: bool) -> None:
        self._is_read_committed = is_read_committed
        self._positions = FetchPositions()

    def translate(self, head: RequestHead, frame: memoryview) -> Translation:
        """Translate a request of a version in `api_versions.TRANSLATED`. It may take long.

        Raises:
            KafkaProtocolError: the request isn't whole, or that of a replica.
        """
        match head.key:
            case ApiKey.PRODUCE:
                return translate_produce(head, frame)
            case ApiKey.FETCH:
                return translate_fetch(
                    head, frame, self._positions, is_read_committed=self._is_read_committed
                )
            case ApiKey.LIST_OFFSETS:
                return translate_list_offsets(head, frame)
            case ApiKey.OFFSET_COMMIT:
                return translate_offset_commit(head, frame)
            case _:
                return translate_offset_fetch(head, frame)
