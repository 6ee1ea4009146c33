"""The errors of a simulated run, beyond the exceptions of the scenario itself."""

from __future__ import annotations


class SimulationError(Exception):
    """The run asked for something that a simulation doesn't have, or broke one of its rules."""


class WaitsForeverError(SimulationError):
    """Nothing is scheduled any more, or the virtual time limit is over, and a task still waits."""


class LeftoverError(SimulationError):
    """A run left tasks, connections or timers behind."""
