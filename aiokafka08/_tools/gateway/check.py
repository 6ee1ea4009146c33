"""Find what would keep a gateway from working, in a sample of the target. Pure.

`target_sample` takes the sample; the commands `gateway check` and `gateway run` print the findings.
docs/guides/gateway.md lists the codes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aiokafka08._core.net.config import Address, address_text
from aiokafka08._tools.findings import Code, CodedFinding, Severity
from aiokafka08._tools.gateway.api_versions import TRANSLATED
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.options import GatewayOptions, OptionNames
from aiokafka08._tools.gateway.peers import FIRST_ID
from aiokafka08._tools.gateway.target_sample import TargetSample, TargetTopic
from aiokafka08._wording import counted, some_of
from aiokafka08.errors import AuthenticationFailedError, CertificateError, KafkaConnectionError
from aiokafka08.protocol.api import ApiKey


class CheckCode(Code):
    """The codes, the most urgent first."""

    # fmt: off
    UNREACHABLE = "target-unreachable", Severity.CRITICAL, "no broker of the target can be reached"
    AUTHENTICATION = ("authentication-failed", Severity.CRITICAL,
        "the target refuses the gateway, or doesn't offer its SASL mechanism")
    CERTIFICATE = ("certificate-refused", Severity.CRITICAL,
        "the target's certificate isn't of a trusted authority, or is for another host")
    PORT = "port-unavailable", Severity.CRITICAL, "the gateway can't listen at a port that it needs"
    STATE_FILE = "state-unusable", Severity.CRITICAL, "the gateway can't use the file of its ports"
    UNSUPPORTED = ("target-unsupported", Severity.CRITICAL,
        "the target doesn't take the versions that old Produce and Fetch become")
    VERSIONS = ("versions-missing", Severity.WARNING,
        "the target doesn't take the versions that other old requests become")
    BROKER = ("broker-unreachable", Severity.WARNING,
        "the target names a broker that can't be reached from here")
    PEER_AWAY = "peer-unreachable", Severity.WARNING, "a peer can't be reached from here"
    PEER = "peer-mismatch", Severity.WARNING, "a peer isn't another gateway to the same cluster"
    ZOOKEEPER = "zookeeper-unusable", Severity.WARNING, "the gateway can't write into ZooKeeper"
    STATE = ("ports-not-kept", Severity.WARNING,
        "a restart while a broker is away gives its port to another one")
    PASSWORDS = "passwords-readable", Severity.WARNING, "passwords go over the network as they are"
    LEADERLESS = "leaderless-partition", Severity.WARNING, "no broker leads the partition"
    PERMISSION = ("no-permission", Severity.WARNING,
        "the target doesn't allow the gateway what its clients may want")
    PATTERN = ("pattern-without-topic", Severity.WARNING,
        "a pattern of allowed topics matches no topic")
    UNREAD = "unread", Severity.NOTE, "what the target didn't answer"
    CREATION = "topics-created", Severity.NOTE, "the target creates a topic when a client names it"
    TIMESTAMPS = ("timestamps-limited", Severity.NOTE,
        "the target refuses messages whose timestamps differ too much from its clock")
    SIZES = "message-sizes", Severity.NOTE, "how large a single message may be"
    ZSTD = "zstd-topic", Severity.NOTE, "clients for up to 2.0 don't know the topic's codec"
    TARGET = "target", Severity.NOTE, "what the target is"
    # fmt: on


_RELEASES: Final = {
    0: "0.8", 1: "0.9", 2: "0.10.0", 3: "0.10.1 or 0.10.2", 5: "0.11", 6: "1.0", 7: "1.1", 8: "2.0",
    10: "2.1 or 2.2", 11: "2.3 to 2.6", 12: "2.7 to 3.0", 13: "3.1 to 3.4", 15: "3.5 or 3.6",
    16: "3.7 or 3.8", 17: "3.9 or 4.0", 18: "4.1",
}  # fmt: skip
"""The releases by the highest version of Fetch that they take."""

_NEEDED: Final = (ApiKey.PRODUCE, ApiKey.FETCH)
"""The APIs without whose translation a gateway is of no use."""
_RIGHTS: Final = {"Read": 3, "Write": 4}
"""By right: the number of its bit in a topic's authorized operations."""
_TIMESTAMP_LIMITS: Final = {"before": "old", "after": "far in the future"}
_OLD_FETCH_BYTES: Final = 1 << 20
"""What consumers of 0.8 to 0.10 fetch of a partition by default."""
_NEVER: Final = 2**63 - 1
_NAMED: Final = 3
_NO_NAME: Final = "\0"
"""No topic has this name. A pattern that matches even this, such as ".*", stands for all topics,
however many there are. So there is no finding if it matches none."""

Findings = Iterator[CodedFinding]
Topics = Mapping[str, TargetTopic]


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


