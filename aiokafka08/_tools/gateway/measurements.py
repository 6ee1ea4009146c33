"""`Measurements`: the methods by which the gateway reports its work. Here they do nothing.

The subclass in `metrics` measures for Prometheus.

Invariant: all methods may be called in any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a value for Prometheus, and its labels."""


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

    def login_failed(self, mechanism: str) -> None:
        """Note a failed login of a client by a mechanism; "": by one that isn't known."""

    def take(self) -> Counter[Series]:
        """Return what each value has grown by since the last call."""
        return Counter()


NO_MEASUREMENTS: Final = Measurements()
