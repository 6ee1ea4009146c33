"""`group`: list and describe groups, show their lag, delete them; in Kafka and in ZooKeeper.

`group_offsets` has the commands that move offsets. Each row names the store that it is about, since
a group may be in both.

Invariant: `list`, `describe` and `lag` create nothing: no topic, no group, not the topic
`__consumer_offsets`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from aiokafka08._tools.cli.commands.group_offsets import backup_option, export, import_, reset
from aiokafka08._tools.cli.completing import group_names, topic_names
from aiokafka08._tools.cli.declare import (
    CommandGroup,
    Example,
    command,
    connection_options,
    format_option,
)
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._wording import some_of
from aiokafka08.errors import KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from aiokafka08._tools.cli.group_backup import Backup, Saved
    from aiokafka08._tools.cli.output import Row
    from aiokafka08.admin import (
        AIOKafkaAdminClient,
        MemberDescription,
        PartitionLag,
        StoredGroup,
    )

STORE: Final = 'where this is kept: "kafka" or "zookeeper"'
GROUP_FIELDS: Final = {
    "group": "the group",
    "store": STORE,
    "protocol_type": 'such as "consumer"; empty for a group that has offsets, but never a member',
}
MEMBER_FIELDS: Final = {
    "group": "the group",
    "store": STORE,
    "state": (
        'such as "Stable"; "Empty" without members, also if only offsets are left; null if this '
        "store can't tell: members of 0.8 are in ZooKeeper only"
    ),
    "assignor": "how the members divide the partitions; empty or null if unknown",
    "member": "the id of a member; null in the only row of a group without members",
    "client_id": "the member's client id; empty in ZooKeeper",
    "host": "the member's host; empty in ZooKeeper",
    "partitions": 'the partitions that it reads, such as ["orders/0", "orders/1"]',
    "offsets": "how many partitions have a committed offset of the group in this store",
    "uncommitted": (
        "of how many partitions nothing is committed, though of others of the topic: their lag is "
        "unknown"
    ),
}
LAG_FIELDS: Final = {
    "group": "the group",
    "store": STORE,
    "topic": "the topic",
    "partition": "the partition's number",
    "committed": "the committed offset, of the next message to read; null: none yet",
    "end": "the offset of the partition's next message; null: no such partition, or no leader",
    "lag": "end - committed; negative if the log lost messages or was made anew; null if one is",
    "member": "the member that reads the partition; null: none, or unknown",
    "error": "why the committed offset can't be read; null if it can, or there is none",
}


def _has_lag(row: Mapping[str, Any]) -> bool:
    """Return False for an empty partition with unknown lag; such a row doesn't count in sums."""
    return row["lag"] is not None or row["end"] != 0


LAG_GROUPING: Final = (("group",), ("lag",), ("group", "topic", "partition"), _has_lag)
DELETION_FIELDS: Final = {
    "group": "the group",
    "store": STORE,
    "outcome": (
        'either "deleted", or "expiring": the brokers remove it at their next check, within '
        'offsets.retention.check.interval.ms (10 minutes); or "failed"'
    ),
    "error": "why it isn't deleted, or not all of it; null if it is",
}

# How many groups are deleted by one call.
_AT_ONCE: Final = 200


@click.group("group", cls=CommandGroup)
def group() -> None:
    """List groups, show their lag, move their offsets.

    Groups may be in Kafka (from 0.8.2 on), in ZooKeeper, or in both. Those in ZooKeeper are found
    with --zookeeper; on 0.8 members are in ZooKeeper only.
    """


