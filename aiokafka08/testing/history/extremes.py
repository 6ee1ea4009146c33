"""Find the lowest or highest of many values by a key, in logarithmic time. Pure."""
# For each message the checks look up, for example, the lowest offset that was lost by a truncation
# after the message was sent. Without an index, many truncations would take quadratic time.

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Extremes:
    """Index pairs (key, value) by key, to find the extreme values before or after a key."""

    def __init__(self, pairs: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(pairs)
        values = [value for _, value in ordered]
        self._keys = [key for key, _ in ordered]
        self._highest = list(accumulate(values, max))
        self._lowest = list(accumulate(values, min))
        self._lowest_from = list(accumulate(reversed(values), min))[::-1]
        self._highest_from = list(accumulate(reversed(values), max))[::-1]

    def highest_before(self, key: float) -> float:
        """Return the highest value of the keys less than `key`; minus infinity without one."""
        number = bisect_left(self._keys, key)
        return self._highest[number - 1] if number else -math.inf

    def lowest_until(self, key: float) -> float:
        """Return the lowest value of the keys up to and with `key`; infinity without one."""
        number = bisect_right(self._keys, key)
        return self._lowest[number - 1] if number else math.inf

    def lowest_before(self, key: float) -> float:
        """Return the lowest value of the keys less than `key`; infinity without one."""
        number = bisect_left(self._keys, key)
        return self._lowest[number - 1] if number else math.inf

    def lowest_after(self, key: float) -> float:
        """Return the lowest value of the keys greater than `key`; infinity without one."""
        number = bisect_right(self._keys, key)
        return self._lowest_from[number] if number < len(self._keys) else math.inf

    def highest_after(self, key: float) -> float:
        """Return the highest value of the keys greater than `key`; minus infinity without one."""
        number = bisect_right(self._keys, key)
        return self._highest_from[number] if number < len(self._keys) else -math.inf


class RangeMinimum:
    """Index pairs (key, value) by key, to find the lowest value within a range of keys."""

    def __init__(self, pairs: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(pairs)
        self._keys = [key for key, _ in ordered]
        # Row n has the minimum of each 2 ** n consecutive values.
        self._rows = [[value for _, value in ordered]]
        width = 1
        while 2 * width <= len(ordered):
            row = self._rows[-1]
            self._rows.append([min(pair) for pair in zip(row, row[width:], strict=False)])
            width *= 2

    def lowest(self, first: float, last: float) -> float:
        """Return the lowest value of the keys from `first` to `last`; infinity without one."""
        begin, end = bisect_left(self._keys, first), bisect_right(self._keys, last)
        if begin >= end:
            return math.inf
        level = (end - begin).bit_length() - 1
        row = self._rows[level]
        return min(row[begin], row[end - (1 << level)])
