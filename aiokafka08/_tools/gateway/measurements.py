"""`Measurements`: what the gateway's work calls to have itself measured; without metrics, nothing.

`metrics` has those for Prometheus. `MeasuredTranslator` measures translations.

Invariant: all may be called in any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08._tools.gateway.translator import TargetFacts, Translator
from aiokafka08.protocol.types import Buffer


class Measurements:
    """Measures nothing."""

    def answered(self, api: str, seconds: float) -> None:
        """Note how long a client has waited for a response."""

    @contextmanager
    def converting(self, api: str, size_bytes: int) -> Iterator[None]:
        """Measure a translation, which is the block."""
        yield

    def upstream_failed(self, node_id: int, kind: str) -> None:
        """Note a failure of a connection to a broker: "connect" or "lost"."""


NO_MEASUREMENTS: Final = Measurements()


class MeasuredTranslator(Translator):
    """Measures what it translates, in both directions.

    Args:
        measurements: where it is noted.
        facts: see `Translator`.
        is_read_committed: see `Translator`.
    """

    def __init__(
        self, measurements: Measurements, facts: TargetFacts, *, is_read_committed: bool
    ) -> None:
        super().__init__(facts, is_read_committed=is_read_committed)
        self._measurements = measurements

    def translate(self, head: RequestHead, frame: memoryview, budget: Budget) -> Translation:
        """See `Translator.translate`."""
        api = apis()[head.key].name
        with self._measurements.converting(api, len(frame)):
            translation = super().translate(head, frame, budget)
        return self._measured(api, translation)

    def _measured(self, api: str, step: Translation) -> Translation:
        def respond(answer: memoryview, budget: Budget) -> list[Buffer] | Translation:
            with self._measurements.converting(api, len(answer)):
                made = step.respond(answer, budget)
            return self._measured(api, made) if isinstance(made, Translation) else made

        return replace(step, respond=respond)
