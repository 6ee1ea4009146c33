"""`completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from aiokafka08._tools.cli.declare import Example, command


@command(
    "completion",
    examples=[
        Example("In ~/.bashrc", 'eval "$(aiokafka08 completion bash)"'),
        Example(
            "For zsh, in a folder of fpath before compinit",
            "aiokafka08 completion zsh > _aiokafka08",
        ),
        Example(
            "For fish, in ~/.config/fish/completions",
            "aiokafka08 completion fish > aiokafka08.fish",
        ),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL.

    It completes commands, options and profiles; and topics and groups of the cluster that the
    options before them name, else of the configured one, if that answers within 2 seconds. Groups
    may take longer on 0.8.2 to 0.10.0, where they are read from the topic __consumer_offsets.
    """
    from click.shell_completion import BashComplete, get_completion_class

    from aiokafka08._tools.cli.completing import BASH_SCRIPT, COMPLETION_VARIABLE
    from aiokafka08._tools.cli.output import write_text
    from aiokafka08._tools.cli.root import PROGRAM, root

    class BashCompletion(BashComplete):
        source_template = BASH_SCRIPT

    script = BashCompletion if shell == "bash" else get_completion_class(shell)
    assert script is not None
    write_text(script(root, {}, PROGRAM, COMPLETION_VARIABLE).source() + "\n", flush=True)
