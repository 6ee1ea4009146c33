"""Ask the target (`sample_target`) and other gateways (`ask_peers`) what the module `check` judges.

Invariant: a question that isn't answered leaves a problem or a gap in the sample. Only a target
that can't be reached at all is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka08._core.net.config import Address, NetConfig
from aiokafka08._tools.gateway.options import GatewayOptions
from aiokafka08._tools.gateway.target_client import TargetClient, ask_first, brokers_of
from aiokafka08._tools.gateway.target_connection import target_network, why_unreachable
from aiokafka08._tools.gateway.translation import config_resource
from aiokafka08._wording import some_of
from aiokafka08.errors import KafkaConnectionError

_TOPIC, _BROKER = 2, 4  # types of resources
_TOPICS_AT_ONCE: Final = 500
_NOT_SAID: Final = -(1 << 31)

TOPIC_SETTINGS: Final = (
    "compression.type", "max.message.bytes", "message.timestamp.type",
    "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
)  # fmt: skip
BROKER_SETTINGS: Final = ("message.max.bytes", "auto.create.topics.enable")


@dataclass(slots=True)
class TargetTopic:
    """A topic.

    Attributes:
        leaderless: its partitions without a leader.
        operations: what the gateway may do, as bits; None: the target doesn't say.
        settings: the known settings of `TOPIC_SETTINGS`.
    """

    leaderless: list[int]
    operations: int | None
    settings: Mapping[str, str] = field(default_factory=dict)


class PeerAnswer(NamedTuple):
    """The answer of a peer.

    Attributes:
        cluster_id: the id of its target's cluster.
        brokers: the addresses that its clients get, by ids.
    """

    cluster_id: str | None
    brokers: Mapping[int, Address]


@dataclass(slots=True)
class TargetSample:
    """The answers of a target and of peers, and what the caller has found on this machine.

    Attributes:
        address: the address of the broker that was asked.
        ranges: the first and last version that it takes, by API.
        brokers: the addresses of the brokers, by their ids.
        unreachable: why a broker can't be reached.
        ports: by address: why the gateway can't listen there; None: it can.
        topics: the topics, by name; None: they weren't asked for.
        settings: the known settings of `BROKER_SETTINGS`.
        problems: why a question wasn't answered, and what to do.
        cluster_id: the id of the target's cluster.
        peers: the answers of the other gateways, or why they can't be reached; None: the gateway
            can be reached, but wasn't asked, because clients need TLS or SASL.
        zookeeper: why the gateway can't write there; None: it can, or needn't.
        keeps_ports: whether brokers keep their ports when the gateway starts again.
    """

    address: Address
    ranges: Mapping[int, tuple[int, int]]
    brokers: dict[int, Address]
    unreachable: dict[int, str] = field(default_factory=dict)
    ports: dict[Address, str | None] = field(default_factory=dict)
    topics: dict[str, TargetTopic] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    cluster_id: str | None = None
    peers: Mapping[Address, PeerAnswer | str | None] = field(default_factory=dict)
    zookeeper: str | None = None
    keeps_ports: bool = True


async def sample_target(network: NetConfig, *, is_quick: bool) -> TargetSample:
    """Return the answers of the first broker that responds, and why brokers can't be reached.

    Args:
        network: addresses of brokers, and how to connect to them.
        is_quick: True doesn't ask for topics and settings.

    Raises:
        KafkaConnectionError: see `ask_first`.
    """
    ask, failure = partial(_sample, is_quick=is_quick), "the target can't be reached"
    sample = await ask_first(network.bootstrap, network, failure, ask)
    asked = (why_unreachable(address, network) for address in sample.brokers.values())
    found = zip(sample.brokers, await asyncio.gather(*asked), strict=True)
    sample.unreachable = {node: problem for node, problem in found if problem is not None}
    return sample


async def ask_peers(options: GatewayOptions) -> dict[Address, PeerAnswer | str | None]:
    """Return what the peers answer, or why they can't be reached; without this gateway itself."""

    async def ask(client: TargetClient) -> PeerAnswer:
        answer = await client.metadata(of_topics=False)
        return PeerAnswer(answer.get("ClusterId"), brokers_of(answer))

    async def ask_one(peer: Address) -> PeerAnswer | str | None:
        network = target_network([peer])
        if options.users is not None or options.tls is not None:
            return await why_unreachable(peer, network)
        try:
            return await ask_first([peer], network, "it can't be reached", ask)
        except KafkaConnectionError as error:
            return error.text

    peers = [one for one in options.peers if one != options.own_address]
    return dict(zip(peers, await asyncio.gather(*map(ask_one, peers)), strict=True))


async def _sample(client: TargetClient, *, is_quick: bool) -> TargetSample:
    answer = await client.metadata(of_topics=not is_quick, with_rights=True)
    sample = TargetSample(client.address, client.ranges, brokers_of(answer))
    sample.cluster_id = answer.get("ClusterId")
    if not is_quick:
        sample.topics = {one["Name"]: _topic(one) for one in answer["Topics"]}
        await _read_settings(client, sample)
    return sample


def _topic(values: Mapping[str, Any]) -> TargetTopic:
    parts = [one["PartitionIndex"] for one in values["Partitions"] if one["LeaderId"] < 0]
    operations = values.get("TopicAuthorizedOperations", _NOT_SAID)
    return TargetTopic(parts, None if operations == _NOT_SAID else operations)


async def _read_settings(client: TargetClient, sample: TargetSample) -> None:
    version = client.version_of("DescribeConfigs")
    if version is None:
        why = "it doesn't know DescribeConfigs, so its settings couldn't be read"
        sample.problems.append((why, "Look at the settings yourself"))
        return
    nodes = [node for node, one in sample.brokers.items() if one == sample.address]
    node = nodes[0] if nodes else min(sample.brokers, default=-1)
    topics = sample.topics or {}
    resources = [config_resource(_BROKER, str(node), BROKER_SETTINGS)]
    resources += [config_resource(_TOPIC, topic, TOPIC_SETTINGS) for topic in sorted(topics)]
    refused: list[str] = []
    for at in range(0, len(resources), _TOPICS_AT_ONCE):
        some = resources[at : at + _TOPICS_AT_ONCE]
        for one in (await client.call("DescribeConfigs", version, Resources=some))["Results"]:
            configs = ((each["Name"], each["Value"]) for each in one["Configs"] or ())
            found = {name: value for name, value in configs if value is not None}
            if one["ErrorCode"]:
                refused.append(f"{one['ResourceName']} (error {one['ErrorCode']})")
            elif one["ResourceType"] == _BROKER:
                sample.settings = found
            elif one["ResourceName"] in topics:
                topics[one["ResourceName"]].settings = found
    if refused:
        why = f"the settings of {some_of(refused, 3)} couldn't be read"
        sample.problems.append((why, "Allow the gateway DescribeConfigs, or look at them yourself"))
