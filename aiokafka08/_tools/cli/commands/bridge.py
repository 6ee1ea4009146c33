"""`bridge`: copy topics and groups to a modern cluster, and prove that all arrived."""

from __future__ import annotations

from collections.abc import Sequence

import click

from aiokafka08._tools.cli.commands.bridge_cutover import cutover, plan
from aiokafka08._tools.cli.commands.bridge_groups import groups
from aiokafka08._tools.cli.commands.bridge_run import run_, status_
from aiokafka08._tools.cli.commands.bridge_verify import verify
from aiokafka08._tools.cli.declare import CommandGroup, log_to_stderr
from aiokafka08.errors import IllegalArgumentError


@click.group("bridge", cls=CommandGroup)
@click.pass_context
def bridge(context: click.Context) -> None:
    """Move topics and groups to a cluster of Kafka 4.x, exactly once.

    FILE is the bridge's TOML file; 'Moving to a cluster of today' in the documentation
    has a walk from the first look to the end.
    """
    if context.invoked_subcommand != "run":
        log_to_stderr("error")


def _rename_option() -> click.Option:
    """Return `--rename`, which applies when the command reads FILE."""
    return click.Option(
        ["--rename"],
        multiple=True,
        metavar="FROM=TO",
        help="Name topics that match FROM as TO at the target, such as '(.*)=old.\\1', before "
        "the rules of FILE; may be repeated. Each command of a bridge needs the same.",
        expose_value=False,
        callback=_rename,
    )


def _rename(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> None:
    from aiokafka08.bridge.config import renames_first
    from aiokafka08.bridge.topic_map import rename_rule

    rules = []
    for text in texts:
        pattern, _, name = text.rpartition("=")  # a pattern may have "=", a name can't
        if not pattern or not name:
            raise IllegalArgumentError(
                f"--rename={text!r}: expected FROM=TO, such as '(.*)=old.\\1': a pattern for the "
                "whole name of a topic, and the name at the target"
            )
        rules.append(rename_rule("--rename", pattern, name))
    if rules:
        context.with_resource(renames_first(rules))


for subcommand in (run_, status_, verify, groups, plan, cutover):
    subcommand.params.append(_rename_option())
    bridge.add_command(subcommand)
