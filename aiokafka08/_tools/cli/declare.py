"""Declare commands: their options, the fields of their rows, and examples.

    @command("topics", fields={"topic": "its name"}, examples=[Example("All", "aiokafka08 topics")])
    @connection_options
    @format_option
    def topics(settings: Settings, format: str | None) -> None:
        \"\"\"List topics.\"\"\"
        run(print_topics(settings, format))

`--help` and docs/cli.md are generated from the declaration. A test runs each example, so examples
use the cluster `kafka1:9092` with ZooKeeper `zk1:2181`, the topic `orders` and the group `billing`.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from aiokafka08._core.names import did_you_mean
from aiokafka08._tools.cli.completing import profile_names
from aiokafka08._tools.cli.configuration import merged_settings
from aiokafka08._tools.cli.output import FORMATS
from aiokafka08._tools.cli.terminal import encodable
from aiokafka08.errors import IllegalArgumentError

Function = Callable[..., Any]
T = TypeVar("T")

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class Example(NamedTuple):
    """An example of a command's help."""

    # A sentence on its effect, without the full stop.
    text: str
    # A line for a shell.
    command: str
    # The exit code with which it ends.
    code: int = 0
    # True if it runs until Ctrl-C.
    until_interrupted: bool = False


class NamedStdout(click.Command):
    """A command whose error names stdout if `--help` or `--version` can't be written."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, in the characters that stdout has; click would print UTF-8."""
        return encodable(super().get_help(ctx), sys.stdout)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; click prints help and version meanwhile."""
        try:
            return super().parse_args(ctx, args)
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or "stdout") from None


class DeclaredCommand(NamedStdout):
    """A click command with fields and examples, which its help shows last."""

    def __init__(
        self,
        *arguments: Any,
        fields: Mapping[str, str] | None = None,
        fields_with: Mapping[str, Mapping[str, str]] | None = None,
        examples: Sequence[Example] = (),
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.fields = dict(fields or {})
        self.fields_with = dict(fields_with or {})
        self.examples = list(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the fields and the examples."""
        titles = {f"Fields with {option}": some for option, some in self.fields_with.items()}
        for title, fields in {"Fields": self.fields, **titles}.items():
            if fields:
                with formatter.section(title):
                    formatter.write_dl(list(fields.items()))
        if self.examples:
            with formatter.section("Examples"):
                for number, example in enumerate(self.examples):
                    if number:
                        formatter.write_paragraph()
                    formatter.write_text(f"{example.text}:")
                    indent = " " * formatter.current_indent
                    formatter.write(f"{indent}  {example.command}\n")


class CommandsGroup(NamedStdout, click.Group):
    """A group of commands; its errors correct a wrong name, or an option before the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the command's name."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            command = self._command_behind(ctx, words)
            if command is None and error.option_name in _shared_flags():
                names = ", ".join(self.list_commands(ctx))
                raise click.UsageError(
                    f"the option {error.option_name} belongs behind a command, as in "
                    f"'{ctx.command_path} COMMAND {shlex.join(words)}'. The commands are {names}",
                    ctx,
                ) from None
            if command is None:
                raise
            text = f"the option {error.option_name} belongs behind the command: {command}"
            raise click.UsageError(text, ctx) from None

    def _command_behind(self, ctx: click.Context, words: list[str]) -> str | None:
        """Return the words with the options behind the command; None if no command has them."""
        named: list[str] = []
        group: click.Command | None = self
        at = start = next(
            (index for index, word in enumerate(words) if word in self.list_commands(ctx)),
            len(words),
        )
        while isinstance(group, click.Group) and at < len(words):
            group = group.get_command(ctx, words[at])
            named.append(words[at])
            at += 1
        if group is None or isinstance(group, click.Group):
            return None
        options = {name for one in group.params for name in (*one.opts, *one.secondary_opts)}
        given = {word.partition("=")[0] for word in words[:start] if word.startswith("-")}
        if not given <= options:
            return None
        return shlex.join([*ctx.command_path.split(), *named, *words[:start], *words[at:]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            similar = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"No such command {name!r}{similar}", ctx)
        return super().resolve_command(ctx, args)


def _shared_flags() -> set[str]:
    """Return the options that most commands have."""
    shared = click.command("shared")(connection_options(format_option(lambda: None)))
    return {flag for option in shared.params for flag in option.opts}


class CommandGroup(CommandsGroup):
    """A group of commands, such as `topic`, whose help shows them in the order of the source."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of their declaration."""
        return list(self.commands)


