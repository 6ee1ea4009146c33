"""`check()`: judge a history. Pure; each check takes O(n log n) for n messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from aiokafka08.testing.history import calls, delivery, order
from aiokafka08.testing.history import group_checks as groups
from aiokafka08.testing.history.logs import History
from aiokafka08.testing.history.operations import Anomaly, Operation

# Kafka promises nothing about these: messages of other writers may be between those of one call.
NORMAL: Final = frozenset({"int-send-skip"})

_CHECKS: Final = (*calls.CHECKS, *delivery.CHECKS, *order.CHECKS, *groups.CHECKS)


def check(
    operations: Iterable[Operation],
    *,
    allow: Collection[str] = NORMAL,
    late_s: float = 1.0,
) -> list[Anomaly]:
    """Return the violations that a history proves; an empty list without any.

    Args:
        operations: the history, in any order.
        allow: names of anomalies that are left out (default `NORMAL`: "int-send-skip").
        late_s: by how many seconds a call may exceed its deadline (default 1.0).

    Raises:
        ValueError: two sends have the same value for a partition; or an operation has an unknown
            status, a misspelt call, or times that aren't in order.
        TypeError: an operation has a field of a wrong type; or `allow` is a str.
    """
    if isinstance(allow, str):
        raise TypeError(f"allow={allow!r}: expected a collection of names, not a str")
    history = History(operations)
    anomalies = [anomaly for find_anomalies in _CHECKS for anomaly in find_anomalies(history)]
    anomalies += calls.late_calls(history, late_s)
    return [anomaly for anomaly in anomalies if anomaly.name not in allow]


def report(anomalies: Iterable[Anomaly], most: int = 5) -> str:
    """Return a text for an assertion: each name with its number, then the first witnesses.

    Args:
        anomalies: the result of `check()`.
        most: how many anomalies of a name are shown with their witnesses (default 5).
    """
    by_name: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        by_name.setdefault(anomaly.name, []).append(anomaly)
    heads = ", ".join(f"{name} × {len(of_name)}" for name, of_name in by_name.items())
    return "\n".join(
        [heads, *(str(anomaly) for of_name in by_name.values() for anomaly in of_name[:most])]
    )
