"""Findings about a failed authentication. Pure.

Invariant: each kind of failure has a code of its own, and an action also where the error has none.
"""

from __future__ import annotations

from typing import Final

from aiokafka08._core.sasl.failure import FailureKind, failures_of
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.findings import in_order
from aiokafka08.errors import KafkaError

_CODES: Final = {
    FailureKind.KEYTAB: FindingCode.KEYTAB,
    FailureKind.TICKET: FindingCode.TICKET,
    FailureKind.CLIENT_PRINCIPAL: FindingCode.CLIENT_PRINCIPAL,
    FailureKind.BROKER_PRINCIPAL: FindingCode.BROKER_PRINCIPAL,
    FailureKind.CLOCK: FindingCode.CLOCK,
    FailureKind.REALM: FindingCode.REALM,
    FailureKind.KDC: FindingCode.KDC,
    FailureKind.MECHANISM: FindingCode.MECHANISM,
    FailureKind.LISTENER: FindingCode.LISTENER,
    FailureKind.REFUSED: FindingCode.REFUSED,
}

_ACTIONS: Final = {
    FailureKind.CLIENT_PRINCIPAL: "Give the principal a new key, and export its keytab again",
    FailureKind.KDC: "Check that the KDC that krb5.conf names for the realm runs, that its port "
    "(88) can be reached from here, and KRB5_CONFIG",
}
_OTHER_ACTION: Final = (
    "Check the user and its password, keytab or token. The broker's log has the reason"
)


def authentication_findings(error: KafkaError) -> list[Finding]:
    """Return a finding for each authentication failure in the error of a client's start.

    None if the client failed for another reason.
    """
    # No broker has let the client in, so nothing else of the cluster is known, and no other rule
    # applies.
    return in_order(
        Finding(
            _CODES[failure.kind],
            "client",
            "no broker lets the client in, and nothing else was looked at: "
            + error.text.removesuffix(f". {failure.remedy}"),
            failure.remedy or _ACTIONS.get(failure.kind, _OTHER_ACTION),
        )
        for failure in failures_of(error)
    )
