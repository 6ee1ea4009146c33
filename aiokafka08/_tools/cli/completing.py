"""Complete the names of topics, groups and profiles in a shell.

An argument or option of click with `shell_complete=topic_names` calls the function while the user
types. The cluster is the one that the options before the completed word name, or the configured
one.

Invariant: `topic_names`, `group_names` and `profile_names` create nothing, print nothing and raise
nothing; a call that fails, or takes longer than `_PATIENCE_S`, completes to nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from aiokafka08.admin import AIOKafkaAdminClient

# The environment variable in which a shell's completion script asks for words.
COMPLETION_VARIABLE: Final = "_AIOKAFKA08_COMPLETE"

_PATIENCE_S: Final = 2.0

# bash splits words at the characters of COMP_WORDBREAKS, ":" and "=" among them, and replaces what
# follows the last one. So the script joins the words that no blank separates in COMP_LINE, and
# leaves out the part of a completed word that bash doesn't replace.
BASH_SCRIPT: Final = r"""
%(complete_func)s() {
    local IFS=$'\n' line=$COMP_LINE words=() i type value typed response
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i > 0)) && [[ $line != [[:blank:]]* ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
        line=${line#"${line%%%%[![:blank:]]*}"}
        line=${line#"${COMP_WORDS[i]}"}
    done
    typed=${words[${#words[@]} - 1]}
    if [[ $typed == -*=* ]]; then
        typed=${typed#*=}
    fi
    typed=${typed%%"${COMP_WORDS[COMP_CWORD]#[:=]}"}
    response=$(
        env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
            %(complete_var)s=bash_complete "$1"
    )
    for i in $response; do
        IFS=',' read -r type value <<<"$i"
        if [[ $type == dir ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == file ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == plain ]]; then
            COMPREPLY+=("${value#"$typed"}")
        fi
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


def complete(root: click.Command, program: str) -> int:
    """Print the words for the shell that asks, and return the exit code; nothing goes to stderr."""
    import logging

    from click.shell_completion import shell_complete

    logging.disable(logging.CRITICAL)
    before = sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stderr = nowhere
        try:
            return shell_complete(
                root, {}, program, COMPLETION_VARIABLE, os.environ[COMPLETION_VARIABLE]
            )
        except Exception:
            return 1
        finally:
            sys.stderr = before
            logging.disable(logging.NOTSET)


def topic_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the topics whose names begin with what is typed."""
    return _names(context, parameter, typed, _topics)


def group_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the groups whose names begin with what is typed, of Kafka and of ZooKeeper."""
    return _names(context, parameter, typed, _groups)


def profile_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the profiles whose names begin with what is typed."""
    import tomllib

    from aiokafka08._tools.cli.configuration import profiles_file, read_text
    from aiokafka08.errors import IllegalArgumentError

    try:
        text = read_text(str(profiles_file(context.params.get("config"))))
        profiles = tomllib.loads(text).get("profiles", {})
    except (IllegalArgumentError, tomllib.TOMLDecodeError):
        return []
    return _beginning(profiles, typed) if isinstance(profiles, dict) else []


def _beginning(names: Iterable[str], typed: str) -> list[str]:
    return sorted(name for name in names if name.startswith(typed) and name.isprintable())


def _names(
    context: click.Context,
    parameter: click.Parameter,
    typed: str,
    ask: Callable[[AIOKafkaAdminClient], Awaitable[set[str]]],
) -> list[str]:
    import asyncio
    from concurrent.futures import wait

    from aiokafka08._core.concurrency.daemon_threads import DaemonThreads

    found: set[str] = set()

    def work() -> None:
        from contextlib import suppress

        from aiokafka08._tools.cli.configuration import merged_settings
        from aiokafka08._tools.cli.connection import admin_client

        async def names() -> None:
            settings = merged_settings(context.params, start_timeout_s=_PATIENCE_S)
            async with admin_client(settings) as admin:
                found.update(await ask(admin))

        with suppress(Exception):
            asyncio.run(names())

    # The shell waits, so the process must end right after the last word. Daemon threads don't keep
    # it, even if one is still busy, such as one of kazoo.
    wait([DaemonThreads("aiokafka08-names").submit(work)], _PATIENCE_S)
    given = context.params.get(parameter.name or "")
    given = given if isinstance(given, tuple) else ()
    return [name for name in _beginning(set(found), typed) if name not in given]


async def _topics(admin: AIOKafkaAdminClient) -> set[str]:
    return set(await admin.list_topics())


async def _groups(admin: AIOKafkaAdminClient) -> set[str]:
    from aiokafka08._tools.similar_names import all_groups

    return await all_groups(admin)