def state_unusable(why: str, names: OptionNames) -> CodedFinding:
    """Return the finding for a file of ports that can't be used."""
    state = names.name("state")
    action = f"Correct {state}, or end what uses the file, unless it is this gateway itself"
    return CodedFinding(CheckCode.STATE_FILE, state, why, action)


def about_ports(ports: Mapping[Address, str | None], names: OptionNames) -> Findings:
    """Yield findings for ports; `ports` has why each one isn't available, None if it is."""
    action = f"Choose a free port at an address of this machine by {names.name('listen')} or "
    action += f"{names.name('metrics')}, unless this gateway itself has it"
    for address, problem in ports.items():
        if problem is not None:
            yield CodedFinding(CheckCode.PORT, address_text(address), problem, action)


def judge(sample: TargetSample, options: GatewayOptions, names: OptionNames) -> Findings:
    """Yield findings, in no order."""
    yield from about_ports(sample.ports, names)
    for node, why in sorted(sample.unreachable.items()):
        where = f"broker {node} at {address_text(sample.brokers[node])}"
        why = f"{why}; clients get no answer for the partitions that it leads"
        action = "Start it, or make its advertised.listeners reachable from this machine"
        yield CodedFinding(CheckCode.BROKER, where, why, action)
    if not sample.keeps_ports and len(sample.brokers) > 1:
        why = "after a restart while a broker is away, clients may reach other brokers at its port"
        yield CodedFinding(CheckCode.STATE, names.name("state"), why, "Name a file by this option")
    yield from _about_passwords(options, names)
    yield from _about_versions(sample, options, names)
    yield from _about_peers(sample, options, names)
    if sample.zookeeper is not None:
        action = "Start it, create the chroot, or stop what is registered there"
        yield CodedFinding(CheckCode.ZOOKEEPER, names.name("zookeeper"), sample.zookeeper, action)
    for why, action in sample.problems:
        yield CodedFinding(CheckCode.UNREAD, address_text(sample.address), why, action)
    if sample.topics is not None:
        accepts, found = options.access.accepts, sample.topics.items()
        topics = {name: topic for name, topic in found if accepts("topic", name)}
        yield from _about_patterns(sample, options, names)
        yield from _about_topics(topics, options)
        yield from _about_limits(sample, topics, options)


def _about_passwords(options: GatewayOptions, names: OptionNames) -> Findings:
    sasl, tls = options.network.sasl, options.network.ssl_context
    if sasl is not None and sasl.name == "PLAIN" and tls is None:
        why = "PLAIN without TLS: the gateway's password can be read between it and the target"
        action = "Use security.protocol=SASL_SSL, or another sasl.mechanism"
        yield CodedFinding(CheckCode.PASSWORDS, names.name("target_config"), why, action)
    is_local = ipaddress.ip_address(options.listen[0]).is_loopback
    if options.users is not None and options.tls is None and not is_local:
        why = "without TLS the passwords of clients that use PLAIN can be read on the network"
        action = f"Set {names.name('tls_cert')}, or let clients use SCRAM"
        yield CodedFinding(CheckCode.PASSWORDS, names.name("users"), why, action)


def _about_versions(sample: TargetSample, options: GatewayOptions, names: OptionNames) -> Findings:
    code, target = CheckCode.VERSIONS, address_text(sample.address)
    action = f"Use a target of Kafka 2.1 to 4.x, or {names.name('observe')} before its upgrade"
    if options.is_observing and sample.ranges.get(ApiKey.PRODUCE, (0, 0))[0] > 0:
        why = "the target refuses the old requests that are passed to it as they are"
        yield CodedFinding(code, target, why, "Leave observe out: the gateway then translates them")
    for key, (_, version) in () if options.is_observing else TRANSLATED.items():
        first, last = sample.ranges.get(key, (0, -1))
        if not first <= version <= last:
            ranges = f"{first} to {last}" if last >= 0 else "none"
            why = f"the target takes {ranges}, so old clients can't use this API"
            where = f"{apis()[key].name} {version}"
            needed = CheckCode.UNSUPPORTED if key in _NEEDED else code
            yield CodedFinding(needed, where, why, action)
    first, last = sample.ranges.get(ApiKey.JOIN_GROUP, (0, -1))
    if first > 0:  # 4.0.0 removed the first versions, and 4.0.1 restored them
        why = f"the target takes {first} to {last}, so clients for 0.9 to 0.10.2 can't join groups"
        yield CodedFinding(code, "JoinGroup 0", why, "Use a target of Kafka 4.0.1 or later")
    first, last = sample.ranges.get(ApiKey.FETCH, (0, -1))
    release = _RELEASES.get(last, f"later than {_RELEASES[max(_RELEASES)]}")
    topics = "" if sample.topics is None else f", {counted(len(sample.topics), 'topic')}"
    brokers = f"{counted(len(sample.brokers), 'broker')}{topics}"
    why = f"Kafka {release} by its versions of Fetch ({first} to {last}), {brokers}"
    yield CodedFinding(CheckCode.TARGET, target, why, "Nothing")


