"""Write metric families in the text format of Prometheus, version 0.0.4. Pure.

Own code, since prometheus-client takes several times as long per series, which would be the larger
part of a refresh of the exporter. A test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from aiokafka08._core.metrics.metric_family import Labels, MetricFamily

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_SPECIAL: Final = re.compile(r'[\\\n"]')


def write_text(families: Iterable[MetricFamily]) -> bytes:
    parts: list[bytes] = []
    # Families of the same labels have mostly the same series: their label texts are made once, and
    # looked up once if neighbours have exactly the same.
    known: dict[tuple[str, ...], _LabelTexts] = {}
    names: tuple[str, ...] = ()
    rows: list[Labels] = []
    texts: list[str] = []
    for family in families:
        name, before = family.name, (names, rows)
        kind = "counter" if name.endswith("_total") else "gauge"
        lines = [f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n"]
        names, rows = tuple(family.labels), [values for values, _ in family.series]
        if (names, rows) != before:
            of_names = known.setdefault(names, _LabelTexts(names))
            texts = [of_names[values] for values in rows]
        lines += [
            f"{name}{text} {number}\n"
            for text, (_, number) in zip(texts, family.series, strict=True)
        ]
        parts.append("".join(lines).encode())
    return b"".join(parts)


class _LabelTexts(dict[Labels, str]):
    """The text of each series' labels, by their values."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        pairs = ",".join(f'{name}="%s"' for name in names)
        self._text = f"{{{pairs}}}" if names else ""

    def __missing__(self, values: Labels) -> str:
        escaped = values
        if any(map(_SPECIAL.search, values)):
            escaped = tuple(value.translate(_ESCAPES) for value in values)
        text = self[values] = self._text % escaped
        return text
