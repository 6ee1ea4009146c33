"""Why an authentication failed, as a value beside the text: the doctor makes findings of it. Pure.

Invariant: the text of an error with a remedy ends with it, as `described()` makes it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aiokafka08.errors import KafkaError


class FailureKind(enum.Enum):
    """What is missing or wrong."""

    KEYTAB = "the keytab can't be read, or lacks the principal's key"
    TICKET = "there is no valid ticket"
    CLIENT_PRINCIPAL = "the KDC doesn't know the client's principal, or its key has expired"
    BROKER_PRINCIPAL = "the KDC doesn't know the broker's principal"
    CLOCK = "the clocks differ too much"
    REALM = "krb5.conf doesn't know the realm"
    KDC = "no KDC of the realm responds"
    MECHANISM = "the broker doesn't offer the mechanism"
    LISTENER = "the port isn't a SASL listener"
    REFUSED = "the broker refuses, or says no reason"


@dataclass(frozen=True, slots=True)
class SaslFailure:
    """What an error about an authentication has in its `args`."""

    kind: FailureKind  # what is missing or wrong
    # What to do about it; the error's text ends with it. "": the text says nothing.
    remedy: str = ""

    def described(self, reason: str) -> str:
        """Return the text of an error: the reason, and what to do."""
        return f"{reason}. {self.remedy}" if self.remedy else reason


def failures_of(error: KafkaError) -> list[SaslFailure]:
    """Return the failures behind an error: none, or one for each kind of address that failed."""
    return [arg for arg in error.args if isinstance(arg, SaslFailure)]
