"""`bridge verify`: is each message at the target, once and in order?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import Example, command
from aiokafka08._tools.cli.output import FORMATS
from aiokafka08._wording import counted, partition_name, some_of

if TYPE_CHECKING:
    from aiokafka08.bridge.config import BridgeConfig
    from aiokafka08.bridge.verify.verification import PartitionVerdict
    from aiokafka08.bridge.verify.verify_state import VerifyState

FIELDS: Final = {
    "topic": "the topic at the source",
    "partition": "the partition's number",
    "source_count": "how many messages the source has; those after a difference are only counted",
    "target_count": "how many the target has",
    "equal": "whether these are the same messages, in order, with the right stored offsets",
    "first_difference": "the source offset of the first one that differs, or whose stored "
    "offset is wrong; null: none",
}

EQUAL: Final = 0
DIFFERENT: Final = 1

_SAVE_S: Final = 5.0


@command(
    "verify",
    fields=FIELDS,
    examples=[
        Example("Compare all that is copied", "aiokafka08 bridge verify bridge.toml"),
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--timestamps", is_flag=True, help="Compare the timestamps, too.")
@click.option(
    "--resume",
    is_flag=True,
    help="Go on where the last call ended, and look again from each difference on.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Where the progress is kept (default: FILE with the ending .verify.json).",
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help='How the result is printed (default: table on a terminal, tsv elsewhere). "json" is one '
    'object, {"partitions": [...], "equal": ...}.',
)
def verify(
    file: Path, timestamps: bool, resume: bool, state: Path | None, format: str | None
) -> int:
    """Compare each partition with its copy, message by message.

    Keys and values are compared, in order, from the start of the source's log, or of the copy if
    that began later, to the bridge's position. Each side is read once. The exit code is 1 if they
    differ, nothing of a partition is copied yet, or a pattern of topics.include matches no topic
    (then nothing is compared).
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_json, write_rows
    from aiokafka08.bridge.config import read_config
    from aiokafka08.bridge.verify.verify_state import VerifyState, state_path

    config = read_config(file)
    if timestamps and config.copy.timestamps == "now":
        raise click.UsageError(
            f'--timestamps: copy.timestamps = "now" in {file} gives each message the time of its '
            "copy, so all would differ. Leave --timestamps out"
        )
    kept = VerifyState(state or state_path(file), config.name, timestamps)
    if resume:
        kept.load()
    kept.save(now=time.time())  # fails now, not after hours, if the file can't be written
    try:
        verdicts = run(_verify(config, kept, timestamps))
    except KeyboardInterrupt:
        note("stopped; --resume goes on where it ended")
        raise
    rows = [_row(verdict) for verdict in verdicts]
    equal = all(verdict.is_equal for verdict in verdicts)
    if format == "json":
        write_json({"partitions": rows, "equal": equal})
    else:
        write_rows(rows, FIELDS, format)
        for text in _map_texts(verdicts):
            note(text)
    for verdict in verdicts:
        if (difference := verdict.difference) is not None:
            note(
                f"{partition_name(verdict)}: {difference.kind}: offset "
                f"{difference.source_offset} of the source, {difference.target_offset} of "
                f"{verdict.target_topic}/{verdict.partition} at the target"
                + (
                    ": a message of another producer, which the bridge hasn't written"
                    if verdict.is_of_another
                    else ""
                )
            )
        if (wrong := verdict.wrong_map) is not None:
            note(
                f"{partition_name(verdict)}: wrong offset map: offset "
                f"{wrong.source_offset} of the source is offset {wrong.target_offset} of "
                f"{verdict.target_topic}/{verdict.partition} at the target, but the runs in "
                f"topic {config.offsets_topic} give {wrong.stored_target}. Don't carry over "
                "groups, which would go on at the wrong message: copy the topic again, to a new "
                "target topic by a new bridge"
            )
    idle = [verdict for verdict in verdicts if not verdict.has_begun]
    if idle and not any(verdict.progress.source_count for verdict in verdicts):
        note(
            f"nothing is copied yet: start 'bridge run', or check name, target and rename in {file}"
        )
    elif idle:
        names = some_of([partition_name(verdict) for verdict in idle])
        note(f"nothing is copied yet of {counted(len(idle), 'partition')}: {names}")
    if waiting := {partition_name(one): one.waiting for one in verdicts if one.waiting}:
        verb = "isn't" if sum(waiting.values()) == 1 else "aren't"
        note(_uncompared(waiting, f"at the source {verb} copied yet"))
    if before := {partition_name(one): one.before for one in verdicts if one.before}:
        verb = "is" if sum(before.values()) == 1 else "are"
        note(_uncompared(before, f"of the source {verb} in front of the first message copied"))
    return EQUAL if equal else DIFFERENT


async def _verify(
    config: BridgeConfig, kept: VerifyState, timestamps: bool
) -> list[PartitionVerdict]:
    from aiokafka08.bridge.verify.verification import verify as compare

    saved_at = time.monotonic()

    def keep(verdict: PartitionVerdict) -> None:
        nonlocal saved_at
        kept.note(verdict)
        if time.monotonic() - saved_at >= _SAVE_S:
            kept.save(now=time.time())
            saved_at = time.monotonic()

    is_complete = False
    try:
        verdicts = await compare(
            config, resume=kept.verdicts, timestamps=timestamps, on_progress=keep
        )
        is_complete = True
        return verdicts
    finally:
        kept.save(now=time.time(), is_complete=is_complete)


def _row(verdict: PartitionVerdict) -> dict[str, Any]:
    return {
        "topic": verdict.topic,
        "partition": verdict.partition,
        "source_count": verdict.progress.source_count,
        "target_count": verdict.progress.target_count,
        "equal": verdict.is_equal,
        "first_difference": verdict.first_difference,
    }


def _map_texts(verdicts: Sequence[PartitionVerdict]) -> Iterator[str]:
    """Yield a text about the offset maps that are right, and one about those not checked.

    An offset map is a pair of offsets of one message, at the source and at the target. Those of
    partitions that aren't equal are left out.
    """
    right: list[str] = []
    uncovered: list[str] = []
    for verdict in verdicts:
        maps = {"first": verdict.first_map, "last": verdict.last_map}
        found = {place: pair for place, pair in maps.items() if pair is not None}
        if not found or not verdict.is_equal:
            continue
        # Pairs that aren't checked, because no stored run covers their message.
        unknown = {place: pair for place, pair in found.items() if pair.stored_target is None}
        pairs = ", ".join(
            f"{place} {pair.source_offset} -> {pair.target_offset}"
            for place, pair in (unknown or found).items()
        )
        (uncovered if unknown else right).append(f"{partition_name(verdict)} ({pairs})")
    if right:
        verb = "is" if len(right) == 1 else "are"
        yield f"{counted(len(right), 'offset map')} {verb} right: {some_of(right)}"
    if uncovered:
        verb, them = ("isn't", "it") if len(uncovered) == 1 else ("aren't", "them")
        yield (
            f"{counted(len(uncovered), 'offset map')} {verb} checked, since no stored runs cover "
            f"{them}: {some_of(uncovered)}"
        )


def _uncompared(counts: Mapping[str, int], where: str) -> str:
    """Return how many offsets weren't compared, for which reason, and in which partitions."""
    total = sum(counts.values())
    names = [f"{name} ({count})" for name, count in counts.items()]
    they = "it wasn't" if total == 1 else "they weren't"
    return f"{counted(total, 'offset')} {where}; {they} compared: {some_of(names)}"
