"""`bridge verify`: is each message at the target, once and in order?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import Example, command
from aiokafka08._tools.cli.output import FORMATS
from aiokafka08._wording import counted, partition_name, some_of

if TYPE_CHECKING:
    from aiokafka08.bridge.config import BridgeConfig
    from aiokafka08.bridge.verify.verification import OffsetPair, PartitionVerdict
    from aiokafka08.bridge.verify.verify_state import VerifyState

FIELDS: Final = {
    "topic": "the topic at the source",
    "partition": "the partition's number",
    "source_count": "how many messages the source has; behind a difference only counted",
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
        for verdict in verdicts:
            if verdict.first_map is not None or verdict.last_map is not None:
                note(f"{partition_name(verdict)}: offset map: {_maps_text(verdict)}")
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
    else:
        for verdict in idle:
            note(f"{partition_name(verdict)}: nothing is copied yet")
    if waiting := sum(verdict.waiting for verdict in verdicts):
        some = [
            f"{partition_name(verdict)} ({verdict.waiting})"
            for verdict in verdicts
            if verdict.waiting
        ]
        verbs = "isn't copied yet; it wasn't" if waiting == 1 else "aren't copied yet; they weren't"
        note(f"{counted(waiting, 'offset')} at the source {verbs} compared: {some_of(some)}")
    for verdict in verdicts:
        if verdict.before:
            is_one = verdict.before == 1
            note(
                f"{partition_name(verdict)}: {counted(verdict.before, 'offset')} of the "
                f"source {'is' if is_one else 'are'} in front of the first message copied; "
                f"{'it was' if is_one else 'they were'}n't compared"
            )
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


def _maps_text(verdict: PartitionVerdict) -> str:
    return ", ".join(
        f"{place} {_map_text(pair)}"
        for place, pair in (("first", verdict.first_map), ("last", verdict.last_map))
        if pair is not None
    )


def _map_text(pair: OffsetPair) -> str:
    text = f"{pair.source_offset} -> {pair.target_offset}"
    if pair.stored_target is None:
        return f"{text} (not checked: no runs cover it)"
    return f"{text} (the runs give {pair.stored_target})" if pair.is_wrong else text
