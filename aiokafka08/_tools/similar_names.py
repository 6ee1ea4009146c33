"""Find topics and groups with names similar to one that doesn't exist, for the text of its error.

Invariant: a search that fails, or takes longer than `_PATIENCE_S`, leaves the error as it is. A
search creates nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiokafka08._core.names import did_you_mean
from aiokafka08.errors import KafkaError, UnknownTopicOrPartitionError, error_class

if TYPE_CHECKING:
    from aiokafka08.admin import AIOKafkaAdminClient, TopicErrors
    from aiokafka08.admin.group_lag import GroupStore

_PATIENCE_S: Final = 3.0


async def similar_topics(admin: AIOKafkaAdminClient, names: Sequence[str]) -> str:
    """Return a question to append to an error's text, or "" if there are no similar names.

    Args:
        admin: a started client.
        names: the missing topics; the first is compared.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return did_you_mean(names[0], sorted(await admin.list_topics()))
    except (KafkaError, OSError, TimeoutError):
        return ""


async def similar_groups(admin: AIOKafkaAdminClient, names: Sequence[str]) -> str:
    """Return a question as `similar_topics` does, about groups in Kafka and ZooKeeper."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return did_you_mean(names[0], sorted(await all_groups(admin) - {*names}))
    except TimeoutError:
        return ""


async def all_groups(admin: AIOKafkaAdminClient) -> set[str]:
    """Return the names of the groups; a store that can't be read is skipped."""
    found: set[str] = set()
    stores: tuple[GroupStore, ...] = ("zookeeper", "kafka")
    for store in stores:
        try:
            listing = await admin.list_groups_of_store(store)
        except (KafkaError, OSError):
            continue
        found |= {group.group for group in listing.groups}
    return found


@asynccontextmanager
async def naming_similar_topics(
    admin: AIOKafkaAdminClient, names: Sequence[str]
) -> AsyncIterator[None]:
    """Add similar names to an UnknownTopicOrPartitionError that the `with` block raises."""
    try:
        yield
    except UnknownTopicOrPartitionError as error:
        error.args = (f"{error.text}{await similar_topics(admin, names)}",)
        raise


async def errors_of_topics(
    admin: AIOKafkaAdminClient, results: TopicErrors
) -> list[tuple[str, KafkaError | None]]:
    """Return each topic of a change with its error or None. An error names similar topics.

    Args:
        admin: a started client.
        results: the result of the client's call that changed the topics.
    """
    outcomes: list[tuple[str, KafkaError | None]] = []
    for name, code, text in results.topic_errors:
        error = None
        if code:
            text = text or f"topic {name!r}: {error_class(code).description}"
            if code == UnknownTopicOrPartitionError.errno:
                text += await similar_topics(admin, [name])
            error = error_class(code)(text)
        outcomes.append((name, error))
    return outcomes
