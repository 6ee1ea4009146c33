"""The folders of this project, for tests and tools that read its files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "aiokafka08"
TESTS: Final = ROOT / "tests"
