"""Print findings: paragraphs for people, rows or JSON otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from aiokafka08._core.names import visible
from aiokafka08._tools.cli import terminal
from aiokafka08._tools.cli.output import default_format, write_json, write_rows, write_shown
from aiokafka08._tools.findings import CodedFinding, is_healthy, report

_STYLES: Final = {"critical": "bad", "warning": "warning", "note": "dim"}

HEALTHY: Final = 0
FINDINGS: Final = 1


def write_findings(
    findings: Sequence[CodedFinding], fields: Iterable[str], format: str | None
) -> int:
    """Print findings, and return the exit code: 1 unless there are only notes.

    Raises:
        OSError: as `output.write_bytes`.
    """
    healthy, rows = is_healthy(findings), [finding.as_row() for finding in findings]
    format = format or default_format()
    if format == "json":
        causes = [{**row, "cause": one.cause} for row, one in zip(rows, findings, strict=True)]
        write_json({"healthy": healthy, "findings": causes})
    elif format == "table":
        paint = terminal.painter(sys.stdout)
        shown = [_printable(finding) for finding in findings]
        write_shown(
            report(shown, terminal.width(), lambda severity, text: paint(_STYLES[severity], text)),
            flush=True,
        )
    else:
        write_rows(rows, fields, format)
    return HEALTHY if healthy else FINDINGS


def _printable(finding: CodedFinding) -> CodedFinding:
    """Return the finding with escapes for what stdout can't show of foreign names."""
    where, why, action = (
        terminal.encodable(visible(text), sys.stdout)
        for text in (finding.where, finding.why, finding.action)
    )
    return replace(finding, where=where, why=why, action=action)
