"""`ClientTable`: which clients use the gateway, and which of them need it.

A client is an id, an address and a principal. Its requests are counted by API, version and what
became of them: while there is a translated one, the client needs the gateway for the target.

Invariants:

- Whatever clients send, the table keeps at most `MAX_CLIENTS` of them, those that were seen last,
  and at most `MAX_COUNTED` counts of each.
- Its methods may be called in any thread; what takes long goes on without the lock, for which the
  event loop waits with each request.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka08._core.metrics.metric_family import MetricFamily

MAX_CLIENTS: Final = 10_000
MAX_COUNTED: Final = 100
"""How many APIs and versions of one client are counted one by one; no library uses half of that."""

_NAME_CHARACTERS: Final = 255


class Fate(enum.Enum):
    """What became of a request."""

    PASSED = "passed"
    TRANSLATED = "translated"
    STRANDED = "stranded"  # it has passed; Kafka 4 would refuse it
    REFUSED = "refused"


Counted = tuple[str, int, Fate]
"""The name of an API, a version of it, and what became of the request."""


@dataclass(slots=True, eq=False)
class SeenClient:
    """A client.

    Attributes:
        client_id: its id; "" if it has none.
        address: its IP address.
        principal: its user of SASL, or the subject of its certificate; "" without them.
        first_s: when it was seen first, in seconds since the epoch.
        last_s: when it was seen last.
        software: the name and version of its library, if it has sent them.
        needs_gateway: whether a request was translated.
        requests: how many there were.
    """

    client_id: str
    address: str
    principal: str
    first_s: float
    last_s: float
    software: str = ""
    needs_gateway: bool = False
    requests: Counter[Counted] = field(default_factory=Counter)


class ClientTable:
    """See the module.

    Args:
        clock: returns seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str, str], SeenClient] = {}  # the oldest first
        self._totals: Counter[Counted] = Counter()

    def count(
        self,
        client_id: str | None,
        address: str,
        counted: Counted,
        *,
        software: str = "",
        principal: str = "",
    ) -> None:
        """Count a request; `software` is the library's name, if the request has it."""
        now_s = self._clock()
        key = (
            (client_id or "")[:_NAME_CHARACTERS],
            address,
            principal[:_NAME_CHARACTERS],
        )
        with self._lock:
            client = self._clients.pop(key, None)
            if client is None:
                client = SeenClient(*key, now_s, now_s)
                while len(self._clients) >= MAX_CLIENTS:
                    del self._clients[next(iter(self._clients))]
            self._clients[key] = client
            client.last_s = now_s
            client.needs_gateway |= counted[2] in (Fate.TRANSLATED, Fate.STRANDED)
            if counted not in client.requests and len(client.requests) >= MAX_COUNTED:
                client.requests["others", -1, counted[2]] += 1
            else:
                client.requests[counted] += 1
            if software:
                client.software = software[:_NAME_CHARACTERS]
            self._totals[counted] += 1

    def rows(self) -> list[dict[str, Any]]:
        """Return the clients as values of JSON, those that need the gateway first."""
        with self._lock:
            seen = [replace(one, requests=one.requests.copy()) for one in self._clients.values()]
        seen.sort(key=lambda one: (not one.needs_gateway, one.client_id, one.address))
        return [_row(client) for client in seen]

    def families(self) -> list[MetricFamily]:
        """Return the metrics."""
        requests = MetricFamily(
            "aiokafka08_gateway_requests_total",
            "Requests of clients, by API, version and what became of them.",
            ("api", "version", "fate"),
        )
        clients = MetricFamily(
            "aiokafka08_gateway_clients",
            "Clients that were seen, by whether they need the gateway.",
            ("needs_gateway",),
        )
        with self._lock:
            for (api, version, fate), count in self._totals.items():
                requests.add(count, api, str(version), fate.value)
            needing = sum(client.needs_gateway for client in self._clients.values())
            clients.add(needing, "true")
            clients.add(len(self._clients) - needing, "false")
        return [requests, clients]


def _row(client: SeenClient) -> dict[str, Any]:
    requests: dict[str, dict[str, dict[str, int]]] = {}
    for (api, version, fate), count in sorted(client.requests.items(), key=str):
        requests.setdefault(fate.value, {}).setdefault(api, {})[str(version)] = count
    return {
        "client_id": client.client_id,
        "address": client.address,
        "principal": client.principal,
        "software": client.software,
        "needs_gateway": client.needs_gateway,
        "first_seen": _time(client.first_s),
        "last_seen": _time(client.last_s),
        "requests": requests,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
