"""`completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from aiokafka08._tools.cli.declare import Example, command


@command(
    "completion",
    examples=[
        Example("In ~/.bashrc", 'eval "$(aiokafka08 completion bash)"'),
        Example("A file for fish's completions", "aiokafka08 completion fish > aiokafka08.fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL."""
    from click.shell_completion import get_completion_class

    from aiokafka08._tools.cli.output import write_text
    from aiokafka08._tools.cli.root import COMPLETION_VARIABLE, PROGRAM, root

    script = get_completion_class(shell)
    assert script is not None
    write_text(script(root, {}, PROGRAM, COMPLETION_VARIABLE).source() + "\n", flush=True)
