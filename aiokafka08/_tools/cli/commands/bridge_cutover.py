"""`bridge plan` and `bridge cutover`: show, execute or roll back the steps of a cut-over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.commands.bridge_groups import file_offsets
from aiokafka08._tools.cli.declare import Example, command, format_option
from aiokafka08._wording import counted

if TYPE_CHECKING:
    from aiokafka08.bridge.config import BridgeConfig
    from aiokafka08.bridge.cutover.readiness import Step
    from aiokafka08.bridge.groups.rollback import RollbackMove

STEP_FIELDS: Final = {
    "step": "the condition",
    "ready": "whether the condition is met",
    "detail": "what was found, and what to do",
}
ROLLBACK_FIELDS: Final = {
    "group": "the group",
    "topic": "the topic at the source",
    "partition": "the partition's number",
    "target_offset": "what the group had committed at the target",
    "before": "what it had committed at the source; null: nothing, or unreadable (see reason)",
    "source_offset": "the offset of the same message at the source; null: unknown",
    "outcome": (
        'either "move", "same", "behind" (the source is further), "beyond" (the group has read '
        'messages that only the target has), "unknown" (nothing was copied) or "refused" (the '
        "group has members, or its offset at the source can't be read)"
    ),
    "reason": "why it isn't moved; whether the group has read beyond the copy",
}

READY: Final = 0
NOT_READY: Final = 1

_quiet_option = click.option(
    "--quiet",
    "quiet_s",
    type=click.FloatRange(0.0, 3600.0),
    default=2.0,
    help="For how many seconds the source must have had no new messages (default: 2).",
)


@command(
    "plan",
    fields=STEP_FIELDS,
    examples=[
        Example(
            "The steps of the cut-over, and what is ready", "aiokafka08 bridge plan bridge.toml"
        ),
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--scan", is_flag=True, help="Read all messages, not samples of each partition.")
@_quiet_option
@format_option
def plan(file: Path, scan: bool, quiet_s: float, format: str | None) -> int:
    """Show the steps of a cut-over, and whether each is ready.

    It changes nothing. The exit code is 0 if all are, 1 if not.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08.bridge.config import read_config
    from aiokafka08.bridge.cutover.steps import plan_steps

    config = read_config(file)
    steps = run(plan_steps(config, file_offsets(config), quiet_s=quiet_s, scan=scan))
    return _show(steps, format)