def _about_peers(sample: TargetSample, options: GatewayOptions, names: OptionNames) -> Findings:
    own_name = address_text(options.own_address)
    own = {(options.advertise, port) for _, port in sample.ports}
    for peer, found in sample.peers.items():
        where = f"{names.name('peers')} {address_text(peer)}"
        if isinstance(found, str):
            yield CodedFinding(CheckCode.PEER_AWAY, where, found, "Start it or correct its address")
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
        action = "Name gateways to this cluster that have peers themselves"
        yield CodedFinding(CheckCode.PEER, where, why, action)


def _about_patterns(sample: TargetSample, options: GatewayOptions, names: OptionNames) -> Findings:
    topics, allowed = sample.topics or (), options.access.topics
    why = "it matches no topic that the target shows to the gateway"
    action = "Correct it, create the topic, or allow the gateway to describe it"
    for pattern in () if allowed is None else allowed.include:
        if not any(map(pattern.fullmatch, (*topics, _NO_NAME))):
            where = f"{names.name('topics.include')} {pattern.pattern}"
            yield CodedFinding(CheckCode.PATTERN, where, why, action)


def _about_topics(topics: Topics, options: GatewayOptions) -> Findings:
    for name, topic in sorted(topics.items()):
        if topic.leaderless:
            where = f"topic {name}, partition {', '.join(map(str, topic.leaderless[:_NAMED]))}"
            why = f"{len(topic.leaderless)} of its partitions have no leader"
            yield CodedFinding(CheckCode.LEADERLESS, where, why, "Start brokers of its replicas")
    for right, bit in _RIGHTS.items():
        if right == "Write" and options.access.is_read_only:
            continue
        lacking = [
            name
            for name, topic in topics.items()
            if topic.operations is not None and not topic.operations >> bit & 1
        ]
        why = f"the gateway has no right to {right}, and so have none of its clients"
        action = f"Give the gateway's principal or address {right}, or don't allow these topics"
        yield from _grouped(CheckCode.PERMISSION, lacking, why, action)


def _about_limits(sample: TargetSample, topics: Topics, options: GatewayOptions) -> Findings:
    creates = sample.settings.get("auto.create.topics.enable") == "true"
    if creates and not options.access.is_read_only:
        why = "a client that names an allowed topic which isn't there creates it"
        action = "Limit the topics, or set it to false at the target"
        yield CodedFinding(CheckCode.CREATION, "auto.create.topics.enable=true", why, action)
    if (size := sample.settings.get("message.max.bytes")) is not None:
        why = "a message that is larger gets error 10; a set that is larger is stored in parts"
        action = "Raise it, or max.message.bytes of topics, if messages are larger"
        yield CodedFinding(CheckCode.SIZES, f"message.max.bytes={size}", why, action)
    most = _OLD_FETCH_BYTES + 1024
    large = [name for name, one in topics.items() if _number(one, "max.message.bytes") > most]
    why = "messages may be larger than the 1 MiB that old consumers fetch of a partition"
    action = "Raise fetch.message.max.bytes or max.partition.fetch.bytes of old consumers"
    yield from _grouped(CheckCode.SIZES, large, why, action)
    zstd = [name for name, one in topics.items() if one.settings.get("compression.type") == "zstd"]
    why = "clients for up to 0.10 get snappy, which costs CPU; those for 0.11 to 2.0 get error 76"
    action = "Set another compression.type if such clients read it"
    yield from _grouped(CheckCode.ZSTD, zstd, why, action)
    for side, when in _TIMESTAMP_LIMITS.items():
        setting = f"message.timestamp.{side}.max.ms"
        limited = [
            name
            for name, one in topics.items()
            if one.settings.get("message.timestamp.type") != "LogAppendTime"
            and 0 <= _number(one, setting) < _NEVER
        ]
        why = f"messages whose timestamps are too {when} get error 32 ({setting})"
        action = "Keep the clocks of clients right, or raise it"
        yield from _grouped(CheckCode.TIMESTAMPS, limited, why, action)


def _number(topic: TargetTopic, setting: str) -> int:
    value = topic.settings.get(setting, "")
    return int(value) if value.lstrip("-").isdecimal() else -1


def _grouped(code: CheckCode, topics: Sequence[str], why: str, action: str) -> Findings:
    """Yield one finding for all topics that it is about."""
    if topics:
        where = f"topic{'s' * (len(topics) > 1)} {some_of(sorted(topics), _NAMED)}"
        yield CodedFinding(code, where, why, action)
