"""Show lines to the user on stderr.

Invariant: the command line prints nothing else on stderr, except prompts and progress bars.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from aiokafka08._tools.cli.terminal import is_terminal, printable, shows_escapes, width
from aiokafka08._tools.text_columns import cut, text_width, wrap
from aiokafka08._wording import counted

if TYPE_CHECKING:
    from aiokafka08.errors import KafkaError

_INDENT: Final = "  "
# Where a command at the end of a line begins.
_COMMAND: Final = re.compile(r": (?=aiokafka08 |zkCli\.sh )")
_ERASE: Final = "\r\x1b[K"
# An argument as errors name it. A name that a user chose is in quotes, and doesn't match.
_ARGUMENT: Final = re.compile(
    r"(?<![\w'\"./-])([a-z]+(?:_[a-z]+)+)(?!\w|['\"/-]|\.\w)(?:='([\w.]+)')?"
)


class _StatusLine:
    """Whether the last line of the terminal is that of `show_status()`."""

    is_shown = False


def note(text: str, prefix: str = "aiokafka08: ") -> None:
    """Print a line on stderr; do nothing if stderr is closed.

    On a terminal the line is wrapped at the terminal's width. A command at the end of the line gets
    a line of its own that isn't wrapped, so that it can be copied.

    Args:
        text: the line.
        prefix: the text before the line (default "aiokafka08: ").
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        erase_status()
        line = f"{prefix}{printable(text)}"
        if is_terminal(sys.stderr) and text_width(line) > (columns := width()):
            line = _wrapped(line, columns)
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _wrapped(text: str, columns: int) -> str:
    """Return a text in lines of this many columns; a command at its end is the last line."""
    command = _COMMAND.search(text)
    end = len(text) if command is None else command.end()
    lines = [
        line
        for number, part in enumerate(text[:end].split("\n"))
        for line in wrap(part, columns, _INDENT if number else "", _INDENT)
    ]
    if command is not None:
        lines.append(text[end:])
    return "\n".join(lines)


def note_each(texts: Iterable[str]) -> int:
    """Print each different line; return the exit code: 1 if there is one."""
    different = dict.fromkeys(texts)
    for text in different:
        note(text)
    return int(bool(different))


@contextlib.contextmanager
def noted_end(
    group: str | None, note: Callable[[str], object], commits: Iterable[int], count_option: str
) -> Iterator[None]:
    """If the reader of stdout ends, print a note that the records it hasn't read are uncommitted.

    Args:
        group: the group whose offsets are committed; None: print no note.
        note: shows a line.
        commits: the number of records in each commit; it is read when the block ends.
        count_option: the option that reads one record, as the note names it.

    Raises:
        BrokenPipeError: the reader has ended.
    """
    try:
        yield
    except BrokenPipeError:
        if group is not None:
            note(
                f"group {group!r}: the reader of stdout has ended. "
                f"{counted(sum(commits), 'message')} committed: the blocks that it took. All "
                f"others come again. To take one message, give {count_option}"
            )
        raise


def raise_all(errors: Sequence[KafkaError]) -> NoReturn:
    """Print all different errors but the last, and raise that one, which `main` prints."""
    texts = {in_options(error.text): error for error in errors}
    *others, _ = texts
    note_each(others)
    raise [*texts.values()][-1]


def show_status(text: str) -> None:
    """Show a line that the next status or note replaces; nothing happens without a terminal.

    Args:
        text: the line; cut to the width of the terminal.
    """
    if not shows_escapes(sys.stderr):
        return
    with contextlib.suppress(OSError, ValueError):
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write(_ERASE + cut(printable(text), max(columns - 1, 0)))
        sys.stderr.flush()
        _StatusLine.is_shown = True


def erase_status() -> None:
    """Erase the line of `show_status()`, if there is one."""
    if _StatusLine.is_shown:
        _StatusLine.is_shown = False
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def in_options(text: str) -> str:
    """Return an error of the clients in words of the command line.

    Arguments become properties, `zookeeper_connect` becomes a flag, and `seek()` "begin at".
    """
    from aiokafka08._tools.reading.positions import in_positions

    text = text.replace("zookeeper_connect='host:2181/chroot'", "--zookeeper host:2181/chroot")
    text = text.replace("zookeeper_check='warn'", "-X zookeeper.check=warn")
    text = text.replace(
        "Check zookeeper_connect, its chroot, and bootstrap_servers",
        "Check --zookeeper, its chroot, and -b",
    )
    text = text.replace("zookeeper_connect: kazoo", "--zookeeper: kazoo")
    text = in_positions(text)
    text = re.sub(r"\([^()]*; for commands ", "(", text)
    text = re.sub(r"\w+ \(for commands ([^()]+)\)", r"\1", text)
    if "_" in text:
        from aiokafka08._tools.cli.settings import properties_by_argument

        properties = properties_by_argument()

        def of_argument(found: re.Match[str]) -> str:
            name, value = found.groups()
            if name not in properties:
                return found[0]
            return properties[name] + ("" if value is None else f"={value}")

        text = _ARGUMENT.sub(of_argument, text)
    return text.replace("'aiokafka08[zookeeper]'", "'aiokafka08[cli,zookeeper]'")
