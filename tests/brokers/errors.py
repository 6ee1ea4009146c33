"""Errors of the harness for real brokers: a broken environment or broker, never a broken client.

Each message says what to do, or shows the end of a log.
"""

from __future__ import annotations


class HarnessError(Exception):
    """An operation on a real cluster failed."""


class HarnessTimeoutError(HarnessError, TimeoutError):
    """A condition of a real cluster was not met before the deadline."""


class MissingToolError(HarnessError):
    """Java or Maven is not installed, so that no real broker can run on this machine."""


class UnsupportedByBrokerError(HarnessError):
    """The broker version doesn't have a feature (topic configs in 0.8.0, ZooKeeper in 4.x, ...)."""
