"""Print findings for people. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence

from aiokafka08._tools.doctor.finding import Finding, Severity, is_healthy
from aiokafka08.telemetry import count_text


def report(
    findings: Sequence[Finding],
    width: int,
    paint: Callable[[Severity, str], str] = lambda severity, text: text,
) -> str:
    """Return the findings as paragraphs.

    Args:
        findings: what was found.
        width: the longest line, unless a name is longer: names are never broken.
        paint: gives the name of a severity its colour (default: none).
    """
    paragraphs = []
    for finding in findings:
        severity = finding.code.severity
        name = severity.upper()
        title = f"{name:8}  {finding.code.value}: {finding.where}"
        head, *lines = _wrapped(title, width, "", " " * 10)
        lines = [paint(severity, name) + head[len(name) :], *lines]
        lines += _wrapped(finding.why + ".", width, "  ", "  ")
        lines += _wrapped(finding.action + ".", width, "  → ", "    ")
        paragraphs.append("\n".join(lines))
    paragraphs.append(summary(findings))
    return "\n\n".join(paragraphs) + "\n"


def _wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def summary(findings: Sequence[Finding]) -> str:
    """Return "unhealthy: 1 critical, 2 warnings, 1 note"."""
    counts = Counter(finding.code.severity for finding in findings)
    listed = ", ".join(
        f"{counts[severity]} critical"
        if severity is Severity.CRITICAL
        else count_text(counts[severity], severity)
        for severity in Severity
        if counts[severity]
    )
    verdict = "healthy" if is_healthy(findings) else "unhealthy"
    return f"{verdict}: {listed}" if listed else verdict
