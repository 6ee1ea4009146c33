"""A real and a simulated ZooKeeper, each as an `Ensemble` that opens clients and disturbs them."""

from __future__ import annotations

import heapq
import itertools
import socket
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient

from aiokafka08.testing.simulation.zookeeper import SimulatedZookeeper
from aiokafka08.testing.simulation.zookeeper_client import SimulatedKazooClient
from aiokafka08.testing.state import ClusterState
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.waiting import wait_for
from tests.support.names import unique_name

SESSION_S = 4.0


class Ensemble(Protocol):
    """What a test needs of a ZooKeeper."""

    root: str
    """Path of a node that no other test uses."""

    def client(self) -> Any:
        """Return a started client."""

    def break_connection(self, client: Any) -> None:
        """Close the client's connection; its session goes on."""

    def end_session(self, client: Any) -> None:
        """End the client's session; the client isn't told."""

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Let time pass until the condition is true."""


class RealEnsemble:
    def __init__(self, connect: str) -> None:
        self.root = "/" + unique_name("contract")
        self._connect = connect
        self._clients: list[Any] = []

    def client(self, client_id: object = None) -> Any:
        client = KazooClient(self._connect, timeout=SESSION_S, client_id=client_id)
        client.start()
        self._clients.append(client)
        return client

    def break_connection(self, client: Any) -> None:
        client._connection._socket.shutdown(socket.SHUT_RDWR)

    def end_session(self, client: Any) -> None:
        self.client(client.client_id).stop()

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_for(lambda: bool(condition()), 30, "what the test waits for")

    def close(self) -> None:
        for client in self._clients:
            client.stop()
            client.close()


class _Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class SimulatedEnsemble:
    """The simulated server on a clock of its own, which `wait_for` advances."""

    root = "/contract"

    def __init__(self) -> None:
        self.server = SimulatedZookeeper(self, lambda: 1e9 + self._now, self._spend)
        self.spent_s = 0.0
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Timer:
        timer = _Timer(lambda: callback(*args))
        heapq.heappush(self._timers, (self._now + delay, next(self._numbers), timer))
        return timer

    def _spend(self, seconds: float) -> None:
        self.spent_s += seconds

    def client(self) -> Any:
        client = SimulatedKazooClient(self.server, timeout=SESSION_S)
        client.start()
        return client

    def break_connection(self, client: Any) -> None:
        self.server.disconnect(0, [client])

    def end_session(self, client: Any) -> None:
        self.server.expire(client)

    def wait_for(self, condition: Callable[[], object]) -> None:
        end = self._now + 60
        while not condition():
            assert self._now < end, "nothing has made the condition true"
            self.step()

    def step(self) -> None:
        self._now, _, timer = heapq.heappop(self._timers)
        if timer.callback is not None:
            timer.callback()

    def sleep(self, seconds: float) -> None:
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.step()
        self._now = end


class StateOnly:
    """A cluster of which only the state exists."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def _call(self, act: Callable[[Any], None]) -> None:
        act(None)


RELEASE = "0.8.2.2"
"""The release of the real clusters; `tests.support.schedule` runs their tests beside others."""

simulated_and_real = pytest.fixture(
    params=["simulated", pytest.param(RELEASE, marks=pytest.mark.real, id="real")]
)
"""A fixture with a parameter for each of both."""


@simulated_and_real
def ensemble(request: pytest.FixtureRequest) -> Iterator[Ensemble]:
    if request.param == "simulated":
        yield SimulatedEnsemble()
        return
    clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
    real = RealEnsemble(clusters.get(RELEASE).zookeeper_connect)
    try:
        yield real
    finally:
        real.close()
