"""`group reset`, `group export`, `group import`: move the committed offsets of groups.

Invariant: nothing is changed without `--execute`, and nothing if a group of the call has live
members, or a part of the plan isn't possible. If a commit fails all the same, the rows show the
commits before it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from aiokafka08._tools.cli.completing import group_names, topic_names
from aiokafka08._tools.cli.declare import (
    Example,
    Function,
    command,
    connection_options,
    format_option,
)
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._wording import counted, partition_name, some_of

if TYPE_CHECKING:
    from aiokafka08._tools.cli.group_files import GroupOffset, NodeText, OffsetFileFormat
    from aiokafka08._tools.cli.group_moves import FileMoves
    from aiokafka08._tools.group_reset import TargetMoves
    from aiokafka08.admin.group_lag import GroupStore
    from aiokafka08.errors import KafkaError

PLAN_FIELDS: Final = {
    "group": "the group",
    "store": 'where the offset is kept: "kafka" or "zookeeper"',
    "topic": "the topic",
    "partition": "the partition's number",
    "committed": "the offset committed before; null: none",
    "new": "the offset that --execute commits",
    "error": "why the committed offset can't be read; null if it can. --execute replaces it",
}

PRECISION_FIELD: Final = {
    "precision": "to a time: as that of offsets --at",
}

STORES: Final[tuple[GroupStore, ...]] = ("kafka", "zookeeper")

_store_option = click.option(
    "--store", type=click.Choice(["kafka", "zookeeper"]), help="Only in this store."
)
backup_option = click.option(
    "--backup",
    metavar="FILE",
    help="The new file in which the present offsets are saved first (default: one in "
    "~/.local/state/aiokafka08).",
)
_EXECUTE_OPTIONS: Final = (
    click.option(
        "--execute", is_flag=True, help="Carry the plan out; without it nothing is changed."
    ),
    backup_option,
)


def _execute_options(function: Function) -> Function:
    for option in reversed(_EXECUTE_OPTIONS):
        function = option(function)
    return function


@command(
    "reset",
    fields={**PLAN_FIELDS, **PRECISION_FIELD},
    examples=[
        Example(
            "Show what reading again since yesterday means",
            "aiokafka08 group reset billing --to-datetime -1d -b kafka1:9092 --zookeeper zk1:2181",
        ),
        Example(
            "Skip to the end of one partition",
            "aiokafka08 group reset billing --to-latest --topic orders:0 -b kafka1:9092 "
            "--zookeeper zk1:2181 --execute",
        ),
    ],
)
@click.argument("group", shell_complete=group_names)
@click.option("--to-earliest", is_flag=True, help="To the first message.")
@click.option("--to-latest", is_flag=True, help="To the end: only new messages.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--to-datetime", metavar="TIME", help="To the first message since then.")
@click.option("--to-current", is_flag=True, help="To the committed offset; else to the end.")
@click.option("--shift-by", type=int, metavar="N", help="By N offsets; back if N < 0.")
@click.option(
    "--by-duration",
    metavar="DURATION",
    help="To the first message of a period up to now, such as P7D.",
)
@click.option(
    "--from-file", metavar="FILE", help="To the offsets in a file: of export, or CSV; - is stdin."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    shell_complete=topic_names,
    help="Only this topic, or partitions of it; may be repeated (default: all with an offset).",
)
@_store_option
@_execute_options
@connection_options
@format_option
def reset(
    settings: Settings,
    group: str,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    to_current: bool,
    shift_by: int | None,
    by_duration: str | None,
    from_file: str | None,
    topics: tuple[str, ...],
    store: str | None,
    execute: bool,
    backup: str | None,
    format: str | None,
) -> int:
    """Move the committed offsets of a GROUP; print the plan, and change nothing without --execute.

    Stop all members first. Only ZooKeeper knows those of 0.8 and of Scala consumers: on 0.8, and
    for offsets in ZooKeeper, the plan too needs --zookeeper. A group in both stores is reset in
    both; one without offsets needs --store and --topic. An offset outside the log becomes the
    nearest one inside, with a note. Brokers below 0.10.1 don't know the time of a message: there a
    time means the start of its segment.
    """
    from aiokafka08._tools.cli.group_files import offsets_of
    from aiokafka08._tools.cli.group_moves import FileMoves
    from aiokafka08._tools.group_reset import TargetMoves, reset_target

    chosen = {
        "--to-earliest": "earliest" if to_earliest else None,
        "--to-latest": "latest" if to_latest else None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--to-current": "current" if to_current else None,
        "--shift-by": shift_by,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    targets = [name for name, value in chosen.items() if value is not None]
    if len(targets) != 1:
        raise click.UsageError(
            f"group reset: {' and '.join(targets) or 'no target'}; expected one of "
            f"{', '.join(chosen)}"
        )
    selected = _selected_topics(topics)
    if from_file is not None:
        if topics:
            raise click.UsageError(
                "group reset: --from-file names the partitions; leave --topic out"
            )
        read, texts = _read_offsets(from_file)
        texts = [one for one in texts if one.group == group]
        if read or not texts:  # with neither, `offsets_of` raises the error
            offsets = offsets_of(group, read, from_file)
            _move(settings, FileMoves(offsets, store), execute, backup, format)
        return _note_texts(settings, texts)
    target = reset_target(targets[0], chosen[targets[0]])
    moves = TargetMoves(group, target, selected, store)
    has_time = to_datetime is not None or by_duration is not None
    _move(settings, moves, execute, backup, format, has_time=has_time)
    return 0


@command(
    "export",
    examples=[
        Example(
            "Save the offsets of a group",
            "aiokafka08 group export billing -b kafka1:9092 > billing.json",
        ),
        Example(
            "In the format of Kafka's ImportZkOffsets",
            "aiokafka08 group export billing --store zookeeper --as zookeeper -b kafka1:9092",
        ),
    ],
)
@click.argument("groups", nargs=-1, metavar="[GROUP]...", shell_complete=group_names)
@click.option("--all", "all_groups", is_flag=True, help="All groups of the cluster.")
@_store_option
@click.option(
    "--as",
    "file_format",
    type=click.Choice(["json", "jsonl", "zookeeper", "csv"]),
    default="json",
    help="The format: zookeeper is that of Kafka's ExportZkOffsets (default: json).",
)
@connection_options
def export(
    settings: Settings,
    groups: tuple[str, ...],
    all_groups: bool,
    store: str | None,
    file_format: str,
) -> int:
    """Print the committed offsets of groups in a form that import and reset --from-file read.

    zookeeper and csv have no field for the store and the text of a commit: choose a --store for a
    group in both.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.group_files import format_offsets
    from aiokafka08._tools.cli.notes import in_options, note, note_each, raise_all
    from aiokafka08._tools.cli.output import write_text

    if bool(groups) == all_groups:
        raise click.UsageError("group export: name groups, or give --all")
    offsets, errors, hint = run(_export(settings, groups, store))
    if errors and not offsets:
        raise_all(errors)
    if file_format in ("zookeeper", "csv"):
        _refuse_two_stores(offsets)
    write_text(format_offsets(offsets, cast("OffsetFileFormat", file_format)), flush=True)
    if hint is not None and store != "kafka":
        note(in_options(hint))
    return note_each(f"not exported: {in_options(error.text)}" for error in errors)


