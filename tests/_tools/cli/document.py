"""Write docs/cli.md from the declarations of the commands: `python -m tests._tools.cli.document`.

The page has for each command its help, options, fields and examples. test_document.py checks that
the page is up to date, and runs the examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from aiokafka08._tools.cli.declare import DeclaredCommand, Example
from aiokafka08._tools.cli.root import SECTIONS, root
from aiokafka08._tools.cli.settings import SETTABLE
from tests.support.paths import ROOT

PAGE = ROOT / "docs/cli.md"
BEGIN = "<!-- python -m tests._tools.cli.document writes what follows -->\n"


def commands() -> Iterator[tuple[str, str, click.Command]]:
    """Yield section, full name and command of each command, and of those in groups."""
    context = click.Context(root)
    for section, entries in SECTIONS.items():
        for name in entries:
            command = root.get_command(context, name)
            assert command is not None
            yield from _with_subcommands(section, name, command)


def _with_subcommands(
    section: str, name: str, command: click.Command
) -> Iterator[tuple[str, str, click.Command]]:
    yield section, name, command
    if isinstance(command, click.Group):
        for sub in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), sub)
            assert found is not None
            yield from _with_subcommands(section, f"{name} {sub}", found)


def examples() -> list[tuple[str, Example]]:
    """Return all examples, each with the name of its command."""
    return [
        (name, example)
        for _, name, command in commands()
        if isinstance(command, DeclaredCommand)
        for example in command.examples
    ]


def generated() -> str:
    """Return the generated part of the page."""
    parts: list[str] = []
    last_section = None
    common = {_identity(option) for option in _connection_options()}
    for section, name, command in commands():
        if section != last_section:
            parts.append(f"## {section}\n")
            last_section = section
        parts.append(f"### {name}\n")
        if not isinstance(command, click.Group):
            pieces = " ".join(
                ["aiokafka08", name, *command.collect_usage_pieces(click.Context(command))]
            )
            parts.append(f"    {pieces}\n")
        parts.append(_linked(inspect.cleandoc(command.help or "")) + "\n")
        if isinstance(command, DeclaredCommand):
            parts += _details(command, common)
    parts.append("## Properties\n")
    parts.append(
        "These have an effect, with Java's names; the names of librdkafka and of Scala's clients "
        "for the\nsame are accepted too. Their other properties are accepted without effect.\n"
    )
    parts.append(_wrapped(f"`{name}`" for name in sorted(SETTABLE)))
    return "\n".join(parts)


def _connection_options() -> list[click.Parameter]:
    command = root.get_command(click.Context(root), "topics")
    assert command is not None
    return [one for one in command.params if one.name != "names"]


def _identity(option: click.Parameter) -> tuple[str | None, str | None]:
    return option.name, getattr(option, "help", None)


def _details(command: DeclaredCommand, common: set[tuple[str | None, str | None]]) -> Iterator[str]:
    own = [one for one in command.params if _identity(one) not in common]
    if any(isinstance(one, click.Option) for one in own):
        rows = [_option_row(one) for one in own if isinstance(one, click.Option)]
        yield "| option | |\n|---|---|\n" + "".join(rows)
    titles = {f"field with `{option}`": some for option, some in command.fields_with.items()}
    for title, fields in {"field": command.fields, **titles}.items():
        if fields:
            rows = [f"| `{name}` | {_cell(text)} |\n" for name, text in fields.items()]
            yield f"| {title} | |\n|---|---|\n" + "".join(rows)
    for example in command.examples:
        yield f"{example.text}:\n\n    {example.command}\n"


def _option_row(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(root))}"
    return f"| `{names}{_cell(value)}` | {_cell(option.help or '')} |\n"


def _linked(text: str) -> str:
    """Return a text with links to the commands that it names in backticks."""
    for _, name, _ in commands():
        text = text.replace(f"`{name}`", f"[{name}](#{name.replace(' ', '-')})")
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _wrapped(words: Iterator[str], width: int = 100) -> str:
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 1 > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line]) + "\n"


def page() -> str:
    """Return the page: the part before `BEGIN` as it is, and the generated part."""
    head, _, _ = PAGE.read_text().partition(BEGIN)
    options = "".join(
        _option_row(one) for one in _connection_options() if isinstance(one, click.Option)
    )
    before, _, _ = head.partition("| option | |\n")
    return f"{before}| option | |\n|---|---|\n{options}\n{BEGIN}\n{generated()}"


if __name__ == "__main__":
    PAGE.write_text(page())
