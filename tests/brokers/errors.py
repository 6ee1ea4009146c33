"""The errors of the harness: a broken environment or a broken broker, never a broken client.

Each message says what to do or shows the tail of the log; nothing here is caught silently.
"""

from __future__ import annotations


class HarnessError(Exception):
    """A real cluster could not be started, changed or asked."""


class HarnessTimeoutError(HarnessError, TimeoutError):
    """Something that must come true in a real cluster did not, within its deadline."""


class MissingToolError(HarnessError):
    """Java or Maven is not installed, so no real broker can run on this machine."""


class UnsupportedByBrokerError(HarnessError):
    """This broker version has no such feature (topic configs on 0.8.0, ZooKeeper on 4.x, ...)."""