@command(
    "list",
    group=group,
    fields=GROUP_FIELDS,
    examples=[
        Example(
            "All groups, in Kafka and in ZooKeeper",
            "aiokafka08 group list -b kafka1:9092 --zookeeper zk1:2181",
        ),
    ],
)
@connection_options
@format_option
def list_(settings: Settings, format: str | None) -> int:
    """List all groups; idle ones too.

    Brokers of 0.8.2 to 0.10.0 don't list idle groups: there the topic __consumer_offsets is read,
    which may take a moment.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import in_options, note
    from aiokafka08._tools.cli.output import write_rows

    groups, errors, hint = run(_list(settings))
    write_rows((stored_group._asdict() for stored_group in groups), GROUP_FIELDS, format)
    for error in errors:
        note(f"groups may be missing: {error.text}")
    if hint is not None:
        note(in_options(hint))
    return 1 if errors else 0


async def _list(
    settings: Settings,
) -> tuple[list[StoredGroup], list[KafkaError], str | None]:
    """Return the readable groups, the errors of reading, and a hint about an omitted store.

    Raises:
        KafkaError: no group can be read.
    """
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.cli.notes import raise_all

    groups: list[StoredGroup] = []
    errors: list[KafkaError] = []
    hint: str | None = None
    async with admin_client(settings) as admin:
        for listing in await admin.list_groups_of_stores():
            groups += listing.groups
            errors += listing.errors
            hint = hint or listing.left_out
    if errors and not groups:
        raise_all(errors)
    return sorted(groups), errors, hint


@command(
    "describe",
    group=group,
    fields=MEMBER_FIELDS,
    examples=[
        Example("The members of a group", "aiokafka08 group describe billing -b kafka1:9092"),
    ],
)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@connection_options
@format_option
def describe(settings: Settings, groups: tuple[str, ...], format: str | None) -> int:
    """Show the state and the members of groups, a row per member."""
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import note_each
    from aiokafka08._tools.cli.output import rows_so_far
    from aiokafka08._tools.cli.table import Grouping

    grouping = Grouping(("group", "store", "state", "assignor", "offsets", "uncommitted"))
    with rows_so_far(MEMBER_FIELDS, format, grouping=grouping) as rows:
        errors, refused, lags = run(_describe(settings, groups, rows))
        missing = _refuse_unknown(settings, groups, {*refused, *(row["group"] for row in rows)})
    _note_uncommitted(row._asdict() for row in lags)
    return max(_note_missing(settings, missing), note_each(error.text for error in errors))


async def _describe(
    settings: Settings, names: Sequence[str], rows: list[Row]
) -> tuple[list[KafkaError], set[str], list[PartitionLag]]:
    """Add the rows of all groups that can be described.

    Returns:
        The errors, the groups that have no row because of an error, and the partitions without a
        committed offset in topics of which the group has committed other partitions.

    Raises:
        KafkaError: no group can be described, and there are errors.
    """
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.cli.notes import raise_all

    async with admin_client(settings) as admin:
        possible = await admin.possible_groups(list(dict.fromkeys(names)))
        # Errors of reading the lags come again below, from reading the groups.
        lags = [
            row
            for row in (await admin.read_group_lags(list(dict.fromkeys(names)))).rows
            if row.committed is None and row.error is None
        ]
        described = {
            (described_group.store, described_group.group): described_group
            for described_group in await admin.describe_stored_groups(possible)
        }
        committed = {
            (stored.store, stored.group): stored
            for stored in await admin.list_stored_offsets(possible)
        }
    errors: list[KafkaError] = []
    refused: set[str] = set()
    uncommitted = Counter((row.store, row.group) for row in lags)
    for stored_group in sorted(possible):
        key = stored_group.store, stored_group.group
        described_group, stored = described.get(key), committed[key]
        error = stored.error if described_group is None else described_group.error or stored.error
        if error is not None:
            errors.append(error)
            refused.add(stored_group.group)
            continue
        description = None if described_group is None else described_group.description
        offsets = len(stored.offsets)
        odd = [*stored.all_errors(), *(() if described_group is None else described_group.errors)]
        errors += odd
        is_dead = description is None or description.state == "Dead"
        if is_dead and not offsets and not odd:
            continue
        members: Sequence[MemberDescription | None] = [None]
        state, assignor = None, None
        if description is not None:
            members = description.members or members
            state = "Empty" if is_dead else description.state
            assignor = description.protocol
        rows += [
            {
                "group": stored_group.group,
                "store": stored_group.store,
                "state": state,
                "assignor": assignor,
                **_member_row(member),
                "offsets": offsets,
                "uncommitted": uncommitted[key],
            }
            for member in members
        ]
    if errors and not rows:
        raise_all(errors)
    return errors, refused, lags


def _note_uncommitted(rows: Iterable[Row]) -> None:
    """Note the partitions without a committed offset in rows of lag, except empty ones."""
    from aiokafka08._tools.cli.notes import note

    unread = [
        f"{row['topic']}/{row['partition']} ({row['group']})"
        for row in rows
        if row["committed"] is None and row["error"] is None and row["end"] != 0
    ]
    if unread:
        note(
            f"lag unknown: no offset is committed for {some_of(unread)}. There the group begins as "
            "its auto_offset_reset says"
        )


def _member_row(member: MemberDescription | None) -> dict[str, Any]:
    from aiokafka08.admin.group_description import member_row

    if member is None:
        return {"member": None, "client_id": None, "host": None, "partitions": []}
    return member_row(member)


@command(
    "lag",
    group=group,
    fields=LAG_FIELDS,
    examples=[
        Example("The lag of a group", "aiokafka08 group lag billing -b kafka1:9092"),
        Example(
            "The lag of all groups, as JSON",
            "aiokafka08 group lag --all -b kafka1:9092 --zookeeper zk1:2181 --format json",
        ),
    ],
)
@click.argument("groups", nargs=-1, metavar="[GROUP]...", shell_complete=group_names)
@click.option("--all", "all_groups", is_flag=True, help="All groups of the cluster.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=topic_names,
    help="Only this topic; may be repeated.",
)
@click.option(
    "--watch",
    metavar="DURATION",
    help="Draw the table again and again, this long apart (2s, 1m), until Ctrl-C; on a terminal.",
)
@connection_options
@format_option
def lag(
    settings: Settings,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    watch: str | None,
    format: str | None,
) -> int:
    """Show how far groups are behind, a row per partition and store.

    A group has a row for each partition of a topic of which it has committed an offset. On a
    terminal the lag of each group, and of all, counts a partition of a group in both stores once,
    by the higher committed offset; an empty partition without a committed offset counts as 0.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import in_options, note, note_each
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.cli.table import Grouping

    if bool(groups) == all_groups:
        raise click.UsageError("group lag: name groups, or give --all")
    if watch is not None:
        _watch_lag(settings, groups, topics, watch, format)
    rows, others, hint = run(_lag(settings, groups))
    missing = _refuse_unknown(settings, groups, {row["group"] for row in rows})
    try:
        wanted, without_offsets = _rows_of_topics(rows, topics)
    except UnknownTopicOrPartitionError:
        note_each(others)
        raise
    write_rows(wanted, LAG_FIELDS, format, grouping=Grouping(*LAG_GROUPING))
    beyond = [
        f"{row['topic']}/{row['partition']} ({row['group']})" for row in wanted if _is_beyond(row)
    ]
    if beyond:
        note(
            f"negative lag: committed beyond the end of {some_of(beyond)}. The log has lost "
            "messages, or the topic was made anew; the group goes on as its auto_offset_reset "
            "says. Just after a change of leader it may pass: look again"
        )
    _note_uncommitted(wanted)
    if without_offsets:
        note(without_offsets)
    if hint is not None:
        note(in_options(hint))
    unreadable = note_each([*(row["error"] for row in wanted if row["error"]), *others])
    missed = _note_missing(settings, missing, is_partial=bool(others))
    return missed or int(bool(without_offsets)) or unreadable


