"""Findings: what a command found, why it matters, and what to do. Pure.

Invariant: a code (a subclass of `Code`) always has the same severity, and no code is ever renamed
or reused: scripts and alerts depend on both.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aiokafka08._tools.text_columns import wrap
from aiokafka08._wording import counted


class Severity(enum.StrEnum):
    """How urgent a finding is. Notes don't make a cluster unhealthy."""

    # Messages are lost, or can't be written or read, now.
    CRITICAL = "critical"
    # A further failure, or time, leads to a loss or an outage.
    WARNING = "warning"
    # Facts for the reader, and facts that couldn't be read.
    NOTE = "note"


class Code(enum.Enum):
    """A kind of finding, with severity and meaning."""

    severity: Severity
    meaning: str

    def __new__(cls, text: str, severity: Severity, meaning: str) -> Code:
        code = object.__new__(cls)
        code._value_ = text
        code.severity = severity
        code.meaning = meaning
        return code


@dataclass(frozen=True, slots=True)
class CodedFinding:
    """One finding.

    Attributes:
        code: Its kind.
        where: The subject, such as a broker, or a topic and partitions.
        why: The observation, and why it matters.
        action: What to do.
    """

    code: Code
    where: str
    why: str
    action: str

    @property
    def cause(self) -> str | None:
        """The cause shared with other findings, such as "broker 2 is missing"; None: see `why`."""
        return None

    def as_row(self) -> dict[str, str]:
        """Return the fields as the command prints them."""
        return {
            "code": str(self.code.value),
            "severity": str(self.code.severity),
            "where": self.where,
            "why": self.why,
            "action": self.action,
        }


F = TypeVar("F", bound=CodedFinding)


def by_cause(findings: Iterable[F]) -> list[list[F]]:
    """Return the findings in groups of the same cause; one without a cause is a group of its own.

    A group has the place of its first finding.
    """
    groups: dict[object, list[F]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault(finding.cause or number, []).append(finding)
    return list(groups.values())


def is_healthy(findings: Iterable[CodedFinding]) -> bool:
    """Return True if there are only notes."""
    return all(finding.code.severity is Severity.NOTE for finding in findings)


def in_order(findings: Iterable[F]) -> list[F]:
    """Return findings, whose codes are of one class, sorted by the class's order, then by place."""
    found = list(findings)
    order = {code: number for one in found[:1] for number, code in enumerate(type(one.code))}
    return sorted(found, key=lambda finding: (order[finding.code], finding.where))


def report(
    findings: Sequence[CodedFinding],
    width: int,
    paint: Callable[[Severity, str], str] = lambda severity, text: text,
) -> str:
    """Return the findings as paragraphs; findings of the same cause are one paragraph.

    Args:
        findings: the findings.
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


def summary(findings: Sequence[CodedFinding]) -> str:
    """Return "unhealthy: 1 critical, 2 warnings, 1 note"; findings of the same cause count once."""
    counts = Counter(group[0].code.severity for group in by_cause(findings))
    listed = ", ".join(
        f"{counts[severity]} critical"
        if severity is Severity.CRITICAL
        else counted(counts[severity], severity)
        for severity in Severity
        if counts[severity]
    )
    verdict = "healthy" if is_healthy(findings) else "unhealthy"
    return f"{verdict}: {listed}" if listed else verdict
