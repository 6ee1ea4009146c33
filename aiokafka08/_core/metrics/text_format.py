"""Write metric families in the text format of Prometheus, version 0.0.4.

Pure. The exporter writes up to hundreds of thousands of series in each refresh. prometheus-client
takes 9 µs for each, which would be the larger part of a refresh; this takes 2 µs. A test compares
the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from aiokafka08._core.metrics.metric_family import MetricFamily

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def write_text(families: Iterable[MetricFamily]) -> bytes:
    """Return the families as text."""
    lines: list[str] = []
    # Families of the same labels have mostly the same series: their label texts are made once.
    texts: dict[Sequence[str], dict[Sequence[str], str]] = {}
    for family in families:
        name = family.name
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n")
        known = texts.setdefault(tuple(family.labels), {})
        for values, number in family.series:
            labels = known.get(values)
            if labels is None:
                labels = known[values] = _label_text(family.labels, values)
            lines.append(f"{name}{labels} {number}\n")
    return "".join(lines).encode()


def _label_text(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{','.join(pairs)}}}"