def _watch_lag(
    settings: Settings,
    groups: Sequence[str],
    topics: Collection[str],
    watch: str,
    format: str | None,
) -> NoReturn:
    """Draw the table on the terminal again and again, until Ctrl-C.

    Raises:
        IllegalArgumentError: `watch` isn't a duration.
        UsageError: stdout can't be redrawn.
    """
    import sys

    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.terminal import shows_escapes
    from aiokafka08._tools.times import parse_duration
    from aiokafka08.errors import IllegalArgumentError

    interval_s = parse_duration("--watch", watch) / 1000
    if interval_s <= 0:
        raise IllegalArgumentError(f"--watch={watch!r}: expected a duration > 0, such as 2s")
    if format not in (None, "table") or not shows_escapes(sys.stdout):
        raise click.UsageError(
            "group lag: --watch redraws a table, so stdout must be a terminal, without another "
            "--format. Call group lag in a loop, or use the exporter"
        )
    run(_redraw_lag(settings, groups, topics, interval_s))
    raise AssertionError("ends by Ctrl-C only")


async def _redraw_lag(
    settings: Settings, groups: Sequence[str], topics: Collection[str], interval_s: float
) -> None:
    import asyncio
    import time

    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.cli.main import error_text
    from aiokafka08._tools.cli.notes import in_options
    from aiokafka08._tools.cli.output import redraw, shown_table
    from aiokafka08._tools.cli.table import Grouping
    from aiokafka08._tools.similar_names import similar_groups
    from aiokafka08.errors import GroupIdNotFound

    table, is_first = "", True
    async with admin_client(settings) as admin:
        while True:
            problem = ""
            try:
                rows, others, hint = await _read_lags(admin, groups)
            except KafkaError as error:
                if is_first:
                    raise
                problem = f" - {error_text(error)}"
            else:
                if is_first and groups and not rows:
                    similar = await similar_groups(admin, groups)
                    raise GroupIdNotFound(_missing_text(settings, groups) + similar)
                try:
                    wanted, without_offsets = _rows_of_topics(rows, topics)
                except UnknownTopicOrPartitionError as error:
                    if is_first:
                        raise
                    wanted, without_offsets = [], error.text
                table = shown_table(wanted, LAG_FIELDS, grouping=Grouping(*LAG_GROUPING))
                missing = sorted(set(groups) - {row["group"] for row in rows})
                unknown = _missing_text(settings, missing) if missing else None
                odd = [row["error"] for row in wanted if row["error"]]
                texts = [*odd, *others, without_offsets, unknown, hint]
                problem = "".join(f" - {in_options(text)}" for text in texts if text)
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            redraw(f"{now}, every {interval_s:g} s{problem}", table, is_first=is_first)
            is_first = False
            await asyncio.sleep(interval_s)


