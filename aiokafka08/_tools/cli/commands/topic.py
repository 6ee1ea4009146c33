"""`topic`: create, delete, grow and configure topics, through ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.completing import topic_names
from aiokafka08._tools.cli.declare import (
    CommandGroup,
    Example,
    command,
    connection_options,
    format_option,
    name_value,
)
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._wording import counted

if TYPE_CHECKING:
    from aiokafka08.admin import AIOKafkaAdminClient, TopicErrors
    from aiokafka08.errors import KafkaError


class TopicGroup(CommandGroup):
    """The commands of topics; their errors don't name arguments of the admin client."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from aiokafka08._tools.topic_words import in_topic_words
        from aiokafka08.errors import KafkaError

        try:
            return super().invoke(ctx)
        except KafkaError as error:
            error.args = (in_topic_words(error.text),)
            raise


@click.group("topic", cls=TopicGroup)
def topic() -> None:
    """Create, delete, grow and configure topics.

    All need --zookeeper: brokers before 0.10.1 have no requests that change topics.
    """


_set_option = click.option(
    "--set",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A config of the topic, such as retention.ms=3600000; may be repeated.",
)


@command(
    "create",
    group=topic,
    examples=[
        Example(
            "Create a topic that keeps an hour",
            "aiokafka08 topic create visits -b kafka1:9092 --zookeeper zk1:2181 "
            "--partitions 4 --set retention.ms=3600000",
        )
    ],
)
@click.argument("name")
@click.option("--partitions", type=int, default=1, help="How many (default: 1).")
@click.option("--replicas", type=int, default=1, help="Of each partition (default: 1).")
@click.option(
    "--assignment",
    metavar="NODE:NODE,NODE:NODE,...",
    help="The replicas of each partition, the preferred leader first; in place of the two numbers.",
)
@_set_option
@click.option("--dry-run", is_flag=True, help="Check everything, and create nothing.")
@connection_options
def create(
    settings: Settings,
    name: str,
    partitions: int,
    replicas: int,
    assignment: str | None,
    configs: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Create a topic, and wait for its leaders."""
    from aiokafka08.admin import NewTopic

    values = name_value("--set", configs)
    if assignment is None:
        new = NewTopic(name, partitions, replicas, topic_configs=values)
    else:
        placed = _assignment(assignment)
        new = NewTopic(name, -1, -1, placed, topic_configs=values)
        partitions, replicas = len(placed), len(placed[0])
    created = ", ".join(
        [
            counted(partitions, "partition"),
            counted(replicas, "replica of each"),
            *(f"{key}={value}" for key, value in values.items()),
        ]
    )
    _change(
        settings,
        lambda admin: admin.create_topics([new], validate_only=dry_run),
        "can be created" if dry_run else "was created",
        f" with {created}",
        dry_run=dry_run,
    )


def _assignment(text: str) -> dict[int, list[int]]:
    from aiokafka08.errors import IllegalArgumentError

    try:
        return {
            number: [int(node) for node in nodes.split(":")]
            for number, nodes in enumerate(text.split(","))
        }
    except ValueError:
        raise IllegalArgumentError(
            f"--assignment={text!r}: expected node ids, such as 0:1,1:2,2:0"
        ) from None


@command(
    "grow",
    group=topic,
    examples=[
        Example(
            "Give a topic 8 partitions",
            "aiokafka08 topic grow visits 8 -b kafka1:9092 --zookeeper zk1:2181",
        )
    ],
)
@click.argument("name", shell_complete=topic_names)
@click.argument("partitions", type=int)
@click.option("--dry-run", is_flag=True, help="Check everything, and change nothing.")
@connection_options
def grow(settings: Settings, name: str, partitions: int, dry_run: bool) -> None:
    """Add partitions until a topic has PARTITIONS, and wait for their leaders.

    New messages of a key may go to another partition than the old ones.
    """
    from aiokafka08.admin import NewPartitions

    change = {name: NewPartitions(partitions)}
    _change(
        settings,
        lambda admin: admin.create_partitions(change, validate_only=dry_run),
        "can be grown" if dry_run else "was grown",
        f" to {counted(partitions, 'partition')}",
        dry_run=dry_run,
    )


CONFIG_FIELDS: Final = {
    "topic": "the topic",
    "name": "the name of the config",
    "value": "its value",
}


@command(
    "config",
    group=topic,
    fields=CONFIG_FIELDS,
    examples=[
        Example(
            "Show the configs that differ from the brokers' defaults",
            "aiokafka08 topic config orders -b kafka1:9092 --zookeeper zk1:2181",
        ),
        Example(
            "Keep a day",
            "aiokafka08 topic config orders -b kafka1:9092 --zookeeper zk1:2181 "
            "--set retention.ms=86400000",
        ),
    ],
)
@click.argument("name", shell_complete=topic_names)
@_set_option
@click.option("--unset", "removed", multiple=True, metavar="NAME", help="A config to remove.")
@connection_options
@format_option
def config(
    settings: Settings,
    name: str,
    configs: tuple[str, ...],
    removed: tuple[str, ...],
    format: str | None,
) -> None:
    """Show or change the configs that a topic has of its own.

    Brokers apply a change at once.
    """
    from aiokafka08._tools.cli.connection import admin_client, run
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.similar_names import naming_similar_topics

    changes: dict[str, str | None] = {**name_value("--set", configs), **dict.fromkeys(removed)}
    absent: list[str] = []

    async def work() -> Mapping[str, str]:
        async with admin_client(settings) as admin, naming_similar_topics(admin, [name]):
            before: Mapping[str, str] = {}
            if removed or not changes:
                before = (await admin.list_topic_overrides([name]))[name]
            absent.extend(_not_set(name, removed, before))
            for key in absent:
                del changes[key]
            if not changes:
                return before
            return await admin.alter_topic_overrides(name, changes)

    overrides = sorted(run(work()).items())
    rows: list[dict[str, Any]] = [
        {"topic": name, "name": key, "value": to} for key, to in overrides
    ]
    write_rows(rows, CONFIG_FIELDS, format)
    for key in absent:
        note(f"topic {name!r}: {key} isn't set; nothing to remove")
    if changes:
        done = [
            f"{key} was removed" if value is None else f"{key}={value} was set"
            for key, value in changes.items()
        ]
        note(f"topic {name!r}: {', '.join(done)}, on {settings.cluster}")


def _not_set(topic: str, names: Iterable[str], overrides: Mapping[str, str]) -> list[str]:
    """Return the names that aren't among a topic's own configs.

    Raises:
        InvalidConfigurationError: one of them isn't a config of any release.
    """
    from aiokafka08._core.names import did_you_mean
    from aiokafka08.admin.topic_config import TOPIC_CONFIGS
    from aiokafka08.errors import InvalidConfigurationError

    absent = [name for name in dict.fromkeys(names) if name not in overrides]
    known = {*overrides, *(name for configs in TOPIC_CONFIGS.values() for name in configs)}
    for name in absent:
        if name not in known:
            raise InvalidConfigurationError(
                f"topic {topic!r}: --unset={name!r}: expected a config that is set"
                f"{did_you_mean(name, sorted(known))}"
            )
    return absent


@command(
    "delete",
    group=topic,
    examples=[
        Example(
            "Delete a topic",
            "aiokafka08 topic delete visits -b kafka1:9092 --zookeeper zk1:2181 --yes",
        )
    ],
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@click.option("--yes", is_flag=True, help="Don't ask.")
@connection_options
def delete(settings: Settings, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics with their messages, and wait until they are gone.

    Brokers need delete.topic.enable=true; those of 0.8.0 and 0.8.1 can't delete topics.
    """
    import sys

    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError("topic delete needs --yes where nobody can be asked")
        question = f"Delete {', '.join(names)} with all messages, on {settings.cluster}?"
        click.confirm(question, abort=True, err=True)
    _change(settings, lambda admin: admin.delete_topics(list(names)), "was deleted")


def _change(
    settings: Settings,
    call: Callable[[AIOKafkaAdminClient], Awaitable[TopicErrors]],
    done: str,
    result: str = "",
    *,
    dry_run: bool = False,
) -> None:
    """Call the admin client and note the result of each topic; raise the first error.

    Args:
        settings: the cluster.
        call: returns the error of each topic.
        done: the result in words, such as "was deleted".
        result: more words on the topic's new state (default "").
        dry_run: True if nothing was changed (default False).
    """
    from aiokafka08._tools.cli.connection import admin_client, run
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.similar_names import errors_of_topics

    async def work() -> list[tuple[str, KafkaError | None]]:
        async with admin_client(settings) as admin:
            return await errors_of_topics(admin, await call(admin))

    errors = []
    for name, error in run(work()):
        if error is not None:
            errors.append(error)
            continue
        nothing = ". Nothing was changed" if dry_run else ""
        note(f"topic {name!r} {done}{result}, on {settings.cluster}{nothing}")
    for error in errors[1:]:
        note(error.text)
    if errors:
        raise errors[0]