async def _export(
    settings: Settings, groups: Sequence[str], store: str | None
) -> tuple[list[GroupOffset], list[KafkaError], str | None]:
    """Return the readable offsets, the errors of reading, and a hint about another store.

    A named group without offsets is an error too.
    """
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.cli.group_files import GroupOffset
    from aiokafka08._tools.similar_names import similar_groups
    from aiokafka08.errors import GroupIdNotFound

    errors: list[KafkaError] = []
    hint: str | None = None
    stores: list[GroupStore] = [one for one in STORES if store in (None, one)]
    async with admin_client(settings) as admin:
        if groups:
            wanted = await admin.possible_groups(list(dict.fromkeys(groups)))
        else:
            wanted = []
            for listing in await admin.list_groups_of_stores(stores):
                wanted += listing.groups
                errors += listing.errors
                hint = hint or listing.left_out
        stored = await admin.list_stored_offsets(
            [group for group in sorted(wanted) if group.store in stores]
        )
        offsets = []
        unknown = dict.fromkeys(groups)
        for group in stored:
            errors += group.all_errors()
            if group.offsets or group.all_errors():
                unknown.pop(group.group, None)
            offsets += [
                GroupOffset(group.group, group.store, *tp, *committed)
                for tp, committed in sorted(group.offsets.items())
            ]
        if unknown:
            similar = await similar_groups(admin, list(unknown))
            text = f"{', '.join(map(repr, unknown))}: no committed offsets{similar}"
            errors.append(GroupIdNotFound(text))
    return offsets, errors, hint


