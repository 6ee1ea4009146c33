"""Draw the mermaid diagrams of the pages, for the site: `python -m tests.docs.diagrams`.

Code hosts draw the blocks of mermaid themselves. The site shows the pictures in docs/diagrams, for
which a reader needs neither a script nor a network. Each picture has the digest of the text that it
was drawn from; a test compares them. Drawing needs npm and Chromium.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

PICTURES = ROOT / "docs" / "diagrams"
TOOL = "@mermaid-js/mermaid-cli@11"
SETTINGS = {
    "theme": "neutral",
    "deterministicIds": True,
    "htmlLabels": False,  # browsers show no HTML within a picture
    "themeVariables": {"fontFamily": "sans-serif", "fontSize": "18px"},
    "flowchart": {
        "htmlLabels": False,
        "nodeSpacing": 14,
        "rankSpacing": 32,
        "padding": 8,
        "wrappingWidth": 210,
    },
}


class Diagram(NamedTuple):
    """A block of a page, and the picture that belongs to it."""

    text: str
    picture: Path

    @property
    def mark(self) -> str:
        """The comment at the end of the picture, with the digest of the text."""
        return f"<!-- mermaid sha256 {hashlib.sha256(self.text.encode()).hexdigest()} -->\n"


def diagrams() -> Iterator[Diagram]:
    """Yield the diagrams of all pages: the second one of a/b.md is b-2.svg."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        texts = re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.M | re.S)
        for number, text in enumerate(texts, 1):
            yield Diagram(text, PICTURES / f"{page.stem}-{number}.svg")


def draw(diagram: Diagram) -> None:
    """Write the picture of a diagram."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or shutil.which("npx") is None:
        sys.exit("diagrams: expected npx (npm) and chromium on PATH")
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "text.mmd": diagram.text,
            "settings.json": json.dumps(SETTINGS),
            # Chromium has no sandbox of its own for root, as in containers.
            "browser.json": json.dumps({"executablePath": browser, "args": ["--no-sandbox"]}),
        }
        for name, content in given.items():
            Path(folder, name).write_text(content)
        options = ["-q", "-i", "text.mmd", "-o", "drawn.svg", "-b", "white"]
        options += ["-c", "settings.json", "-p", "browser.json"]
        subprocess.run(
            ["npx", "--yes", TOOL, *options],
            cwd=folder,
            env={**os.environ, "PUPPETEER_SKIP_DOWNLOAD": "1"},
            check=True,
        )
        drawn = Path(folder, "drawn.svg").read_text()
    diagram.picture.write_text(f"{drawn.rstrip()}\n{diagram.mark}")


def main() -> None:
    """Draw what has changed, and remove pictures of blocks that are gone."""
    found = list(diagrams())
    for diagram in found:
        if not (diagram.picture.exists() and diagram.picture.read_text().endswith(diagram.mark)):
            draw(diagram)
            print(f"{diagram.picture.relative_to(ROOT)} drawn")
    for path in set(PICTURES.glob("*.svg")) - {diagram.picture for diagram in found}:
        path.unlink()


if __name__ == "__main__":
    main()