@command(
    "cutover",
    fields=STEP_FIELDS,
    fields_with={"--rollback": ROLLBACK_FIELDS},
    examples=[
        Example("Do the steps in order", "aiokafka08 bridge cutover bridge.toml --execute"),
        Example(
            "Let the groups go on at the source again",
            "aiokafka08 bridge cutover bridge.toml --rollback",
        ),
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--execute", is_flag=True, help="Do the steps; stop at the first that isn't ready.")
@click.option("--rollback", is_flag=True, help="Commit the groups' positions at the source.")
@click.option("--dry-run", is_flag=True, help="With --rollback: only show what it would commit.")
@click.option("--rewind", is_flag=True, help="With --rollback: move offsets back, too.")
@click.option(
    "--beyond-copy",
    is_flag=True,
    help="With --rollback: also move groups that have read messages that only the target has.",
)
@click.option("--no-verify", is_flag=True, help="Skip the comparison of both sides.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.0, 86400.0),
    default=60.0,
    help="For how many seconds to wait for the end of the copy (default: 60).",
)
@_quiet_option
@format_option
def cutover(
    file: Path,
    execute: bool,
    rollback: bool,
    dry_run: bool,
    rewind: bool,
    beyond_copy: bool,
    no_verify: bool,
    timeout_s: float,
    quiet_s: float,
    format: str | None,
) -> int:
    """Switch the groups to the target, or back with --rollback.

    Without --execute and --rollback it is `bridge plan`. --execute checks that the producers are
    stopped, the copy has reached the end, both sides are equal and the consumers are stopped; then
    it commits the groups' offsets at the target. It stops at the first step that isn't ready, with
    exit code 1. With --rollback the exit code is 1 if an outcome isn't "move" or "same", or a
    pattern of [groups] matches no group; the offsets of groups in a file are only shown, with
    --dry-run.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08.bridge.config import read_config
    from aiokafka08.bridge.cutover.steps import plan_steps

    if execute and rollback:
        raise click.UsageError("--execute and --rollback exclude each other")
    if (dry_run or rewind or beyond_copy) and not rollback:
        raise click.UsageError("--dry-run, --rewind and --beyond-copy need --rollback")
    config = read_config(file)
    if rollback:
        return _roll_back(config, dry_run, rewind, beyond_copy, format)
    if not execute:
        return _show(run(plan_steps(config, file_offsets(config), quiet_s=quiet_s)), format)
    return run(_execute(config, no_verify, timeout_s, quiet_s, format))


async def _execute(
    config: BridgeConfig, no_verify: bool, timeout_s: float, quiet_s: float, format: str | None
) -> int:
    from contextlib import aclosing

    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import rows_so_far
    from aiokafka08.bridge.cutover.steps import CARRIED_OVER, cut_over

    done = cut_over(
        config,
        file_offsets(config),
        quiet_s=quiet_s,
        timeout_s=timeout_s,
        may_skip_verification=no_verify,
    )
    last: Step | None = None
    with rows_so_far(STEP_FIELDS, format) as rows:
        async with aclosing(done) as steps:
            async for step in steps:
                rows.append(_step_row(step))
                last = step
    where = f"the source {config.source.bootstrap} to the target {config.target.bootstrap}"
    if last is not None and last.is_ready:
        note(f"from {where}")
        return READY
    if last is not None:
        how_much = "not all was" if last.step == CARRIED_OVER else "nothing was"
        note(f"stopped at {last.step!r}; {how_much} committed, from {where}")
    return NOT_READY


def _roll_back(
    config: BridgeConfig, dry_run: bool, rewind: bool, beyond_copy: bool, format: str | None
) -> int:
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.cli.table import Grouping
    from aiokafka08.bridge.groups.rollback import roll_back
    from aiokafka08.bridge.wording import committed_text

    moves, unmatched = run(
        roll_back(
            config,
            file_offsets(config),
            execute=not dry_run,
            rewind=rewind,
            beyond_copy=beyond_copy,
        )
    )
    rows = (_rollback_row(move) for move in moves)
    write_rows(rows, ROLLBACK_FIELDS, format, grouping=Grouping(("group",)))
    outcomes = [move.outcome for move in moves]
    if unmatched is not None:
        note(unmatched)
    elif not moves:
        note(
            "no group of [groups] has committed offsets at the target, in the topics of the bridge "
            "as far as they are copied: nothing is to be carried back"
        )
    if refused := outcomes.count("refused"):
        note(
            f"{counted(refused, 'offset')} refused: the groups have members, or an offset that "
            "can't be read: see 'reason'. Stop these members, on both sides, or mend what the "
            "reason names; then repeat the rollback"
        )
    if beyond := outcomes.count("beyond"):
        note(
            f"{counted(beyond, 'offset')} not moved: the groups have read messages that only the "
            "target has. Copy these to the source first, or give --beyond-copy: then the groups go "
            "on at the end of what the source has"
        )
    cluster = f"source {config.source.bootstrap}"
    if dry_run:
        note(f"nothing changed at the {cluster}; leave out --dry-run to commit")
    else:
        note(committed_text(outcomes.count("move"), outcomes.count("same"), cluster))
    done = unmatched is None and all(outcome in ("move", "same") for outcome in outcomes)
    return READY if done else NOT_READY


def _show(steps: Sequence[Step], format: str | None) -> int:
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08.bridge.cutover.readiness import next_action

    rows = [_step_row(step) for step in steps]
    write_rows(rows, STEP_FIELDS, format)
    note(f"next: {next_action(steps)}")
    return READY if all(row["ready"] for row in rows) else NOT_READY


def _step_row(step: Step) -> dict[str, Any]:
    return {"step": step.step, "ready": step.is_ready, "detail": step.detail}


def _rollback_row(move: RollbackMove) -> dict[str, Any]:
    return {
        "group": move.group,
        "topic": move.source.topic,
        "partition": move.source.partition,
        "target_offset": move.target_offset,
        "before": move.before,
        "source_offset": move.source_offset,
        "outcome": move.outcome,
        "reason": move.reason,
    }
