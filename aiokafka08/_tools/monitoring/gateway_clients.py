"""The clients of a gateway that runs elsewhere, by its page `/clients`, for command and console."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aiokafka08._tools.monitoring.served_pages import fetch
from aiokafka08.errors import KafkaConnectionError

SERVED: Final = "a gateway serves by --metrics"
FATES: Final = ("translated", "stranded", "passed", "refused")


def fetch_clients(base: str, timeout_s: float) -> list[dict[str, Any]]:
    """Return the clients, with their requests by fate as texts; blocks.

    Args:
        base: the address of the gateway's metrics, without a path.
        timeout_s: how long to wait for it.

    Raises:
        KafkaConnectionError: no gateway serves there.
    """
    try:
        return [_row(one) for one in json.loads(fetch(f"{base}/clients", SERVED, timeout_s))]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        text = f"{error}; expected the address that {SERVED}"
        raise KafkaConnectionError(f"{base}/clients: {text}") from None


def _row(client: Mapping[str, Any]) -> dict[str, Any]:
    requests = {
        fate: [
            f"{api} {version}: {count}"
            for api, versions in client["requests"].get(fate, {}).items()
            for version, count in versions.items()
        ]
        for fate in FATES
    }
    return {**client, **requests}