def _refuse_two_stores(offsets: Collection[GroupOffset]) -> None:
    stores: dict[tuple[object, ...], object] = {}
    for offset in offsets:
        if (
            stores.setdefault((offset.group, offset.topic, offset.partition), offset.store)
            != offset.store
        ):
            raise click.UsageError(
                f"group export: {offset.group!r} has offsets in both stores, which this format "
                "can't tell apart; choose one with --store"
            )


@command(
    "import",
    fields=PLAN_FIELDS,
    examples=[
        Example(
            "Carry a group's offsets from ZooKeeper to Kafka",
            "aiokafka08 group export billing --store zookeeper -b kafka1:9092 | aiokafka08 group "
            "import --store kafka -b kafka1:9092 --zookeeper zk1:2181 --execute",
        ),
        Example(
            "Let the group copy begin where billing is",
            "aiokafka08 group export billing --store zookeeper --as csv -b kafka1:9092 | sed "
            "s/billing/copy/ | aiokafka08 group import --store zookeeper -b kafka1:9092 "
            "--zookeeper zk1:2181 --execute",
        ),
    ],
)
@click.argument("file", default="-")
@click.option("--group", "group", metavar="GROUP", help="The group, where the file names none.")
@click.option(
    "--store",
    type=click.Choice(["kafka", "zookeeper"]),
    help="Where to commit (default: as the file says; where the group is now).",
)
@click.option(
    "--to-nearest",
    is_flag=True,
    help="Replace an offset outside the log by the nearest one inside (default: refuse).",
)
@click.option(
    "--skip-missing",
    is_flag=True,
    help="Leave out, with a note, partitions that don't exist (default: refuse).",
)
@_execute_options
@connection_options
@format_option
def import_(
    settings: Settings,
    file: str,
    group: str | None,
    store: str | None,
    to_nearest: bool,
    skip_missing: bool,
    execute: bool,
    backup: str | None,
    format: str | None,
) -> int:
    """Commit the offsets in a FILE (default: stdin); change nothing without --execute.

    Reads all formats of export, and the files of Kafka's ExportZkOffsets. Stop all members of the
    groups first; see reset for when the plan too needs --zookeeper.

    The offsets of another cluster are those of other messages: `bridge groups` translates them. If
    an offset is outside the log, nothing is committed and the exit code is 1. A backup may have the
    text of a node without an offset. It isn't written: a note says how to write it, and the exit
    code is 1.
    """
    from aiokafka08._tools.cli.group_moves import FileMoves
    from aiokafka08._tools.cli.notes import note
    from aiokafka08.errors import UnknownTopicOrPartitionError

    read, texts = _read_offsets(file)
    offsets = [
        offset if offset.group is not None else offset._replace(group=group) for offset in read
    ]
    if any(offset.group is None for offset in offsets):
        raise click.UsageError(f"group import: {file} names no group; name it with --group")
    if offsets:
        moves = FileMoves(offsets, store, skip_missing=skip_missing)
        try:
            _move(settings, moves, execute, backup, format, to_nearest=to_nearest)
        except UnknownTopicOrPartitionError as error:
            error.args = (f"{error.text}. --skip-missing leaves such offsets out",)
            raise
        if moves.skipped:
            names = some_of([partition_name(one) for one in moves.skipped])
            note(f"left out, since these partitions don't exist: {names}")
    return _note_texts(settings, texts)


