"""Write docs/cli.md from the declarations of the commands: `python -m tests._tools.cli.document`.

The page has for each command its help, options and fields, and the examples that its guide lacks.
test_document.py checks that the page is up to date, and runs the examples.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import click

from aiokafka08._tools.cli.declare import DeclaredCommand, Example
from aiokafka08._tools.cli.root import SECTIONS, root
from aiokafka08._tools.cli.settings import SETTABLE
from tests.support.paths import ROOT

PAGE = ROOT / "docs/cli.md"
PLAIN = {"the topic", "the partition's number", "the group"}
"""Descriptions of fields that say no more than their names do."""
MANY = 3
"""How many commands of a group have an option that is described with the group."""
GUIDES = {
    "bridge": "bridge.md",
    "gateway": "guides/gateway.md",
    "exporter": "monitoring.md#the-exporter",
    "doctor": "doctor.md",
    "console": "guides/console.md",
    "cluster": "testing.md#other-clients-other-languages",
}
"""By the name of a command: its guide, which has the examples of its commands, too."""
REPEATED = "; may be repeated"
"""The help of such an option; the page has three dots after its value instead."""
COMMON = "These options are the same in all commands that connect to a cluster:\n\n"
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
    shared: dict[str, list[click.Option]] = {}  # by the name of a group of commands
    fields: dict[tuple[tuple[str, str], ...], str] = {}
    for section, name, command in commands():
        if section != last_section:
            parts.append(f"## {section}\n")
            last_section = section
        parts.append(f"### {name}\n")
        if not isinstance(command, click.Group):
            pieces = command.collect_usage_pieces(click.Context(command))
            usage = " ".join(["aiokafka08", name, *(one for one in pieces if one != "[OPTIONS]")])
            parts.append(f"    {usage}\n")
        parts.append(_linked(inspect.cleandoc(command.help or "")) + "\n")
        if name in GUIDES:
            parts.append(f"See [the guide]({GUIDES[name]}).\n")
        if isinstance(command, click.Group):
            shared[name] = _shared_options(command, common)
            if shared[name] and not isinstance(command, DeclaredCommand):
                parts.append(_option_list("Options of several of its commands:", shared[name]))
        if isinstance(command, DeclaredCommand):
            group = name.rpartition(" ")[0]
            parts += _details(command, common, group, shared.get(group, []))
            parts += _fields(name, command, fields)
            guide = GUIDES.get(name.partition(" ")[0], PAGE.name).partition("#")[0]
            shown = "" if guide == PAGE.name else (PAGE.parent / guide).read_text()
            for example in command.examples:
                if example.command not in shown:
                    parts.append(f"{example.text}:\n\n    {example.command}\n")
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


def _shared_options(
    group: click.Group, common: set[tuple[str | None, str | None]]
) -> list[click.Option]:
    """Return the options that at least three commands of a group have, its own calls included."""
    context = click.Context(group)
    found = [group, *(group.get_command(context, name) for name in group.list_commands(context))]
    options = [
        option
        for command in found
        if command is not None
        for option in command.params
        if isinstance(option, click.Option) and _identity(option) not in common
    ]
    counts = Counter(map(_identity, options))
    distinct = {_identity(option): option for option in reversed(options)}
    return [one for key, one in reversed(distinct.items()) if counts[key] >= MANY]


def _details(
    command: DeclaredCommand,
    common: set[tuple[str | None, str | None]],
    group: str,
    shared: list[click.Option],
) -> Iterator[str]:
    """Yield the list of a command's options; those that its group has shown are only named."""
    known = set(map(_identity, shared))
    own = [
        one
        for one in command.params
        if isinstance(one, click.Option) and _identity(one) not in common
    ]
    elsewhere = [one for one in own if _identity(one) in known]
    own = [one for one in own if one not in elsewhere]
    if elsewhere:
        names = (
            "The options"
            if len(elsewhere) == len(shared) >= MANY
            else ", ".join(f"`{max(one.opts, key=len)}`" for one in elsewhere)
        )
        named = f"{names} of {_link(group)}{', and' if own else '.'}"
        yield _option_list(named, own) if own else f"{named}\n"
    elif own:
        yield _option_list("Options:", own)


def _fields(
    name: str, command: DeclaredCommand, known: dict[tuple[tuple[str, str], ...], str]
) -> Iterator[str]:
    """Yield the lists of a command's fields; `known`: where the same ones were shown before."""
    titles = {f"Fields with `{option}`": some for option, some in command.fields_with.items()}
    for title, fields in {"Fields": command.fields, **titles}.items():
        key = tuple(fields.items())
        if fields and key in known:
            yield f"The fields are those of {_link(known[key])}.\n"
        elif fields:
            known[key] = name
            yield f"{title}:\n\n" + "".join(_field_items(fields))


def _field_items(fields: Mapping[str, str]) -> Iterator[str]:
    for is_plain, some in groupby(fields.items(), lambda item: item[1] in PLAIN):
        if is_plain:
            yield f"- {', '.join(f'`{field}`' for field, _ in some)}\n"
        else:
            yield from (f"- `{field}`: {text}\n" for field, text in some)


def _link(name: str) -> str:
    return f"[{name}](#{name.replace(' ', '-')})"


def _option_list(title: str, options: Iterable[click.Option]) -> str:
    return f"{title}\n\n" + "".join(map(_option_item, options))


def _option_item(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(root))}"
    text = option.help or ""
    if REPEATED in text and not value.endswith("..."):  # a list is shown so already
        text, value = text.replace(REPEATED, ""), f"{value}..."
    return f"- `{names}{value}`: {text}\n"


def _linked(text: str) -> str:
    """Return a text with links to the commands that it names in backticks."""
    for _, name, _ in commands():
        text = text.replace(f"`{name}`", _link(name))
    return text


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
        _option_item(one) for one in _connection_options() if isinstance(one, click.Option)
    )
    before, _, _ = head.partition(COMMON)
    return f"{before}{COMMON}{options}\n{BEGIN}\n{generated()}"


if __name__ == "__main__":
    PAGE.write_text(page())
