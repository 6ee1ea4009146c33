"""Find target topics with messages before the first run, since a copy may duplicate these.

The same messages may have been copied there by a bridge of another name, or by this bridge before
its own topics and its group were deleted. The origin of the messages isn't known, so the bridge
doesn't start, unless `topics.append` allows it.

Invariant: the check changes nothing, so a bridge that is refused at its start is refused again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka08._wording import some_of
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.sink.sink import BridgeRun, read_claims
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition


async def filled_topics(
    config: BridgeConfig,
    target: Target,
    source: Mapping[str, int],
    target_counts: Mapping[str, int],
    run: BridgeRun,
) -> list[str]:
    """Return the names of target topics that keep the bridge from its first start, sorted.

    Args:
        config: the file of the bridge.
        target: the connection.
        source: all topics of the source, with their partition counts.
        target_counts: all topics of the target, with their partition counts.
        run: this run of the bridge's process.

    Raises:
        TargetError: the target doesn't respond.
        KafkaProtocolError: a claim can't be read.
    """
    copies = [
        TopicPartition(name, number)
        for topic, name in config.topics.pairs(source).items()
        if not config.topics.appends(topic)
        for number in range(min(source[topic], target_counts.get(name, 0)))
    ]
    # The first sessions of a process may end before they write, so each session checks until one
    # has begun to copy.
    if not copies or run.has_begun or not run.is_first:
        return []
    if any(claim.run != run.id for claim in await read_claims(config, target)):
        return []
    committed = await target.committed(config.position_group, copies)
    # An offset of the group before the first start was committed by hand, and is accepted.
    bounds = await target.log_bounds([tp for tp in copies if tp not in committed])
    filled = await target.ever_had_records(
        [tp for tp, (first, end) in bounds.items() if first < end]
    )
    return sorted({tp.topic for tp, has_records in filled.items() if has_records})


def filled_text(config: BridgeConfig, names: Sequence[str]) -> str:
    """Return the error text about such topics; `names` has at least one."""
    return (
        f"the target has messages in {some_of(names)}, and bridge {config.name!r} has never run "
        "(or its topics and group at the target were deleted). It would copy behind these, so "
        "each message of an earlier copy would be there twice. Use the name of the bridge that "
        "copied them, delete these topics at the target, or rename the copies (topics.rename); "
        "topics.append copies behind what is there"
    )
