"""`ClientTable`: which clients use the gateway, and which of them need it.

A client is an id, an address, a principal and a listener. Its requests are counted by API, version
and how they were handled (`Fate`). A client with a translated request needs the gateway. A worker
counts in a table of its own, which the gateway adds to the table of all workers.

Invariants:

- Whatever clients send, the table keeps at most `MAX_CLIENTS` of them, those that were seen last or
  need the gateway, and at most `MAX_COUNTED` counts of each.
- Its methods may be called in any thread. The event loop takes the lock for each request, so no
  long work is done while it is held.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from aiokafka08 import environment
from aiokafka08._core.metrics.metric_family import MetricFamily

MAX_CLIENTS: Final = 10_000
_LOOKED_AT: Final = 1000  # how many of the oldest clients are looked at to make room for another
MAX_COUNTED: Final = 100
"""How many APIs and versions of one client are counted one by one; no library uses half of that."""

_NAME_CHARACTERS: Final = 255


class Fate(enum.Enum):
    """How a request was handled."""

    PASSED = "passed"
    TRANSLATED = "translated"
    STRANDED = "stranded"  # it has passed; Kafka 4 would refuse it
    REFUSED = "refused"


Counted = tuple[str, int, Fate]
"""The name of an API, a version of it, and how the request was handled."""


Key = tuple[str, str, str, str]
"""Id, address, principal and listener; see `SeenClient`."""


@dataclass(slots=True, eq=False)
class SeenClient:
    """A client.

    Attributes:
        client_id: its id; "" if it has none.
        address: its IP address.
        principal: its user of SASL, or the subject of its certificate; "" without them.
        listener: the name of the listener that it uses; "" for the unnamed one.
        first_s: when it was seen first, in seconds since the epoch.
        last_s: when it was seen last.
        software: the name and version of its library, if it has sent them.
        needs_gateway: whether a request was translated.
        requests: how many there were.
        messages: how many its translated requests have stored and fetched.
        errors: how many partitions and groups of these have failed.
    """

    client_id: str
    address: str
    principal: str
    listener: str
    first_s: float
    last_s: float
    software: str = ""
    needs_gateway: bool = False
    requests: Counter[Counted] = field(default_factory=Counter)
    messages: int = 0
    errors: int = 0

    @property
    def key(self) -> Key:
        """The key of the client in the table."""
        return self.client_id, self.address, self.principal, self.listener

    def add(self, counted: Counted, count: int = 1) -> None:
        """Add requests."""
        self.needs_gateway |= counted[2] in (Fate.TRANSLATED, Fate.STRANDED)
        if counted not in self.requests and len(self.requests) >= MAX_COUNTED:
            counted = ("others", -1, counted[2])
        self.requests[counted] += count


class ClientTable:
    """See the module.

    Args:
        clock: returns seconds since the epoch (default: the environment's).
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or (lambda: environment.wall_time_ms() / 1000)
        self._lock = threading.Lock()
        self._clients: dict[Key, SeenClient] = {}  # the oldest first
        self._totals: Counter[Counted] = Counter()

    def count(
        self,
        client_id: str | None,
        address: str,
        counted: Counted | None,
        *,
        software: str = "",
        principal: str = "",
        listener: str = "",
        messages: int = 0,
        errors: int = 0,
    ) -> None:
        """Count a request, or its messages and errors; see `SeenClient`."""
        now_s = self._clock()
        names = (client_id or "")[:_NAME_CHARACTERS], address, principal[:_NAME_CHARACTERS]
        with self._lock:
            client = self._newest((*names, listener), now_s)
            client.last_s = now_s
            client.messages += messages
            client.errors += errors
            if software:
                client.software = software[:_NAME_CHARACTERS]
            if counted is not None:
                client.add(counted)
                self._totals[counted] += 1

    def take(self) -> tuple[list[SeenClient], Counter[Counted]]:
        """Remove and return the clients, the oldest first, and how many requests there were."""
        with self._lock:
            taken = list(self._clients.values()), self._totals
            self._clients, self._totals = {}, Counter()
        return taken

    def add(self, clients: Iterable[SeenClient], totals: Counter[Counted]) -> None:
        """Add what `take` of another table has returned."""
        with self._lock:
            for one in clients:
                client = self._newest(one.key, one.first_s)
                client.first_s = min(client.first_s, one.first_s)
                client.last_s = max(client.last_s, one.last_s)
                client.software = one.software or client.software
                client.messages += one.messages
                client.errors += one.errors
                for counted, count in one.requests.items():
                    client.add(counted, count)
            self._totals.update(totals)

    def _newest(self, key: Key, now_s: float) -> SeenClient:
        """Return a client, added if it is new, and make it the last to be dropped."""
        client = self._clients.pop(key, None)
        if client is None:
            client = SeenClient(*key, now_s, now_s)
            while len(self._clients) >= MAX_CLIENTS:
                self._drop_one()
        self._clients[key] = client
        return client

    def _drop_one(self) -> None:
        """Drop the oldest client; one that doesn't need the gateway, if one is among the oldest."""
        # So a program that runs once a month stays in the list if it needs the gateway. Only
        # `_LOOKED_AT` are looked at, because any client can fill the table with names.
        oldest = list(islice(self._clients.values(), _LOOKED_AT))
        dropped = next((one for one in oldest if not one.needs_gateway), oldest[0])
        del self._clients[dropped.key]

    def rows(self) -> list[dict[str, Any]]:
        """Return the clients as values of JSON, those that need the gateway first."""
        with self._lock:
            seen = [replace(one, requests=one.requests.copy()) for one in self._clients.values()]
        seen.sort(key=lambda one: (not one.needs_gateway, *one.key))
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
        "listener": client.listener,
        "software": client.software,
        "needs_gateway": client.needs_gateway,
        "first_seen": _time(client.first_s),
        "last_seen": _time(client.last_s),
        "messages": client.messages,
        "errors": client.errors,
        "requests": requests,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
