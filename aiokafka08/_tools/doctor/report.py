"""Print findings for people. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from aiokafka08._tools.doctor.finding import Finding, Severity, is_healthy
from aiokafka08.telemetry import count_text


def report(findings: Sequence[Finding], width: int) -> str:
    """Return the findings as paragraphs, at most `width` characters wide."""
    paragraphs = []
    for finding in findings:
        lines = [f"{finding.code.severity.upper():8}  {finding.code.value}: {finding.where}"]
        lines += textwrap.wrap(
            finding.why + ".", width, initial_indent="  ", subsequent_indent="  "
        )
        lines += textwrap.wrap(
            finding.action + ".", width, initial_indent="  → ", subsequent_indent="    "
        )
        paragraphs.append("\n".join(lines))
    paragraphs.append(summary(findings))
    return "\n\n".join(paragraphs) + "\n"


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
