"""Print findings for people. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from aiokafka08._tools.doctor.finding import Finding, Severity, by_cause, is_healthy
from aiokafka08.telemetry import count_text


def report(findings: Sequence[Finding], width: int) -> str:
    """Return the findings as paragraphs, at most `width` characters wide.

    Findings of the same cause, such as a dead broker, are one paragraph.
    """
    paragraphs = []
    for group in by_cause(findings):
        first = group[0]
        if len(group) == 1:
            lines = [f"{first.code.severity.upper():8}  {first.code.value}: {first.where}"]
            lines += _wrapped(first.why + ".", width)
        else:
            lines = [f"{first.code.severity.upper():8}  {first.cause}: {len(group)} consequences"]
            for finding in group:
                text = f"{finding.code.value}: {finding.where}: {finding.why}."
                lines += _wrapped(text, width, "  - ", "    ")
        for action in dict.fromkeys(finding.action for finding in group):
            lines += _wrapped(action + ".", width, "  → ", "    ")
        paragraphs.append("\n".join(lines))
    paragraphs.append(summary(findings))
    return "\n\n".join(paragraphs) + "\n"


def _wrapped(text: str, width: int, first: str = "  ", later: str = "  ") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later)


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
