"""What garbage collections leave out, and how rare they are.

Most tests run an interpreter of their own: pytest's process has frozen objects.
"""

from __future__ import annotations

import gc
import subprocess
import sys

from aiokafka08._core.garbage import short_holds

PROGRAM = """
import gc
from aiokafka08._core.garbage import older_objects_left_out
{before}
before = gc.get_freeze_count()
with older_objects_left_out():
    inside = gc.get_freeze_count()
print(before, inside, gc.get_freeze_count())
"""


def frozen_objects(before: str = "") -> list[int]:
    """Return how many objects are frozen in front of the block, in it, and behind it."""
    program = PROGRAM.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return [int(one) for one in done.stdout.split()]


def test_older_objects_are_collected_again_afterwards() -> None:
    """Python 3.12 has frozen objects of its own when a program starts."""
    _, inside, after = frozen_objects()
    assert inside > 1000
    assert after == 0


def test_objects_that_the_program_has_frozen_stay_frozen() -> None:
    before, _, after = frozen_objects("gc.freeze()")
    assert after >= before > 1000


RARE = """
import gc
from aiokafka08._core.garbage import rare_full_collections
now = 0.0
with rare_full_collections(lambda: now, 10.0):
    kept = [[] for _ in range(1000)]
    gc.collect()
    print(gc.get_freeze_count() > 1000)
    cycle = []
    cycle.append(cycle)
    gc.collect()
    del cycle
    print(gc.collect())
    now = 11.0
    print(gc.collect() >= 1)
    kept.append([])
    gc.collect()
    print(gc.get_freeze_count() > 1000)
print(gc.get_freeze_count())
"""


def test_rare_full_collections_leave_out_what_is_old() -> None:
    """And find the old garbage at the first one after the interval."""
    done = subprocess.run(
        [sys.executable, "-c", RARE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "0", "True", "True", "0"]


async def test_interpreter_settings_are_restored() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    with short_holds():
        assert gc.get_threshold()[2] > before[0][2]
        assert sys.getswitchinterval() < before[1]
    assert (gc.get_threshold(), sys.getswitchinterval()) == before


async def test_only_what_was_frozen_before_stays_frozen() -> None:
    gc.unfreeze()
    try:
        with short_holds():
            assert gc.get_freeze_count()
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()  # else the collection after each test would visit all modules
    with short_holds():
        pass
    assert gc.get_freeze_count()
