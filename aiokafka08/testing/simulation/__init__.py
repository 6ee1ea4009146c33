"""Deterministic simulation: the unmodified client and brokers in virtual time, repeatable by seed.

    with simulate(seed=7, brokers=3, version="0.8.2", network=Network(fragment=True)) as world:
        world.run(my_service_scenario)

docs/testing.md explains how to use it.

Invariant: outside this package, its modules import what `testing` may import, and `testing`.
"""

from aiokafka08.testing.simulation.errors import (
    LeftoverError,
    SimulationError,
    WaitsForeverError,
)
from aiokafka08.testing.simulation.network import Network
from aiokafka08.testing.simulation.world import World, simulate

__all__ = [
    "LeftoverError",
    "Network",
    "SimulationError",
    "WaitsForeverError",
    "World",
    "simulate",
]
