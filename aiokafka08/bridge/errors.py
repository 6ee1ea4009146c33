"""The errors of a bridge.

`daemon` retries retriable ones; `BridgeError` and `BridgeFencedError` end the run.
"""

from __future__ import annotations

from aiokafka08.errors import KafkaError


class BridgeError(KafkaError):
    """The bridge has stopped until a change that the error's text names."""


class BridgeFencedError(KafkaError):
    """A newer start of the same bridge has taken over: this process must end, and stay down."""


class TargetError(KafkaError):
    """The target refused a request, or didn't respond."""


class TargetAuthenticationError(TargetError):
    """The target refused the mechanism, the user or the password of `target.properties`."""


class TargetUnavailableError(TargetError):
    """The target can't be reached, or isn't ready: another attempt may succeed."""

    retriable = True


class TargetUnreachableError(TargetUnavailableError):
    """No broker at `target.bootstrap` responds."""


class TargetCoordinatorError(TargetUnavailableError):
    """The coordinator of a group isn't ready, as in the first moments of a target."""
