"""What `bridge plan` says is to be done next."""

from __future__ import annotations

from unittest.mock import AsyncMock, MagicMock

import pytest

from aiokafka08.admin import LogBounds
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.offset_runs import OffsetMap
from aiokafka08.bridge.cutover import readiness
from aiokafka08.bridge.cutover.readiness import Readiness, Step, is_done, next_action
from aiokafka08.bridge.groups.group_plan import CopiedPartition
from aiokafka08.structs import TopicPartition

CONFIG = parse_config(
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n'
)
NAMES = ("topics", "messages", "producers", "copy", "verification", "consumers", "groups")


def steps(**changed: Step) -> list[Step]:
    """Return steps that are all ready, but for the given ones."""
    return [changed.get(name) or Step(name, True, "") for name in NAMES]


def no(
    name: str,
    *,
    is_missing: bool = False,
    is_wrong: bool = False,
    is_advancing: bool = False,
    is_different: bool = False,
) -> Step:
    text = f"what {name} lacks"
    return Step(name, False, text, is_missing, is_wrong, False, is_advancing, is_different)


def yes(name: str) -> Step:
    return Step(name, True, "", is_carried=True)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ([], "stop producers and consumers, then 'bridge cutover --execute'"),
        ([no("topics", is_missing=True)], "start 'bridge run', which creates the topics"),
        ([no("topics", is_missing=True), no("copy")], "start 'bridge run', which creates the"),
        ([no("topics", is_missing=True), no("messages")], "mend what the step 'messages' names"),
        (
            [no("topics", is_missing=True), no("consumers", is_wrong=True)],
            "mend [groups]: see the step 'consumers'",
        ),
        ([no("topics"), no("copy")], "mend what the step 'topics' names"),
        ([no("copy")], "start 'bridge run', and let it reach the end"),
        ([no("copy", is_advancing=True)], "let 'bridge run' reach the end; then 'bridge verify'"),
        (
            [no("copy", is_advancing=True), no("producers"), no("verification")],
            "stop the producers when 'bridge run' is near the end",
        ),
        ([no("verification"), no("producers")], "run 'bridge verify'"),
        ([no("verification", is_different=True)], "see the step 'verification': another"),
        (
            [no("copy"), no("verification", is_different=True)],
            "start 'bridge run', and let it reach the end",
        ),
        ([no("copy", is_advancing=True), no("messages")], "mend what the step 'messages' names"),
    ],
)
def test_next_action_is_the_first_that_is_needed(left: list[Step], expected: str) -> None:
    assert next_action(steps(**{step.step: step for step in left})).startswith(expected)


@pytest.mark.parametrize(
    "changed",
    [
        [yes("groups")],
        [yes("groups"), yes("consumers")],
        [yes("groups"), yes("consumers"), no("verification")],
    ],
    ids=["stopped", "working", "not verified"],
)
def test_plan_behind_the_cutover_does_not_ask_for_it_again(changed: list[Step]) -> None:
    seen = steps(**{step.step: step for step in changed})
    assert next_action(seen).startswith("nothing to do but to start the consumers")


@pytest.mark.parametrize(
    ("positions", "detail"),
    [
        ([None, None], "nothing is copied yet: orders (10 behind)"),
        ([5, None], "not copied yet: orders (5 behind); is 'bridge run' up?"),
        ([5, 5], "2 partitions are copied to the end"),
    ],
)
async def test_step_copy_asks_for_a_run_only_if_there_was_one(
    monkeypatch: pytest.MonkeyPatch, positions: list[int | None], detail: str
) -> None:
    """The other steps say so of a bridge that has never run, and the last line what to do."""
    partitions = {
        (tp := TopicPartition("orders", number)): CopiedPartition(
            tp, OffsetMap(), position, LogBounds(0, 5), 0
        )
        for number, position in enumerate(positions)
    }
    monkeypatch.setattr(readiness, "source_admin", MagicMock())
    monkeypatch.setattr(readiness, "copied_partitions", AsyncMock(return_value=partitions))
    monkeypatch.setattr(readiness, "GroupTransfer", MagicMock())
    step = await Readiness(CONFIG).copy()
    assert step.detail == detail


def test_plan_behind_the_cutover_says_that_offsets_are_left_out() -> None:
    groups = Step("groups", True, "", is_carried=True, leaves_out=True)
    assert next_action(steps(groups=groups)).endswith(
        "The groups are carried over, but for what the step 'groups' names"
    )


@pytest.mark.parametrize(
    "changed",
    [
        [yes("groups"), no("consumers")],  # members at the source
        [yes("consumers"), no("groups")],  # one has gone on, and stopped: was it since a cut-over?
        [yes("groups"), yes("consumers"), no("copy")],
        [yes("groups"), yes("consumers"), no("producers")],
        [yes("groups"), no("verification")],  # 'bridge run' carries them
    ],
    ids=["consumers", "groups", "copy", "producers", "verification"],
)
def test_groups_that_the_bridge_carries_are_no_cutover(changed: list[Step]) -> None:
    seen = steps(**{step.step: step for step in changed})
    assert not is_done(seen)
    assert not next_action(seen).startswith("nothing to do")
