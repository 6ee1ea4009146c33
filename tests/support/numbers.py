"""Integers that are no `int`, as numpy's are, without numpy."""

from __future__ import annotations


class ForeignInteger:
    """A number of another library: `operator.index()` accepts it, `isinstance(…, int)` doesn't."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


class ForeignArray:
    """Several numbers in one object, which has the method, but is no number."""

    def __index__(self) -> int:
        raise TypeError("only arrays of one number can be converted")
