"""Print findings for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from aiokafka08._tools.doctor.finding import Finding, Severity, by_cause, is_healthy
from aiokafka08._tools.text_columns import wrap
from aiokafka08.telemetry import count_text


def report(
    findings: Sequence[Finding],
    width: int,
    paint: Callable[[Severity, str], str] = lambda severity, text: text,
) -> str:
    """Return the findings as paragraphs.

    Findings of the same cause, such as a dead broker, are one paragraph.

    Args:
        findings: what was found.
        width: the columns of the longest line, unless a name is longer: names are never broken.
        paint: gives the name of a severity its colour (default: none).
    """
    paragraphs = []
    for group in by_cause(findings):
        first = group[0]
        severity = first.code.severity
        name = severity.upper()
        if len(group) == 1:
            title = f"{first.code.value}: {first.where}"
        else:
            title = f"{first.cause}: {len(group)} consequences"
        head, *lines = wrap(f"{name:8}  {title}", width, "", " " * 10)
        lines = [paint(severity, name) + head[len(name) :], *lines]
        if len(group) == 1:
            lines += wrap(first.why + ".", width, "  ", "  ")
        else:
            for finding in group:
                text = f"{finding.code.value}: {finding.where}: {finding.why}."
                lines += wrap(text, width, "  - ", "    ")
        for action in dict.fromkeys(finding.action for finding in group):
            lines += wrap(action + ".", width, "  → ", "    ")
        paragraphs.append("\n".join(lines))
    paragraphs.append(summary(findings))
    return "\n\n".join(paragraphs) + "\n"


def summary(findings: Sequence[Finding]) -> str:
    """Return "unhealthy: 1 critical, 2 warnings, 1 note"; findings of the same cause count once."""
    counts = Counter(group[0].code.severity for group in by_cause(findings))
    listed = ", ".join(
        f"{counts[severity]} critical"
        if severity is Severity.CRITICAL
        else count_text(counts[severity], severity)
        for severity in Severity
        if counts[severity]
    )
    verdict = "healthy" if is_healthy(findings) else "unhealthy"
    return f"{verdict}: {listed}" if listed else verdict
