"""Go through the steps of a cut-over in order, and stop at the first that isn't ready.

Invariant: only the groups at the target (and MirrorMaker 2's topics) are changed, and only after
all other steps were ready.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Final

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.cutover.readiness import Readiness, Step, differences_text
from aiokafka08.bridge.groups.carry_over import FileOffsets
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.bridge.verify.verification import verify
from aiokafka08.bridge.verify.verify_state import VerifyState, state_path
from aiokafka08.bridge.wording import committed_text, equal_text

# The last step, the only one that commits.
CARRIED_OVER: Final = "carried over"
_POLL_S: Final = 0.5


async def plan_steps(
    config: BridgeConfig, file_offsets: FileOffsets, *, quiet_s: float = 2.0, scan: bool = False
) -> list[Step]:
    """Return all steps of the cut-over, each with its readiness now.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file.
        quiet_s: for how long to look for producers, in seconds (default 2.0).
        scan: True reads all messages to find those that the target refuses (default False).

    Raises:
        KafkaError: a cluster doesn't respond.
    """
    await refuse_old_target(config)
    readiness = Readiness(config, file_offsets)
    try:
        return [
            await readiness.guarantee(),
            await readiness.topics(),
            await readiness.messages(scan=scan),
            await readiness.producers(quiet_s),
            await readiness.copy(),
            await readiness.verification(),
            await readiness.consumers(),
            await readiness.groups(),
        ]
    finally:
        await readiness.close()


async def cut_over(
    config: BridgeConfig,
    file_offsets: FileOffsets,
    *,
    quiet_s: float = 2.0,
    timeout_s: float = 60.0,
    may_skip_verification: bool = False,
) -> AsyncGenerator[Step, None]:
    """Do the steps in order, and yield each when it is done; end after one that isn't ready.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file.
        quiet_s: for how long the source must have got no message, in seconds (default 2.0).
        timeout_s: for how long to wait until the copy has reached the end (default 60.0).
        may_skip_verification: True doesn't compare both sides (default False).

    Raises:
        KafkaError: a cluster doesn't respond, or refuses.
    """
    await refuse_old_target(config)
    readiness = Readiness(config, file_offsets)
    try:
        for look in (readiness.topics, lambda: readiness.producers(quiet_s)):
            yield (step := await look())
            if not step.is_ready:
                return
        # The source gets no more messages now, so the copy has a fixed end to reach.
        deadline = time.monotonic() + timeout_s
        step = await readiness.copy()
        while not step.is_ready and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            step = await readiness.copy()
        yield step
        if not step.is_ready:
            return
        yield (step := await _verify(config, may_skip_verification))
        if not step.is_ready:
            return
        # Check consumers last, since they may read at the source until both sides were compared.
        for look in (readiness.consumers, readiness.groups):
            yield (step := await look())
            if not step.is_ready:
                return
        moves, cluster = await readiness.transfer.carry_over()
        kinds = Counter("same" if move.has_gone_on else move.outcome for move in moves)
        left = kinds.total() - kinds["move"] - kinds["same"]
        left_out = cluster.left_out_text()
        yield Step(
            CARRIED_OVER,
            not left,
            committed_text(kinds["move"], kinds["same"], "target")
            + (f", {left} weren't: see 'bridge groups'" if left else "")
            + (f". But {left_out}" if left_out else "")
            + ". Start the consumers there, then the producers; then stop 'bridge run'",
        )
    finally:
        await readiness.close()


async def _verify(config: BridgeConfig, may_skip: bool) -> Step:
    if may_skip:
        return Step("verification", True, "skipped")
    state = VerifyState(state_path(config.path), config.name, timestamps=False)
    verdicts = await verify(config, on_progress=state.note)
    state.save(now=time.time(), is_complete=True)
    if wrong := [verdict for verdict in verdicts if not verdict.is_equal]:
        return Step("verification", False, differences_text(wrong), is_different=True)
    count = sum(verdict.progress.source_count for verdict in verdicts)
    return Step("verification", True, equal_text(count))
