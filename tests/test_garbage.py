"""What garbage collections leave out, and what a bridge changes of them.

Each test runs an interpreter of its own: pytest's process has frozen objects.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

FEW = """
import gc
from aiokafka08.bridge.daemon import _few_collections
{before}
with _few_collections():
    inside = gc.get_threshold()
    {within}
print(inside[0], gc.get_threshold()[0])
"""


def run(program: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return [int(one) for one in done.stdout.split()]


def test_older_objects_are_collected_again_afterwards() -> None:
    """Python 3.12 has frozen objects of its own when a program starts."""
    inside, after = run(
        "import gc\nfrom aiokafka08.garbage import older_objects_left_out\n"
        "with older_objects_left_out():\n    inside = gc.get_freeze_count()\n"
        "print(inside, gc.get_freeze_count())"
    )
    assert inside > 1000
    assert after == 0


def test_objects_that_the_program_has_frozen_stay_frozen() -> None:
    before, after = run(
        "import gc\nfrom aiokafka08.garbage import older_objects_left_out\n"
        "gc.freeze()\nbefore = gc.get_freeze_count()\n"
        "with older_objects_left_out():\n    pass\n"
        "print(before, gc.get_freeze_count())"
    )
    assert after >= before > 1000


@pytest.mark.parametrize(
    ("before", "within", "expected"),
    [
        ("gc.set_threshold(700)", "", [50_000, 700]),
        ("gc.set_threshold(80_000)", "", [80_000, 80_000]),
        ("gc.set_threshold(0)", "", [0, 0]),
        ("gc.set_threshold(700)", "gc.set_threshold(900)", [50_000, 900]),
        ("gc.freeze(); gc.set_threshold(700)", "", [50_000, 700]),
    ],
    ids=["usual", "higher", "none", "changed meanwhile", "frozen"],
)
def test_threshold_of_a_program_comes_back(before: str, within: str, expected: list[int]) -> None:
    assert run(FEW.format(before=before, within=within or "pass")) == expected
