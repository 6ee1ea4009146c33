"""Find what would keep a gateway from working, in a sample of the target. Pure.

`target_sample` takes the sample; the commands `gateway check` and `gateway run` print the findings.
docs/guides/gateway.md lists the codes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Final

from aiokafka08._core.names import NamePatterns
from aiokafka08._core.net.config import address_text
from aiokafka08._tools.findings import Code, CodedFinding, Severity
from aiokafka08._tools.gateway.api_versions import TRANSLATED
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.options import GatewayOptions, OptionNames
from aiokafka08._tools.gateway.peers import FIRST_ID
from aiokafka08._tools.gateway.target_sample import TargetSample, TargetTopic
from aiokafka08.errors import AuthenticationFailedError, CertificateError, KafkaConnectionError
from aiokafka08.protocol.api import ApiKey


class CheckCode(Code):
    """The codes, the most urgent first."""

    UNREACHABLE = "target-unreachable", Severity.CRITICAL, "no broker of the target can be reached"
    AUTHENTICATION = (
        "authentication-failed",
        Severity.CRITICAL,
        "the target refuses the gateway, or doesn't offer its SASL mechanism",
    )
    CERTIFICATE = (
        "certificate-refused",
        Severity.CRITICAL,
        "the target's certificate isn't of a trusted authority, or is for another host",
    )
    PORT = "port-unavailable", Severity.CRITICAL, "the gateway can't listen at a port that it needs"
    VERSIONS = (
        "versions-missing",
        Severity.WARNING,
        "the target doesn't take the versions that old requests become",
    )
    BROKER = (
        "broker-unreachable",
        Severity.WARNING,
        "the target names a broker that can't be reached from here",
    )
    PEER_AWAY = "peer-unreachable", Severity.WARNING, "a peer can't be reached from here"
    PEER = "peer-mismatch", Severity.WARNING, "a peer isn't another gateway to the same cluster"
    ZOOKEEPER = "zookeeper-unusable", Severity.WARNING, "the gateway can't write into ZooKeeper"
    PASSWORDS = "passwords-readable", Severity.WARNING, "passwords go over the network as they are"
    LEADERLESS = "leaderless-partition", Severity.WARNING, "no broker leads the partition"
    PERMISSION = (
        "no-permission",
        Severity.WARNING,
        "the target doesn't allow the gateway what its clients may want",
    )
    PATTERN = (
        "pattern-without-topic",
        Severity.WARNING,
        "a pattern of allowed topics matches no topic",
    )
    UNREAD = "unread", Severity.NOTE, "what the target didn't answer"
    CREATION = "topics-created", Severity.NOTE, "the target creates a topic when a client names it"
    TIMESTAMPS = (
        "timestamps-limited",
        Severity.NOTE,
        "the target refuses messages whose timestamps differ too much from its clock",
    )
    SIZES = "message-sizes", Severity.NOTE, "how large messages may be"
    ZSTD = "zstd-topic", Severity.NOTE, "old clients get the topic's messages recompressed"
    TARGET = "target", Severity.NOTE, "what the target is"


_RELEASES: Final = {
    10: "2.1 or 2.2", 11: "2.3 to 2.6", 12: "2.7 to 3.0", 13: "3.1 to 3.4", 15: "3.5 or 3.6",
    16: "3.7 or 3.8", 17: "3.9 or 4.0", 18: "4.1",
}  # fmt: skip
"""The releases by the highest version of Fetch that they take."""

_READ, _WRITE = 3, 4  # bits of operations
_OLD_FETCH_BYTES: Final = 1 << 20
"""What consumers of 0.8 to 0.10 fetch of a partition by default."""
_NEVER: Final = 2**63 - 1
_NAMED: Final = 3
_NO_NAME: Final = "\0"
"""A pattern that matches this, such as ".*", means whatever there is."""


def unreachable(error: KafkaConnectionError, names: OptionNames) -> CodedFinding:
    """Return the finding for a target that can't be asked."""
    config = names.name("target_config")
    code, action = CheckCode.UNREACHABLE, "Check the addresses, the network, and security.protocol"
    if isinstance(error, AuthenticationFailedError):
        code, action = CheckCode.AUTHENTICATION, "Correct the properties sasl.*"
    elif isinstance(error, CertificateError):
        code, action = CheckCode.CERTIFICATE, "Correct ssl.ca.location, or use the host's full name"
    why = error.text.partition(": ")[2] or error.text
    return CodedFinding(code, names.name("to"), why, f"{action} in {config}")


