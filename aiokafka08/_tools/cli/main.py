"""The entry point: run a command; turn its exception into an exit code and a line on stderr.

Invariant: a command returns None for 0, or its exit code. It raises `KafkaError`, `OSError` or a
click exception; `IllegalArgumentError` and `KafkaConfigurationError` mean that the call was wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from aiokafka08._tools.cli.notes import in_options, note
from aiokafka08._tools.cli.signals import Terminated
from aiokafka08._tools.cli.terminal import prepare_streams, printable
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError, KafkaError

# Also the code of a server, such as `cluster`, that Ctrl-C or SIGTERM ends.
DONE: Final = 0
# Kafka or the system refused, or a thing that was named doesn't exist.
FAILED: Final = 1
# An option, an argument or a configuration file is wrong.
WRONG_USAGE: Final = 2
# A newer start of the same bridge has taken over (`bridge run`).
FENCED: Final = 3
INTERRUPTED: Final = 130
# The reader of stdout has ended. A note is printed only for a consumer group (`notes.noted_end`).
STDOUT_CLOSED: Final = 141
TERMINATED: Final = 143


def run_process() -> NoReturn:
    """Run the command line of the process and end the process."""
    code = main()
    # sys.exit() would wait for threads that are still busy, even after a signal or an error.
    if code or is_completing():
        os._exit(code)  # main() has flushed stdout
    sys.exit(code)


def is_completing() -> bool:
    """Return True if the process answers a shell that completes a word."""
    return "_AIOKAFKA08_COMPLETE" in os.environ


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    Args:
        arguments: the command line without the program's name; None for the arguments of the
            process (default None).
    """
    _open_closed_streams()
    prepare_streams()
    code = _run(sys.argv[1:] if arguments is None else arguments)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return code or STDOUT_CLOSED
    except OSError as error:
        _drop_stdout()
        return code or fail(f"stdout: {error.strerror}", FAILED)
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        import click
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        return fail(
            "the command line needs click, which isn't installed. Install it with: "
            "pip install 'aiokafka08[cli]'",
            WRONG_USAGE,
        )
    try:
        from aiokafka08._tools.cli.root import run_command

        return run_command(arguments)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as help_asked:
        help_asked.show()
        return WRONG_USAGE
    except click.ClickException as error:
        return fail(_usage_text(error), WRONG_USAGE)
    except (KeyboardInterrupt, click.exceptions.Abort):
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        return STDOUT_CLOSED
    except (IllegalArgumentError, KafkaConfigurationError) as error:
        return fail(error_text(error), WRONG_USAGE)
    except (KafkaError, OSError, ExceptionGroup) as error:
        return fail(error_text(error), FAILED)


def _usage_text(error: Exception) -> str:
    """Return the text of a click exception, with the command to ask for help."""
    context = getattr(error, "ctx", None)
    text = getattr(error, "format_message", error.__str__)().strip().rstrip(".")
    text = text[:1].lower() + text[1:]
    if context is None:
        return text
    return f"{text}{'' if text.endswith('?') else '.'} See '{context.command_path} --help'"


def error_text(error: BaseException) -> str:
    """Return the text of an error, without the name of its class."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KafkaError):
        text = error.text or str(getattr(error, "description", "")) or type(error).__name__
        return in_options(text)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def fail(text: str, code: int) -> int:
    """Print an error as one line on stderr, and return the exit code."""
    note(" ".join(printable(text).split()))
    return code


def _open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that are closed, as after `>&-` in a shell."""
    # Otherwise a socket might get the number of a standard stream, which libuv refuses to close.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one


def _drop_stdout() -> None:
    """Discard the rest of stdout's buffer, so that the interpreter ends silently."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return  # not a file, or closed
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)