class DeclaredGroup(CommandGroup, DeclaredCommand):
    """A group that also does something itself, if no command follows."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, invoke_without_command=True, **options)


def command(
    name: str,
    *,
    fields: Mapping[str, str] | None = None,
    fields_with: Mapping[str, Mapping[str, str]] | None = None,
    examples: Sequence[Example] = (),
    group: click.Group | None = None,
    cls: type[DeclaredCommand] = DeclaredCommand,
) -> Callable[[Function], DeclaredCommand]:
    """Return a decorator that makes a command of a function; the docstring is its help.

    Args:
        name: the command's name.
        fields: the fields of the rows that it prints, each with its meaning (default None).
        fields_with: by option, the fields of the rows that the command prints with this option
            (default None).
        examples: examples of its use; a command has at least one (default ()).
        group: the group of commands that it belongs to; None for `aiokafka08` itself
            (default None).
        cls: the class of the command (default DeclaredCommand).
    """

    def declare(function: Function) -> DeclaredCommand:
        made = click.command(
            name, cls=cls, fields=fields, fields_with=fields_with, examples=examples
        )(function)
        if group is not None:
            group.add_command(made)
        return made

    return declare


def format_option(function: Function) -> Function:
    """Add `--format`, which is passed as `format`, to a command that prints rows."""
    return click.option(
        "--format",
        type=click.Choice(FORMATS),
        help="How rows are printed (default: table on a terminal, tsv elsewhere).",
    )(function)


_CONNECTION_OPTIONS: Final = (
    click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT,...",
        help="Addresses of some brokers of the cluster.",
    ),
    click.option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="The cluster's ZooKeeper, for what brokers can't tell or do.",
    ),
    click.option(
        "-X",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        help="A property, by its Java or librdkafka name; may be repeated.",
    ),
    click.option(
        "-F",
        "--config",
        metavar="FILE",
        help="Properties: a .conf of kcat, a .properties of Java, or a .toml of profiles.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=profile_names,
        help="A profile of the .toml file.",
    ),
    click.option(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="How long to wait for the first broker, and for each response (default: 5 and 30).",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        help="What to log on stderr (default: error; exporter and console: warnings of refreshes, "
        "too).",
    ),
)


def connection_options(
    function: Function, *, unless: str | None = None, warns: str | None = None
) -> Function:
    """Add the options that name the cluster; pass the merged `Settings` first.

    Args:
        function: the function of a command.
        unless: a flag with which the command needs no cluster, and gets no settings (default None).
        warns: a logger whose warnings are shown without --log-level, too (default None).

    Raises:
        IllegalArgumentError: an option, a variable or a file is wrong.
    """

    @functools.wraps(function)
    def with_settings(
        *arguments: Any,
        bootstrap: str | None,
        zookeeper: str | None,
        properties: tuple[str, ...],
        config: str | None,
        profile: str | None,
        timeout: float | None,
        log_level: str | None,
        **others: Any,
    ) -> Any:
        from aiokafka08._tools.cli.notes import in_options

        # Kazoo logs a warning at each attempt; the command's own error or warning is enough.
        quiet = {} if log_level == "debug" else {"aiokafka08.admin.kazoo": "error"}
        if log_level is None and warns is not None:
            quiet |= {"aiokafka08": "error", warns: "warning"}
            log_level = "warning"
        log_to_stderr(log_level or "error", quiet, reword=in_options)
        if unless is not None and others[unless]:
            if bootstrap is not None:
                raise click.UsageError(f"--{unless} with -b: expected one of them")
            return function(None, *arguments, **others)
        given = {
            "bootstrap": bootstrap,
            "zookeeper": zookeeper,
            "properties": properties,
            "config": config,
            "profile": profile,
        }
        merged = merged_settings(given, timeout)
        import logging

        logger = logging.getLogger("aiokafka08.cli")
        for note in merged.notes:
            logger.info("%s: %s", merged.client_id, note)
        return function(merged, *arguments, **others)

    for option in reversed(_CONNECTION_OPTIONS):
        with_settings = option(with_settings)
    return with_settings


def name_value(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the values of an option that is given as NAME=VALUE, several times.

    Raises:
        IllegalArgumentError: one isn't NAME=VALUE.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise IllegalArgumentError(f"{option} {text}: expected NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def log_to_stderr(
    level: str,
    others: Mapping[str, str] | None = None,
    *,
    sender: str = "",
    reword: Callable[[str], str] = str,
) -> None:
    """Log to stderr from this level on, until the command ends; each line has its local time.

    Args:
        level: the level of the package's loggers.
        others: levels of single loggers, by their names (default None).
        sender: stands before each text (default "").
        reword: puts each text into the words of the command (default: unchanged).
    """
    import logging

    from aiokafka08._tools.cli.notes import note

    class NoteHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                note(self.format(record))
            except Exception:
                self.handleError(record)

    class Formatter(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:
            record.message = reword(record.message)
            return super().formatMessage(record)

    handler = NoteHandler()
    line = f"%(asctime)s %(levelname)s {sender}%(message)s"
    handler.setFormatter(Formatter(line, "%Y-%m-%d %H:%M:%S%z"))
    handler.setLevel(level.upper())
    logger = logging.getLogger()
    levels = {"aiokafka08": level, **(others or {})}
    before = {name: logging.getLogger(name).level for name in levels}
    logger.addHandler(handler)
    for name, logger_level in levels.items():
        logging.getLogger(name).setLevel(logger_level.upper())

    @click.get_current_context().call_on_close
    def restore() -> None:
        logger.removeHandler(handler)
        for name, logger_level in before.items():
            logging.getLogger(name).setLevel(logger_level)