def _note_texts(settings: Settings, texts: Sequence[NodeText]) -> int:
    """Note how to write the texts of nodes without an offset, and return the exit code."""
    if not texts:
        return 0
    from aiokafka08._tools.cli.group_backup import how_to_write
    from aiokafka08._tools.cli.notes import note

    note(how_to_write(texts, settings.zookeeper_connect, "set"))
    return 1


def _move(
    settings: Settings,
    moves: TargetMoves | FileMoves,
    execute: bool,
    backup: str | None,
    format: str | None,
    *,
    to_nearest: bool = True,
    has_time: bool = False,
) -> None:
    """Print the plan, carry it out with `execute`, and note the changes and how to undo them."""
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.group_backup import Backup
    from aiokafka08._tools.cli.group_moves import plan_and_move
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import rows_so_far
    from aiokafka08._tools.cli.table import Grouping
    from aiokafka08._tools.group_reset import TargetMoves

    if backup is not None and not execute:
        raise click.UsageError("--backup without --execute: nothing would be changed")
    saved = Backup(backup)
    grouping = Grouping(("group", "store"))
    fields = {**PLAN_FIELDS, **PRECISION_FIELD} if has_time else PLAN_FIELDS
    with rows_so_far(fields, format, grouping=grouping) as rows:
        try:
            plan = run(
                plan_and_move(
                    settings,
                    moves,
                    execute,
                    rows,
                    to_nearest=to_nearest,
                    has_time=has_time,
                    save=saved.save,
                )
            )
        except BaseException:  # Ctrl-C, too
            saved.note_way_back(settings, 0)
            raise
    for group, planned in plan:
        for offset in planned:
            if offset.new != offset.wanted:
                note(
                    f"{partition_name(offset)} of group {group.group!r}: offset "
                    f"{offset.wanted} is outside the log, {offset.new} is the nearest one inside"
                )
    if isinstance(moves, TargetMoves) and moves.uncommitted:
        uncommitted = sorted(moves.uncommitted)
        topics = " ".join(f"--topic {topic}" for topic in dict.fromkeys(t for t, _ in uncommitted))
        note(
            f"no offset is committed for {some_of([*map(partition_name, uncommitted)])}: not "
            f"moved. Give {topics} to include all partitions"
        )
    if not execute:
        note(
            f"this is the plan for {settings.cluster}; nothing was changed. Carry it out with "
            "--execute"
        )
        return
    names = [*dict.fromkeys(repr(group.group) for group, _ in plan)]
    groups = f"group{'s' * (len(names) != 1)} {', '.join(names)}"
    number = sum(len(planned) for _, planned in plan)
    note(f"{counted(number, 'offset')} committed: {groups}, {settings.cluster}")
    saved.note_way_back(settings, number)


def _selected_topics(texts: Sequence[str]) -> dict[str, set[int]]:
    """Return the topics of `--topic`; an empty set stands for all partitions."""
    selected: dict[str, set[int]] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        try:
            partitions = {int(number) for number in numbers.split(",")} if colon else set()
        except ValueError:
            partitions = {-1}
        if not topic or any(partition < 0 for partition in partitions):
            raise click.UsageError(
                f"--topic={text!r}: expected TOPIC, or TOPIC:PARTITION,PARTITION,..."
            )
        if topic in selected and not (partitions and selected[topic]):
            partitions = set()  # all of them, once
        else:
            partitions |= selected.get(topic, set())
        selected[topic] = partitions
    return selected


def _read_offsets(file: str) -> tuple[list[GroupOffset], list[NodeText]]:
    """Return the offsets in a file, and the texts of nodes that held none (in a backup only)."""
    from aiokafka08._tools.cli.group_files import parse_offsets
    from aiokafka08.errors import IllegalArgumentError

    origin = "stdin" if file == "-" else file
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise IllegalArgumentError(f"{origin}: not UTF-8; expected a file of offsets") from None
    texts: list[NodeText] = []
    return parse_offsets(text, origin, texts), texts
