"""Inputs on disk: a folder for each target, and `findings` for those that failed.

Invariant: a file is named after the hash of its content, so an input is kept once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FINDINGS = "findings"


def load(folder: Path) -> dict[str, list[bytes]]:
    """Return the inputs by target name."""
    if not folder.is_dir():
        return {}
    return {
        one.name: [file.read_bytes() for file in sorted(one.iterdir())]
        for one in folder.iterdir()
        if one.is_dir() and one.name != FINDINGS
    }


def keep(folder: Path, name: str, data: bytes) -> Path:
    """Write an input into a folder of the corpus, and return its path."""
    path = folder / name / hashlib.sha1(data, usedforsecurity=False).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def keep_finding(folder: Path, target: str, data: bytes) -> Path:
    """Write an input that failed; its name begins with its target's."""
    digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()[:16]
    path = folder / FINDINGS / f"{target}-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
