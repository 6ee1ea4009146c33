"""Draw points over time as inline SVG, without a script. Pure.

Invariant: an SVG has only numbers and escaped text, and no style attribute, which the pages'
Content-Security-Policy would refuse.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from aiokafka08._tools.console.numbers import exact_text, number_text
from aiokafka08.bridge.wording import duration_text

_MAX_POINTS: Final = 360
_COLUMNS: Final = 60
"""How many places of a chart have a title with the value there."""


def sparkline(points: Sequence[tuple[float, float]], label: str) -> Markup:
    """Return a small line without axes; nothing for fewer than two points."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return Markup("")
    top = max(value for _, value in points) or 1.0
    begin, end = points[0][0], points[-1][0]
    path = " ".join(
        f"{96 * (moment - begin) / (end - begin):.1f},{19 - 17 * max(value, 0.0) / top:.1f}"
        for moment, value in points
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 96 20" role="img" aria-label="{}">'
        '<polyline points="{}"/></svg>'
    ).format(label, path)


def chart(points: Sequence[tuple[float, float]], label: str, unit: str) -> Markup:
    """Return a line with axes, the value axis starting at 0; nothing for fewer than two points.

    Args:
        points: times in seconds since the epoch, and values.
        label: a text for readers who can't see the chart.
        unit: the unit of the values, such as "messages/s".
    """
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return Markup("")
    if len(points) > _MAX_POINTS:
        step = len(points) / _MAX_POINTS
        points = [*(points[int(index * step)] for index in range(_MAX_POINTS)), points[-1]]
    begin, end = points[0][0], points[-1][0]
    most = max(value for _, value in points)
    top = _round_up(most)
    line = " ".join(
        f"{1000 * (moment - begin) / (end - begin):.1f},{100 - 100 * max(value, 0.0) / top:.1f}"
        for moment, value in points
    )
    # Without a script only a title shows the exact value under the pointer.
    hover = Markup("").join(
        Markup(
            '<rect class="hover" x="{}" y="0" width="{}" height="100"><title>{}</title></rect>'
        ).format(
            f"{1000 * column / _COLUMNS:.1f}",
            f"{1000 / _COLUMNS:.1f}",
            f"{_clock(moment)}: {exact_text(value)} {unit}",
        )
        for column in range(_COLUMNS)
        for moment, value in [_nearest(points, begin + (end - begin) * (column + 0.5) / _COLUMNS)]
    )
    return Markup(
        '<figure class="chart" role="img" aria-label="{}">'
        '<div class="scale"><span>{}</span><span>{}</span><span>0</span></div>'
        '<svg viewBox="0 0 1000 100" preserveAspectRatio="none">'
        '<path class="grid" d="M0 0H1000M0 50H1000M0 100H1000"/>'
        '<polygon points="0,100 {line} 1000,100"/><polyline points="{line}"/>{}</svg>'
        "<figcaption><span>{}</span><span>{}</span></figcaption></figure>"
    ).format(
        f"{label}, {duration_text(end - begin)}: now {number_text(points[-1][1])} {unit}, at most "
        f"{number_text(most)}",
        number_text(top),
        number_text(top / 2),
        hover,
        _clock(begin),
        _clock(end),
        line=line,
    )


def _nearest(points: Sequence[tuple[float, float]], moment: float) -> tuple[float, float]:
    """Return the point whose time is nearest."""
    after = bisect_left(points, (moment,))
    around = points[max(after - 1, 0) : after + 1]
    return min(around, key=lambda point: abs(point[0] - moment))


def _round_up(value: float) -> float:
    """Return a round number that isn't smaller: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next((power * factor for factor in (1, 2, 5) if power * factor >= value), power * 10)


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
