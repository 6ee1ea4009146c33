"""Checks of the arguments of a simulation. Pure.

Invariant: an impossible value raises a ValueError of one line that names the option, its value and
what is expected.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from typing import Final

from aiokafka08.testing.options import check_integer, invalid
from aiokafka08.testing.simulation.network import Network

_SET_BY_THE_WORLD: Final = ("advertised_host", "advertised_port", "port")


def check_simulation(seed: object, network: object, options: dict[str, object]) -> None:
    """Check the arguments of `simulate` that `EmbeddedCluster` doesn't check."""
    check_integer("seed", seed, None)
    if network is not None:
        check_network(network)
    for name in _SET_BY_THE_WORLD:
        if name in options:
            text = "no value: a simulation chooses the names and ports of its brokers"
            raise invalid(name, options[name], text)
    clock = options.get("clock")
    if clock is not None and not callable(clock):
        raise invalid("clock", clock, "None or a function that returns seconds since 1970")


def check_network(network: object) -> None:
    """Check that the value is a `Network`."""
    if not isinstance(network, Network):
        raise invalid("network", network, "a Network, such as Network(latency_ms=(1, 30))")


def check_scenario(function: object) -> None:
    """Check the argument of `World.run`."""
    if inspect.iscoroutine(function):
        # asyncio would warn that it was never awaited.
        function.close()
        raise invalid(
            "function",
            function,
            "the coroutine function itself, not yet called: pass the function and its arguments, "
            "such as run(scenario, 1) for scenario(1)",
        )
    if not callable(function):
        raise invalid("function", function, "a coroutine function")


def check_awaitable(function: object, returned: object) -> None:
    """Check the result of the function of `World.run`."""
    if not asyncio.iscoroutine(returned):
        raise invalid(
            "function", function, f"a coroutine function (async def); it returned {returned!r}"
        )


def check_callback(function: object) -> None:
    """Check the function of `World.call_later`."""
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not callable(plain) or inspect.iscoroutinefunction(plain):
        raise invalid(
            "function", function, "a function that isn't a coroutine function, not yet called"
        )


def check_seconds(name: str, value: object, lowest: float = 0.0) -> None:
    """Check a duration in seconds."""
    if not _is_number(value) or not value >= lowest:  # type: ignore[operator]
        at_least = "" if lowest == -math.inf else f" >= {lowest:g}"
        raise invalid(name, value, f"a finite number of seconds{at_least}")


def check_party(name: str, value: object) -> None:
    """Check the name of a party."""
    if not isinstance(value, str) or not value:
        raise invalid(name, value, 'the name of a party, such as "broker 0" or "client"')


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
