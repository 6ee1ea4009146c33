"""`bridge`: copy topics and groups to a modern cluster, and prove that all arrived."""

from __future__ import annotations

import click

from aiokafka08.cli.commands.bridge_cutover import cutover, plan
from aiokafka08.cli.commands.bridge_groups import groups
from aiokafka08.cli.commands.bridge_run import run_, status_
from aiokafka08.cli.commands.bridge_verify import verify
from aiokafka08.cli.declare import CommandGroup, log_to_stderr


@click.group("bridge", cls=CommandGroup)
@click.pass_context
def bridge(context: click.Context) -> None:
    """Move topics and groups to a cluster of Kafka 4.x, exactly once.

    FILE is the bridge's TOML file; 'Moving to a cluster of today' in the documentation
    has a walk from the first look to the end.
    """
    if context.invoked_subcommand != "run":
        log_to_stderr("error")


for one in (run_, status_, verify, groups, plan, cutover):
    bridge.add_command(one)
