"""The command `aiokafka08`: find a command by its name, and import only its module.

Invariant: `SECTIONS` has the commands in the order of `--help`, each with the short help that its
module states too, so that the list is shown without importing the modules.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

import aiokafka08
from aiokafka08._tools.cli.completing import COMPLETION_VARIABLE, complete
from aiokafka08._tools.cli.declare import CommandsGroup

PROGRAM: Final = "aiokafka08"


class CommandEntry(NamedTuple):
    """The module in `commands/` that defines a command under its name, and the short help."""

    module: str
    short_help: str


SECTIONS: Final[Mapping[str, Mapping[str, CommandEntry]]] = {
    "Look": {
        "metadata": CommandEntry("metadata", "Show brokers and partitions."),
        "topics": CommandEntry("metadata", "List topics."),
        "offsets": CommandEntry(
            "offsets",
            "Show where the logs of a TOPIC begin and end.",
        ),
    },
    "Move": {
        "produce": CommandEntry("produce", "Send messages from stdin or files."),
        "consume": CommandEntry("consume", "Write the records of topics to stdout."),
        "bench": CommandEntry("bench", "Measure producing, consuming and latency."),
    },
    "Groups": {
        "group": CommandEntry(
            "group",
            "List groups, show their lag, move their offsets.",
        ),
    },
    "Change": {
        "topic": CommandEntry("topic", "Create, delete, grow and configure topics."),
    },
    "Migrate": {
        "bridge": CommandEntry(
            "bridge", "Move topics and groups to a cluster of Kafka 4.x, exactly once."
        ),
        "gateway": CommandEntry(
            "gateway", "Let clients of old Kafka releases use a cluster of today."
        ),
    },
    "Watch": {
        "exporter": CommandEntry("exporter", "Serve metrics to Prometheus."),
        "doctor": CommandEntry("doctor", "Find what is wrong with a cluster, or soon will be."),
        "console": CommandEntry(
            "console",
            "Show a cluster in the browser.",
        ),
    },
    "Try": {
        "cluster": CommandEntry("cluster", "Run a Kafka cluster in memory."),
        "completion": CommandEntry("completion", "Print the completion script of a SHELL."),
        "kcat": CommandEntry("kcat", "Run with kcat's one-letter flags."),
    },
}
COMMANDS: Final[Mapping[str, CommandEntry]] = {
    name: entry for section in SECTIONS.values() for name, entry in section.items()
}


class RootCommand(CommandsGroup):
    """A click group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no such command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"aiokafka08._tools.cli.commands.{entry.module}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and short helps by section, without importing a command."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.short_help) for name, entry in section.items()])


@click.command(
    PROGRAM,
    cls=RootCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Addresses and other settings may also come from environment variables, a profile, or a "
        "configuration file of kcat, librdkafka or Java: see 'The command line' in the "
        "documentation."
    ),
)
@click.version_option(aiokafka08.__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def root() -> None:
    """Look into Kafka clusters of 0.8 to 3.9, move messages, and manage topics and groups."""


def run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code.

    Raises:
        click.ClickException: the command line is wrong.
        click.exceptions.Exit: the command has ended early, as `--help` does.
    """
    words: list[str] = list(arguments)
    if COMPLETION_VARIABLE in os.environ:
        return complete(root, PROGRAM)
    with root.make_context(PROGRAM, words) as context:
        code: Any = root.invoke(context)
    return code if isinstance(code, int) else 0
