"""Defaults of options that a program written for aiokafka can't pass: `compat.install()` sets them.

Consumer and admin client call `default_of` for an option that isn't given. Without `install()`
there are no defaults here. The default of `headers` is always that of the environment, see
`embedded_headers`.

Invariant: only `compat` changes the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

_defaults: dict[str, str] = {}


def default_of(option: str, given: str | None) -> str | None:
    """Return `given`, or the default of the option if that is None; None if there is no default."""
    return _defaults.get(option) if given is None else given


def set_defaults(defaults: Mapping[str, str]) -> None:
    """Replace all defaults."""
    _defaults.clear()
    _defaults.update(defaults)
