"""Write Markdown tables, and put them into pages that are otherwise written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
MADE = (
    "<!-- Made from the code by `python -m tests.docs`: change the code's docstrings instead. -->"
)
END = "<!-- Until here. -->\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(one) for one in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def replace_section(page: str, begin: str, made: str) -> str:
    """Return a page with other text between a line `begin`, a comment, and the next `END`."""
    before, found, rest = page.partition(begin)
    assert found, f"the page lacks the line {begin}"
    _, end, after = rest.partition(END)
    assert end, f"the page lacks the line {END} after {begin}"
    return f"{before}{begin}\n{made}\n{END}{after}"
