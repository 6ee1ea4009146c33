"""Wait for the results of kazoo requests, which were sent together. Blocks.

Invariant: no wait lasts beyond its deadline, a time of `environment.monotonic()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from aiokafka08 import environment
from aiokafka08.errors import KafkaTimeoutError

K = TypeVar("K")


def result_of(request: Any, deadline: float) -> Any:
    """Return the result of a kazoo request; KafkaTimeoutError at the deadline."""
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        # While ZooKeeper can't be reached, kazoo keeps requests until it is back.
        return request.get(timeout=max(deadline - environment.monotonic(), 0.001))
    except KazooTimeoutError:
        raise KafkaTimeoutError("ZooKeeper doesn't respond in time") from None


def results_of(requests: Mapping[K, Any], deadline: float) -> dict[K, Any]:
    """Return the results of kazoo requests, those about missing nodes left out."""
    from kazoo.exceptions import NoAuthError, NoNodeError

    wait_for_last(requests, deadline)
    results = {}
    for key, request in requests.items():
        try:
            results[key] = result_of(request, deadline)
        except NoNodeError:
            pass
        except NoAuthError:
            # kazoo doesn't always name the node.
            raise NoAuthError(*([key] if isinstance(key, str) else [])) from None
    return results


def wait_for_last(requests: Mapping[K, Any], deadline: float) -> None:
    """Wait until the last of these requests has a result, or until the deadline."""
    # Its response comes last, so the thread isn't woken by each of the others.
    if requests:
        next(reversed([*requests.values()])).wait(max(deadline - environment.monotonic(), 0.001))
