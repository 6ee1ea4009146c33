"""Read what the `MetricsEndpoint` of another process serves: its metrics, health and lists."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from aiokafka08.errors import IllegalArgumentError, KafkaConnectionError

_MAX_BYTES: Final = 64_000_000

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]
"""The labels and values of each metric."""


def endpoint_url(url: str, expected: str) -> str:
    """Return the address of an endpoint without a path.

    Args:
        url: "HOST:PORT", or a URL of one of its pages.
        expected: the end of the error text "expected http://HOST:PORT that …", such as "a gateway
            serves by --metrics".

    Raises:
        IllegalArgumentError: `url` is neither.
    """
    full = url if "://" in url else f"http://{url}"
    if not full.startswith(("http://", "https://")):
        raise IllegalArgumentError(f"URL {full}: expected http://HOST:PORT that {expected}")
    for path in ("/clients", "/metrics", "/healthz"):
        full = full.rstrip("/").removesuffix(path)
    return full


def fetch(url: str, expected: str, timeout_s: float) -> bytes:
    """Return the body of a page, even if the status is 503. The call blocks its thread.

    Raises:
        KafkaConnectionError: nothing serves it.
    """
    try:
        try:
            with urllib.request.urlopen(url, timeout=timeout_s) as page:
                body: bytes = page.read(_MAX_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
                return error.read(_MAX_BYTES)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise KafkaConnectionError(
            f"{url}: {reason}; expected the address that {expected}"
        ) from None
    return body


def samples_of(text: bytes) -> Samples:
    """Return the metrics of a page; raises ValueError if it has something else."""
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples
