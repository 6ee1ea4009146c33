"""The interface of the SASL mechanisms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator

from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.sasl.failure import FailureKind
from aiokafka08.errors import KafkaConfigurationError

Steps = Generator[bytes, bytes, bytes | None]
"""The client's side of one authentication: it yields a token, and receives the broker's next one.

The generator returns None if the broker sends the last token. If the client sends it, the generator
returns that token; only in SaslAuthenticate does the broker respond to it. The generator raises
`AuthenticationFailedError` if the broker's token is wrong, and `KafkaConnectionError` if a failure
may pass, such as a KDC that can't be reached."""


class Mechanism(ABC):
    """A mechanism with its credentials, for all connections of a client."""

    name: str  # the name that SaslHandshake sends
    description: str  # mechanism and user, for errors; without secrets
    starts_raw: bool  # brokers from 0.8.2 (HDP) to 3.9 accept its tokens without SaslHandshake
    thread: DaemonThread | None = None  # runs the steps, which may take long; None: they don't
    # What a timeout says while the client's next token isn't ready
    wait: str = "the client's token isn't ready"
    # The kind of that timeout; None: the program, not Kafka or a KDC, is late with the token
    wait_kind: FailureKind | None = None
    hint: str  # what to check if the broker refuses without a reason
    refusal_hint: str = ""  # for the error, after the broker's reason, if that says little

    @property
    def principal(self) -> str | None:
        """The client's principal at the broker; None if the client doesn't know it."""
        return None

    @abstractmethod
    async def begin(self, host: str) -> Steps:
        """Begin the authentication on a connection to the broker at `host`."""

    async def renew(self) -> float:
        """Renew credentials if it is time; return the seconds until the next time."""
        return math.inf


def missing_extra(
    mechanism: str, package: str, extra: str, hint: str = ""
) -> KafkaConfigurationError:
    """Return the error for a mechanism whose package isn't installed."""
    return KafkaConfigurationError(
        f"sasl_mechanism={mechanism!r}: needs the package {package}. Install it: pip install "
        f"'aiokafka08[{extra}]'{hint}"
    )