def judge(
    sample: TargetSample, options: GatewayOptions, names: OptionNames
) -> Iterator[CodedFinding]:
    """Yield findings, in no order."""
    yield from _about_ports(sample, names)
    yield from _about_passwords(options, names)
    yield from _about_brokers(sample)
    yield from _about_versions(sample, options)
    yield from _about_peers(sample, options, names)
    if sample.zookeeper is not None:
        yield CodedFinding(
            CheckCode.ZOOKEEPER,
            names.name("zookeeper"),
            sample.zookeeper,
            "Start it, create the chroot, or stop what is registered there",
        )
    for problem in sample.problems:
        yield CodedFinding(
            CheckCode.UNREAD,
            address_text(sample.address),
            f"{problem} couldn't be read",
            "Allow the gateway DescribeConfigs, or look at the settings yourself",
        )
    if sample.topics is not None:
        allowed = options.access.topics
        topics = {
            name: topic
            for name, topic in sample.topics.items()
            if allowed is None or allowed.includes(name)
        }
        yield from _about_patterns(sample, allowed, names)
        yield from _about_topics(topics, options)
        yield from _about_limits(sample, topics, options)


def _about_ports(sample: TargetSample, names: OptionNames) -> Iterator[CodedFinding]:
    for address, problem in sample.ports.items():
        if problem is not None:
            yield CodedFinding(
                CheckCode.PORT,
                address_text(address),
                problem,
                f"Choose another {names.name('listen')} or {names.name('metrics')}, or end what "
                "listens there, unless it is this gateway itself",
            )


def _about_passwords(options: GatewayOptions, names: OptionNames) -> Iterator[CodedFinding]:
    network = options.network
    if network.sasl is not None and network.sasl.name == "PLAIN" and network.ssl_context is None:
        yield CodedFinding(
            CheckCode.PASSWORDS,
            names.name("target_config"),
            "PLAIN without TLS: the gateway's password can be read between it and the target",
            "Use security.protocol=SASL_SSL, or another sasl.mechanism",
        )
    is_local = ipaddress.ip_address(options.listen[0]).is_loopback
    if options.users is not None and options.tls is None and not is_local:
        yield CodedFinding(
            CheckCode.PASSWORDS,
            names.name("users"),
            "without TLS the passwords of clients that use PLAIN can be read on the network",
            f"Set {names.name('tls_cert')}, or let clients use SCRAM",
        )


def _about_brokers(sample: TargetSample) -> Iterator[CodedFinding]:
    for node, problem in sorted(sample.unreachable.items()):
        yield CodedFinding(
            CheckCode.BROKER,
            f"broker {node} at {address_text(sample.brokers[node])}",
            f"{problem}; clients get no answer for the partitions that it leads",
            "Start it, or make its advertised.listeners reachable from this machine",
        )


def _about_versions(sample: TargetSample, options: GatewayOptions) -> Iterator[CodedFinding]:
    if options.is_observing and sample.ranges.get(ApiKey.PRODUCE, (0, 0))[0] > 0:
        yield CodedFinding(
            CheckCode.VERSIONS,
            address_text(sample.address),
            "the target refuses the old requests that are passed to it as they are",
            "Leave observe out: the gateway then translates them",
        )
    for key, (_, version) in TRANSLATED.items():
        first, last = sample.ranges.get(key, (0, -1))
        if not first <= version <= last:
            ranges = f"{first} to {last}" if last >= 0 else "none"
            yield CodedFinding(
                CheckCode.VERSIONS,
                f"{apis()[key].name} {version}",
                f"the target takes {ranges}, so old clients can't use this API",
                "Use a target of Kafka 2.1 to 4.x",
            )
    first, last = sample.ranges.get(ApiKey.JOIN_GROUP, (0, -1))
    if first > 0:  # 4.0.0 has left out what 4.0.1 has put back
        yield CodedFinding(
            CheckCode.VERSIONS,
            "JoinGroup 0",
            f"the target takes {first} to {last}, so the groups of Java 0.9 and 0.10.0 can't join",
            "Use a target of Kafka 4.0.1 or later",
        )
    fetch = sample.ranges.get(ApiKey.FETCH, (0, -1))
    newest = max(_RELEASES)
    release = _RELEASES.get(fetch[1], f"later than {_RELEASES[newest]}")
    if fetch[1] < min(_RELEASES):
        release = "older than 2.1"
    topics = "" if sample.topics is None else f", {len(sample.topics)} topics"
    yield CodedFinding(
        CheckCode.TARGET,
        address_text(sample.address),
        f"Kafka {release} by its versions of Fetch ({fetch[0]} to {fetch[1]}), "
        f"{len(sample.brokers)} brokers{topics}",
        "Nothing",
    )


