"""`doctor`: is the cluster healthy? The rules are in `aiokafka08._tools.doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from aiokafka08._tools.cli.declare import Example, command, connection_options, format_option
from aiokafka08._tools.cli.settings import Settings

if TYPE_CHECKING:
    from aiokafka08._tools.doctor.examination import Examination
    from aiokafka08._tools.doctor.finding import Finding

FIELDS: Final = {
    "code": "the code of the finding ('The doctor' in the documentation lists them)",
    "severity": "critical, warning or note; notes don't count as findings",
    "where": "the broker, the topic and partitions, the group, or the client",
    "why": "what was found, and why it matters",
    "action": "what to do",
}

CANNOT_LOOK: Final = 2


@command(
    "doctor",
    fields=FIELDS,
    examples=[
        Example(
            "With ZooKeeper, and with what takes two samples",
            "aiokafka08 doctor -b kafka1:9092 --zookeeper zk1:2181 --watch 60s",
        ),
        Example(
            "For a script that ignores idle groups",
            "aiokafka08 doctor -b kafka1:9092 --ignore idle-group-lag --format json",
        ),
    ],
)
@click.option(
    "--watch",
    metavar="DURATION",
    help="Look twice, this long apart (60s, 5m): for retention that overtakes groups, groups "
    "without members that commit, and the log cleaner.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE",
    help="Leave out findings with this code; may be repeated.",
)
@connection_options
@format_option
def doctor(
    settings: Settings, watch: str | None, ignore: tuple[str, ...], format: str | None
) -> int:
    """Find what is wrong with a cluster, or soon will be. Read-only.

    The exit code is 0 if the cluster is healthy, 1 if there are findings, 2 if it can't be looked
    at. A failed authentication is a finding. The consequences of a missing broker are one paragraph
    for people, and a row each in other formats. --format json prints
    {"healthy": ..., "findings": [...]}, each with its cause or null.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.findings import write_findings
    from aiokafka08._tools.cli.main import error_text, fail
    from aiokafka08._tools.doctor.authentication import authentication_findings
    from aiokafka08._tools.doctor.examination import examine
    from aiokafka08._tools.doctor.finding import find_code
    from aiokafka08._tools.times import parse_duration
    from aiokafka08.errors import IllegalArgumentError, KafkaError

    watch_s = None if watch is None else parse_duration("--watch", watch) / 1000
    if watch_s is not None and watch_s <= 0:
        raise IllegalArgumentError(f"--watch={watch!r}: expected a duration > 0, such as 60s")
    ignored = {find_code("--ignore", text) for text in ignore}
    try:
        all_findings = examine(run(_look(settings, watch_s)))
    except KafkaError as error:
        all_findings = authentication_findings(error)
        if not all_findings:
            return fail(error_text(error), CANNOT_LOOK)
        ignored.clear()  # nothing else was looked at, so the cluster isn't known to be healthy
    findings = [_in_options(one) for one in all_findings if one.code not in ignored]
    return write_findings(findings, FIELDS, format)


def _in_options(finding: Finding) -> Finding:
    """Return the finding with properties and flags in place of the clients' arguments."""
    from dataclasses import replace

    from aiokafka08._tools.cli.notes import in_options

    return replace(finding, why=in_options(finding.why), action=in_options(finding.action))


async def _look(settings: Settings, watch_s: float | None) -> Examination:
    from aiokafka08._tools.cli.connection import admin_client, range_router
    from aiokafka08._tools.doctor.gathering import look

    has_zookeeper = settings.zookeeper_connect is not None
    async with admin_client(settings) as admin, range_router(settings) as router:
        return await look(admin, router, has_zookeeper=has_zookeeper, watch_s=watch_s, sleep=_watch)


async def _watch(seconds: float) -> None:
    """Wait this long, with a progress bar."""
    import asyncio

    from aiokafka08._tools.cli.progress import Progress

    with Progress("watching", round(seconds), "seconds") as progress:
        while seconds > 0:
            await asyncio.sleep(min(seconds, 1.0))
            seconds -= 1.0
            progress.add(1)
