"""`ClientTable`: which clients use the gateway, and which of them need it.

A client is an id, an address, a principal and a listener. Its requests are counted by API, version
and how they were handled (`Fate`). A client with a translated or stranded request needs the
gateway. A worker counts in a table of its own, which the gateway adds to the table of all workers.

Invariants:

- Whatever clients send, the table keeps at most `MAX_CLIENTS` of them, those that were seen last or
  need the gateway. A client has at most `MAX_COUNTED` counts, and one per `Fate` for the others.
- Its methods may be called in any thread. The event loop takes the lock for each request, so no
  long work is done while it is held.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
_CHOSEN: Final = frozenset({"principal", "software"})
"""The fields of a client, besides its id, whose length the client chooses."""
_NAMES: Final = ("client_id", "address", "principal", "listener", "software", "needs_gateway")
"""The fields of a client that come first in its row, with unchanged values."""


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
    """A client with its counts, or counts to add to those of a client.

    Attributes:
        client_id: its id; "" if it has none.
        address: its IP address.
        first_s: when it was seen first, in seconds since the epoch.
        last_s: when it was seen last.
        principal: its user of SASL, or the subject of its certificate; "" without them.
        listener: the name of the listener that it uses; "" for the unnamed one.
        software: the name and version of its library, if it has sent them.
        needs_gateway: whether a request was translated or stranded.
        requests: how many there were.
        messages: how many its translated requests have stored and fetched.
        errors: how many partitions and groups have failed in its translated requests.
    """

    client_id: str
    address: str
    first_s: float
    last_s: float
    principal: str = ""
    listener: str = ""
    software: str = ""
    needs_gateway: bool = False
    requests: dict[Counted, int] = field(default_factory=dict)
    messages: int = 0
    errors: int = 0

    @property
    def key(self) -> Key:
        """The key of the client in the table."""
        return self.client_id, self.address, self.principal, self.listener

    def add(self, more: SeenClient) -> None:
        """Add what was counted of the same client."""
        self.first_s, self.last_s = min(self.first_s, more.first_s), max(self.last_s, more.last_s)
        self.software = more.software or self.software
        self.messages += more.messages
        self.errors += more.errors
        for counted, count in more.requests.items():
            fate = counted[2]
            self.needs_gateway |= fate in (Fate.TRANSLATED, Fate.STRANDED)
            has_room = counted in self.requests or len(self.requests) < MAX_COUNTED
            entry = counted if has_room else ("others", -1, fate)
            self.requests[entry] = self.requests.get(entry, 0) + count


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
        self, client_id: str | None, address: str, counted: Counted | None, **more: Any
    ) -> None:
        """Count a request if `counted` is given; add `more`, other fields of `SeenClient`."""
        now_s = self._clock()
        requests = {} if counted is None else {counted: 1}
        for field_name in more.keys() & _CHOSEN:
            more[field_name] = more[field_name][:_NAME_CHARACTERS]
        name = (client_id or "")[:_NAME_CHARACTERS]
        self.add([SeenClient(name, address, now_s, now_s, requests=requests, **more)], requests)

    def take(self) -> tuple[list[SeenClient], Counter[Counted]]:
        """Remove and return the clients, the oldest first, and how many requests there were."""
        with self._lock:
            taken = list(self._clients.values()), self._totals
            self._clients, self._totals = {}, Counter()
        return taken

    def add(self, clients: Iterable[SeenClient], totals: Mapping[Counted, int]) -> None:
        """Add what `take` of another table has returned."""
        with self._lock:
            for one in clients:
                client = self._clients.pop(one.key, None)
                if client is None:
                    client = replace(one, needs_gateway=False, requests={}, messages=0, errors=0)
                    if len(self._clients) >= MAX_CLIENTS:
                        self._drop_one()
                self._clients[one.key] = client  # it is kept longer than all others
                client.add(one)
            for counted, count in totals.items():
                self._totals[counted] += count

    def _drop_one(self) -> None:
        """Drop the first of the oldest clients that doesn't need the gateway; else the oldest."""
        # So a program that runs once a month stays in the list if it needs the gateway. Only
        # `_LOOKED_AT` are looked at: a client that fills the table with names must not make this
        # slow.
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
        text = "Requests of clients, by API, version and what became of them."
        labels = "api", "version", "fate"
        requests = MetricFamily("aiokafka08_gateway_requests_total", text, labels)
        text = "Clients that were seen, by whether they need the gateway."
        clients = MetricFamily("aiokafka08_gateway_clients", text, ("needs_gateway",))
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
    names = {name: getattr(client, name) for name in _NAMES}
    times = {"first_seen": _time(client.first_s), "last_seen": _time(client.last_s)}
    results = {"messages": client.messages, "errors": client.errors, "requests": requests}
    return {**names, **times, **results}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
