"""The walks through the code in docs/design.md name functions that exist."""

from __future__ import annotations

import pkgutil
import re

import pytest

from tests.docs.tables import DOCS
from tests.support.paths import ROOT

SECTIONS = re.split(r"^## (.*)\n", (DOCS / "design.md").read_text(), flags=re.M)[1:]
WALKS = {
    title: set(re.findall(r"`(\w+(?:\.\w+)+)`", text))
    for title, text in zip(SECTIONS[::2], SECTIONS[1::2], strict=True)
    if not title.startswith("To change")
}
"""By the title of a walk: the dotted paths in it, below `aiokafka08`."""


def test_design_has_the_five_walks() -> None:
    assert [title.split()[-1] for title in WALKS] == [
        "`send()`",
        "read",
        "commit",
        "code",
        "bridge",
    ]


@pytest.mark.parametrize("walk", WALKS)
def test_names_of_a_walk_exist(walk: str) -> None:
    missing = []
    for name in WALKS[walk]:
        try:
            pkgutil.resolve_name(f"aiokafka08.{name}")
        except (ImportError, AttributeError):
            missing.append(name)
    assert len(WALKS[walk]) > 5
    assert not missing


def test_walks_name_no_file_in_place_of_a_function() -> None:
    modules = {name.replace(".", "/") for names in WALKS.values() for name in names}
    assert not [name for name in modules if (ROOT / "aiokafka08" / f"{name}.py").exists()]
