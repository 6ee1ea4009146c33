"""`bridge groups`: carry the offsets of groups over to the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import Example, command, format_option
from aiokafka08._wording import partition_name

if TYPE_CHECKING:
    from aiokafka08.bridge.config import BridgeConfig
    from aiokafka08.bridge.groups.carry_over import FileOffsets
    from aiokafka08.bridge.groups.group_plan import GroupMove

FIELDS: Final = {
    "group": "the group",
    "topic": "the topic at the source; null: other nodes of the group that are unreadable",
    "partition": "the partition's number; null with the topic",
    "store": 'where the offset is: "kafka", "zookeeper" or "file"',
    "source_offset": "the offset of the next message at the source; null: unreadable",
    "target_topic": "the topic at the target",
    "before": "what the group had committed at the target; null: nothing",
    "target_offset": "the offset of the same message at the target; null: not copied yet",
    "outcome": (
        'either "move", "same", "behind" (the target is further), "waiting" (not copied yet), '
        '"missing" (never copied), "refused" (the group has members, or committed meanwhile) or'
        ' "unreadable" (ZooKeeper holds no offset there)'
    ),
    "reason": "why it isn't moved",
}

# Rows are grouped by group, not by store, because a group may have offsets in two stores.
GROUPING: Final = (("group",),)
MOVED: Final = 0
NOT_MOVED: Final = 1


@command(
    "groups",
    fields=FIELDS,
    examples=[
        Example("What would be committed", "aiokafka08 bridge groups bridge.toml"),
        Example(
            "Commit the offsets at the target", "aiokafka08 bridge groups bridge.toml --execute"
        ),
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--execute", is_flag=True, help="Commit the offsets; without it, only show them.")
@click.option("--rewind", is_flag=True, help="Move offsets back, too.")
@format_option
def groups(file: Path, execute: bool, rewind: bool, format: str | None) -> int:
    """Translate the offsets of groups, and commit them at the target.

    An offset only goes forward, except with --rewind. A group with members at the target isn't
    changed. stderr names offsets in topics that the bridge doesn't copy. The exit code is 1 if an
    offset can't be moved, a pattern of [groups] matches no group of the source, or the groups have
    no offsets in the topics of the bridge.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08.bridge.config import read_config

    config = read_config(file)
    return run(_groups(config, file_offsets(config), execute, rewind, format))


async def _groups(
    config: BridgeConfig, offsets: FileOffsets, execute: bool, rewind: bool, format: str | None
) -> int:
    from aiokafka08._tools.cli.notes import note
    from aiokafka08.bridge.groups.carry_over import GroupTransfer
    from aiokafka08.bridge.target.target_release import refuse_old_target

    await refuse_old_target(config)
    transfer = GroupTransfer(config, offsets)
    may_rewind = True if rewind else None
    try:
        nothing = await transfer.unmatched()  # first: its error after a commit would hide the rows
        if execute:
            moves, cluster = await transfer.carry_over(rewind=may_rewind)
        else:
            moves, cluster = await transfer.look(rewind=may_rewind)
    finally:
        await transfer.close()
    if nothing is not None:
        note(nothing)
    for text in filter(None, [cluster.left_out_text(), cluster.uncommitted_text()]):
        note(text)
    code = show_moves(moves, format, execute, f"target {config.target.bootstrap}")
    is_done = nothing is None and (moves or not config.groups.include)
    return code if is_done else NOT_MOVED


def show_moves(moves: Sequence[GroupMove], format: str | None, execute: bool, cluster: str) -> int:
    """Print the rows and a note on the changes, and return the exit code."""
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.cli.table import Grouping
    from aiokafka08.bridge.wording import committed_text

    rows = (_row(move) for move in moves)
    write_rows(rows, FIELDS, format, grouping=Grouping(*GROUPING))
    if not moves:
        note("no group of [groups] has committed offsets in the topics of the bridge")
    outcomes = [move.outcome for move in moves]
    if execute:
        note(committed_text(outcomes.count("move"), outcomes.count("same"), cluster))
    else:
        note(f"nothing changed at the {cluster}; add --execute")
    done = all(outcome in ("move", "same") for outcome in outcomes)
    return MOVED if done else NOT_MOVED


def _row(move: GroupMove) -> dict[str, Any]:
    from aiokafka08.bridge.groups.group_plan import UNREAD

    is_partition = move.source != UNREAD
    return {
        "group": move.group,
        "topic": move.source.topic if is_partition else None,
        "partition": move.source.partition if is_partition else None,
        "store": move.store,
        "source_offset": move.source_offset,
        "target_topic": move.copy.topic if is_partition else None,
        "before": move.before,
        "target_offset": move.target_offset,
        "outcome": move.outcome,
        "reason": move.reason,
    }


def file_offsets(config: BridgeConfig) -> FileOffsets:
    """Return the offsets in the groups' file of a bridge, if it has one.

    Raises:
        IllegalArgumentError: the file can't be read, or an entry names no group.
    """
    from aiokafka08._tools.cli.group_files import parse_offsets
    from aiokafka08.errors import IllegalArgumentError
    from aiokafka08.structs import TopicPartition

    path = config.groups.file
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else str(error)
        raise IllegalArgumentError(f"groups.file={str(path)!r}: {detail}") from None
    offsets: dict[str, dict[TopicPartition, tuple[int, str]]] = {}
    for entry in parse_offsets(text, str(path)):
        if entry.group is None:
            raise IllegalArgumentError(
                f"{path}: {partition_name(entry)} has no group; expected one in each entry"
            )
        tp = TopicPartition(entry.topic, entry.partition)
        offsets.setdefault(entry.group, {})[tp] = (entry.offset, entry.metadata)
    return offsets
