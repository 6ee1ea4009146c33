"""`Translator`: translate the requests of one client that have old versions.

`old_produce`, `old_fetch` and `old_offsets` translate; here is which of them gets a request, and
what is remembered of the client and of the target. `translated_requests` has one for each
connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.batch_limits import BatchLimits
from aiokafka08._tools.gateway.coordinators import Coordinators
from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.old_fetch import FetchPositions, translate_fetch
from aiokafka08._tools.gateway.old_offsets import (
    ListedVersions,
    translate_list_offsets,
    translate_offsets,
)
from aiokafka08._tools.gateway.old_produce import translate_produce
from aiokafka08._tools.gateway.remembered import Remembered
from aiokafka08._tools.gateway.topic_creation import remembered_creation
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.protocol.api import ApiKey


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What was learnt of the target; one for all connections of a gateway."""

    limits: BatchLimits = field(default_factory=BatchLimits)
    coordinators: Coordinators = field(default_factory=Coordinators)
    creation: Remembered[int, bool] = field(default_factory=remembered_creation)


class Translator:
    """See the module.

    Args:
        facts: those of the gateway.
        is_read_committed: whether clients get no records of aborted and open transactions.
    """

    def __init__(self, facts: TargetFacts, *, is_read_committed: bool) -> None:
        self._facts = facts
        self._is_read_committed = is_read_committed
        self._positions = FetchPositions()
        self._listed_versions = ListedVersions()

    def forget_coordinators_at(self, broker: Address) -> None:
        """Note that a broker can't be reached."""
        self._facts.coordinators.forget_value(broker)

    def translate(self, head: RequestHead, frame: memoryview, budget: Budget) -> Translation:
        """Translate a request of a version in `api_versions.TRANSLATED`. It may take long.

        Raises:
            KafkaProtocolError: the request isn't whole.
            TakesLongError: see `Budget`.
        """
        match head.key:
            case ApiKey.PRODUCE:
                return translate_produce(head, frame, self._facts.limits, budget)
            case ApiKey.FETCH:
                return translate_fetch(
                    head, frame, self._positions, is_read_committed=self._is_read_committed
                )
            case ApiKey.LIST_OFFSETS:
                return translate_list_offsets(head, frame, self._listed_versions)
            case _:
                return translate_offsets(head, frame, self._facts.coordinators)