def _about_peers(
    sample: TargetSample, options: GatewayOptions, names: OptionNames
) -> Iterator[CodedFinding]:
    own_name = address_text(options.own_address)
    own = {(options.advertise, port) for _, port in sample.ports}
    for peer, found in sample.peers.items():
        where = f"{names.name('peers')} {address_text(peer)}"
        if isinstance(found, str):
            action = "Start it, or correct its address"
            yield CodedFinding(CheckCode.PEER_AWAY, where, found, action)
            continue
        if found is None:
            why = "it can be reached; what it is wasn't asked, since its clients authenticate"
            yield CodedFinding(CheckCode.UNREAD, where, why, "Run the check there, too")
            continue
        ids = found.brokers.keys()
        if found.cluster_id != sample.cluster_id:
            why = f"its cluster is {found.cluster_id}, that of the target {sample.cluster_id}"
        elif own.intersection(found.brokers[node] for node in ids & sample.brokers.keys()):
            why = f"this gateway itself answers there; its own name is {own_name}"
        elif max(ids - sample.brokers.keys(), default=0) < FIRST_ID:
            why = "it names no peers: it is a broker, or a gateway that has none"
        else:
            continue
        yield CodedFinding(
            CheckCode.PEER, where, why, "Name gateways to this cluster that have peers themselves"
        )


def _about_patterns(
    sample: TargetSample, allowed: NamePatterns | None, names: OptionNames
) -> Iterator[CodedFinding]:
    for pattern in () if allowed is None else allowed.include:
        if not any(map(pattern.fullmatch, (*(sample.topics or ()), _NO_NAME))):
            yield CodedFinding(
                CheckCode.PATTERN,
                f"{names.name('topics.include')} {pattern.pattern}",
                "it matches no topic that the target shows to the gateway",
                "Correct it, create the topic, or allow the gateway to describe it",
            )


def _about_topics(
    topics: dict[str, TargetTopic], options: GatewayOptions
) -> Iterator[CodedFinding]:
    for name, topic in sorted(topics.items()):
        if topic.leaderless:
            numbers = ", ".join(map(str, topic.leaderless[:_NAMED]))
            yield CodedFinding(
                CheckCode.LEADERLESS,
                f"topic {name}, partition {numbers}",
                f"{len(topic.leaderless)} of its partitions have no leader",
                "Start the brokers of its replicas",
            )
    wanted = {"Read": _READ} if options.access.is_read_only else {"Read": _READ, "Write": _WRITE}
    for right, bit in wanted.items():
        yield from _grouped(
            CheckCode.PERMISSION,
            topics,
            lambda topic: topic.operations is not None and not topic.operations >> bit & 1,  # noqa: B023
            f"the gateway has no right to {right}, and so have none of its clients",
            f"Give the gateway's principal or address {right}, or don't allow these topics",
        )


def _about_limits(
    sample: TargetSample, topics: dict[str, TargetTopic], options: GatewayOptions
) -> Iterator[CodedFinding]:
    if sample.settings.get("auto.create.topics.enable") == "true" and (
        not options.access.is_read_only
    ):
        yield CodedFinding(
            CheckCode.CREATION,
            "auto.create.topics.enable=true",
            "a client that names an allowed topic which isn't there creates it",
            "Limit the topics, or set it to false at the target",
        )
    if (size := sample.settings.get("message.max.bytes")) is not None:
        yield CodedFinding(
            CheckCode.SIZES,
            f"message.max.bytes={size}",
            "a set of messages that is larger as one batch gets error 10 (too large)",
            "Let old producers make smaller sets, or raise it",
        )
    yield from _grouped(
        CheckCode.SIZES,
        topics,
        lambda topic: _number(topic, "max.message.bytes") > _OLD_FETCH_BYTES + 1024,
        "messages may be larger than the 1 MiB that old consumers fetch of a partition",
        "Raise fetch.message.max.bytes or max.partition.fetch.bytes of old consumers",
    )
    yield from _grouped(
        CheckCode.ZSTD,
        topics,
        lambda topic: topic.settings.get("compression.type") == "zstd",
        "old clients don't know zstd; the gateway recompresses what they fetch by snappy",
        "Expect the gateway to take more CPU, or set another compression.type",
    )
    for setting, when in (("before", "old"), ("after", "far in the future")):
        yield from _grouped(
            CheckCode.TIMESTAMPS,
            topics,
            lambda topic: (
                topic.settings.get("message.timestamp.type") != "LogAppendTime"
                and 0 <= _number(topic, f"message.timestamp.{setting}.max.ms") < _NEVER  # noqa: B023
            ),
            f"messages whose timestamps are too {when} get error 32 "
            f"(message.timestamp.{setting}.max.ms)",
            "Keep the clocks of clients right, or raise it",
        )


def _number(topic: TargetTopic, setting: str) -> int:
    value = topic.settings.get(setting, "")
    return int(value) if value.lstrip("-").isdecimal() else -1


def _grouped(
    code: CheckCode,
    topics: dict[str, TargetTopic],
    is_meant: Callable[[TargetTopic], bool],
    why: str,
    action: str,
) -> Iterator[CodedFinding]:
    """Yield one finding for all topics that it is about."""
    found = sorted(name for name, topic in topics.items() if is_meant(topic))
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        plural = "topic" if len(found) == 1 else "topics"
        yield CodedFinding(code, f"{plural} {', '.join(found[:_NAMED])}{more}", why, action)