def _is_beyond(row: Mapping[str, Any]) -> bool:
    return row["lag"] is not None and row["lag"] < 0


async def _lag(
    settings: Settings, groups: Sequence[str]
) -> tuple[list[Row], list[str], str | None]:
    from aiokafka08._tools.cli.connection import admin_client

    async with admin_client(settings) as admin:
        return await _read_lags(admin, groups)


async def _read_lags(
    admin: AIOKafkaAdminClient, groups: Sequence[str]
) -> tuple[list[Row], list[str], str | None]:
    """Return the rows, the errors that aren't in a row, and a hint about an omitted store.

    No names in `groups` means all groups; only then there may be a hint.

    Raises:
        KafkaError: nothing can be read.
    """
    from aiokafka08._tools.cli.notes import raise_all

    lags = await admin.read_group_lags(list(dict.fromkeys(groups)) or None)
    if lags.errors and not lags.rows:
        raise_all(lags.errors)
    errors = [error.text for error in lags.errors]
    return [group_lag._asdict() for group_lag in lags.rows], errors, lags.left_out


def _rows_of_topics(rows: list[Row], topics: Collection[str]) -> tuple[list[Row], str]:
    """Return the rows of the named topics, or of all, and a text on topics without rows.

    Raises:
        UnknownTopicOrPartitionError: none of the named topics has a row.
    """
    wanted = [row for row in rows if not topics or row["topic"] in topics]
    missing = sorted(set(topics) - {row["topic"] for row in rows})
    if not missing:
        return wanted, ""
    text = f"no committed offsets, and no members, of {', '.join(map(repr, missing))}"
    if wanted:
        return wanted, text
    from aiokafka08._core.names import did_you_mean

    similar = did_you_mean(missing[0], sorted({row["topic"] for row in rows}))
    raise UnknownTopicOrPartitionError(text + similar)


def _refuse_unknown(settings: Settings, groups: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the unknown groups.

    Raises:
        KafkaError: none of the named groups is known.
    """
    missing = [name for name in dict.fromkeys(groups) if name not in known]
    if missing and not known:
        from aiokafka08.errors import GroupIdNotFound

        raise GroupIdNotFound(_missing_text(settings, missing) + _similar(settings, missing))
    return missing


def _note_missing(settings: Settings, missing: Sequence[str], *, is_partial: bool = False) -> int:
    """Note unknown groups, and return the exit code.

    Args:
        settings: the cluster.
        missing: the groups.
        is_partial: True if a store that couldn't be read may have them (default False).
    """
    if not missing:
        return 0
    from aiokafka08._tools.cli.notes import note

    text = _missing_text(settings, missing)
    if is_partial:
        text = f"{text}, as far as these can be read"
    note(text + _similar(settings, missing))
    return 1


def _similar(settings: Settings, missing: Sequence[str]) -> str:
    from aiokafka08._tools.cli.connection import admin_client, run
    from aiokafka08._tools.similar_names import similar_groups

    async def work() -> str:
        async with admin_client(settings) as admin:
            return await similar_groups(admin, missing)

    try:
        return run(work())
    except KafkaError:
        return ""  # the error is shown without similar names


def _missing_text(settings: Settings, missing: Collection[str]) -> str:
    names = ", ".join(map(repr, missing))
    subject = f"group {names} has" if len(missing) == 1 else f"groups {names} have"
    text = f"{subject} no members and no committed offsets"
    if settings.zookeeper_connect is not None:
        return f"{text}, in Kafka and below {settings.zookeeper_connect}"
    return f"{text}. For groups in ZooKeeper, give --zookeeper"


for moving in (reset, export, import_):
    group.add_command(moving)


@command(
    "delete",
    group=group,
    fields=DELETION_FIELDS,
    examples=[
        Example(
            "Delete a group, with its offsets",
            "aiokafka08 group delete copy -b kafka1:9092 --zookeeper zk1:2181 --yes",
        ),
    ],
)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@click.option(
    "--store",
    type=click.Choice(["kafka", "zookeeper"]),
    help="Delete it only there (default: in both).",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@backup_option
@connection_options
@format_option
def delete(
    settings: Settings,
    groups: tuple[str, ...],
    store: str | None,
    yes: bool,
    backup: str | None,
    format: str | None,
) -> int:
    """Delete groups without members, with their committed offsets.

    Groups in ZooKeeper need --zookeeper. Brokers from 1.1 on delete a group at once; on those of
    0.8.2 to 1.0 its offsets are made to expire, and group lag shows them until then. Nothing is
    deleted if one of the groups has members, and no group whose offsets can't be saved first.
    """
    import sys

    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.group_backup import Backup
    from aiokafka08._tools.cli.notes import note, note_each
    from aiokafka08._tools.cli.output import rows_so_far

    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError("group delete needs --yes where nobody can be asked")
        question = f"Delete {', '.join(groups)} with all offsets, on {settings.cluster}?"
        click.confirm(question, abort=True, err=True)
    saved = Backup(backup)
    with rows_so_far(DELETION_FIELDS, format) as rows:
        try:
            run(_delete(settings, groups, store, rows, saved))
        except BaseException:  # Ctrl-C, too
            saved.note_way_back(settings)
            raise
        missing = _refuse_unknown(settings, groups, {row["group"] for row in rows})
    kept: dict[str, list[str]] = {}
    for row in rows:
        if row["error"] is not None:
            kept.setdefault(row["error"], []).append(f"{row['group']!r} ({row['store']})")
    failed = note_each([f"not deleted: {some_of(kept[text])}: {text}" for text in kept])
    if rows:
        note(f"{_outcomes_text(rows)}, on {settings.cluster}")
    saved.note_way_back(settings)
    if store is None and settings.zookeeper_connect is None:
        note("offsets in ZooKeeper were not looked for, and are kept: see --zookeeper")
    return _note_missing(settings, missing) or failed


def _outcomes_text(rows: Iterable[Row]) -> str:
    """Return the number of groups by outcome, such as "2 groups deleted, 1 not deleted".

    Groups with different outcomes in their two stores count separately, with both outcomes.
    """
    verbs = {"deleted": "deleted", "expiring": "expiring", "failed": "not deleted"}
    of_group: dict[str, dict[str, str]] = {}
    for row in rows:
        of_group.setdefault(row["group"], {})[row["store"]] = row["outcome"]
    numbers: Counter[str] = Counter()
    for outcomes in of_group.values():
        if len(set(outcomes.values())) == 1:
            [outcome] = set(outcomes.values())
            numbers[verbs[outcome]] += 1
        else:
            parts = [f"{verbs[outcomes[store]]} in {store}" for store in sorted(outcomes)]
            numbers[" and ".join(parts)] += 1
    order = {verb: at for at, verb in enumerate(verbs.values())}
    texts: list[str] = []
    for text in sorted(numbers, key=lambda text: order.get(text, len(order))):
        noun = "" if texts else f" group{'s' * (numbers[text] != 1)}"
        texts.append(f"{numbers[text]}{noun} {text}")
    return ", ".join(texts)


async def _delete(
    settings: Settings, groups: Sequence[str], store: str | None, rows: list[Row], saved: Backup
) -> None:
    """Delete the groups, and add a row for each one as soon as its outcome is known.

    Raises:
        KafkaError: no group is deleted.
    """
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.cli.group_backup import offsets_to_save
    from aiokafka08._tools.cli.progress import Progress
    from aiokafka08._tools.group_reset import existing_partitions

    stores = {store}
    if store is None:
        stores = {"kafka"} if settings.zookeeper_connect is None else {"kafka", "zookeeper"}
    async with admin_client(settings) as admin:
        possible = await admin.possible_groups(list(dict.fromkeys(groups)))
        wanted = sorted(stored_group for stored_group in possible if stored_group.store in stores)
        await admin.check_group_changes(wanted)
        offsets: list[Saved] = []
        unsaved: dict[StoredGroup, KafkaError] = {}
        for stored_group, stored in zip(
            wanted, await admin.list_stored_offsets(wanted), strict=True
        ):
            try:
                offsets += offsets_to_save(stored)
            except KafkaError as error:
                unsaved[stored_group] = error
        existing = await existing_partitions(admin)
        saved.has_missing = any((one.topic, one.partition) not in existing for one in offsets)
        saved.save(offsets)
        rows += [_failed_row(stored_group, error) for stored_group, error in unsaved.items()]
        wanted = [stored_group for stored_group in wanted if stored_group not in unsaved]
        with Progress("groups", len(wanted), "groups") as progress:
            for at in range(0, len(wanted), _AT_ONCE):
                chunk = wanted[at : at + _AT_ONCE]
                try:
                    deletions = await admin.delete_stored_groups(chunk)
                except KafkaError as error:  # the other calls would fail too
                    rows += [_failed_row(stored_group, error) for stored_group in wanted[at:]]
                    return
                for stored_group, deletion in zip(chunk, deletions, strict=True):
                    if isinstance(deletion, KafkaError):
                        rows.append(_failed_row(stored_group, deletion))
                    elif deletion.outcome != "missing":
                        rows.append(deletion._asdict() | {"error": None})
                progress.add(len(chunk))


def _failed_row(stored_group: StoredGroup, error: KafkaError) -> Row:
    return {
        "group": stored_group.group,
        "store": stored_group.store,
        "outcome": "failed",
        "error": error.text,
    }
