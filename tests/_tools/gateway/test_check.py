"""What `gateway check` finds: judged from samples, and sampled from targets."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._core.server.listening import why_unavailable
from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._tools.findings import Code, CodedFinding, is_healthy
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.check import CheckCode, judge
from aiokafka08._tools.gateway.options import FLAG_NAMES, gateway_options
from aiokafka08._tools.gateway.peers import FIRST_ID
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08._tools.gateway.target_sample import (
    PeerAnswer,
    TargetSample,
    TargetTopic,
    ask_peers,
    sample_target,
)
from aiokafka08._tools.gateway.zookeeper_mirror import why_unusable
from aiokafka08.errors import KafkaConnectionError
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import HOST, first_port, running
from tests.brokers.ports import free_port, free_ports
from tests.support.paths import ROOT
from tests.support.stream_server import StreamServer

pytestmark = pytest.mark.fast

OPTIONS = gateway_options("kafka:9092")
RANGES = {0: (0, 13), 1: (4, 18), 2: (1, 11), 8: (2, 10), 9: (1, 10)}
ALL_RIGHTS = 0b1111_1111_1000
ONLY_A = replace(OPTIONS, access=Access(NamePatterns(compile_patterns("include", ["a", "b"]))))


def sample(**changed: Any) -> TargetSample:
    values: dict[str, Any] = {
        "address": ("kafka", 9092), "ranges": RANGES, "brokers": {0: ("kafka", 9092)}
    }  # fmt: skip
    return TargetSample(**{**values, **changed})


def topic(operations: int = ALL_RIGHTS, **settings: str) -> TargetTopic:
    return TargetTopic([], operations, {name.replace("_", "."): v for name, v in settings.items()})


def found(target: TargetSample, options: Any = OPTIONS) -> dict[Code, CodedFinding]:
    return {one.code: one for one in judge(target, options, FLAG_NAMES)}


def test_target_without_problems_has_one_note() -> None:
    findings = found(sample(topics={"a": topic()}))
    assert list(findings) == [CheckCode.TARGET]
    assert findings[CheckCode.TARGET].why == (
        "Kafka 4.1 by its versions of Fetch (4 to 18), 1 broker, 1 topic"
    )
    assert is_healthy(findings.values())


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"ranges": {**RANGES, 0: (0, 2)}}, CheckCode.UNSUPPORTED, "the target takes 0 to 2"),
        ({"ranges": {**RANGES, 1: (11, 20)}}, CheckCode.UNSUPPORTED, "the target takes 11 to 20"),
        ({"ranges": {**RANGES, 8: (3, 10)}}, CheckCode.VERSIONS, "the target takes 3 to 10"),
        ({"ranges": {**RANGES, 11: (2, 9)}}, CheckCode.VERSIONS, "so clients for 0.9 to 0.10.2"),
        ({"unreachable": {0: "refused"}}, CheckCode.BROKER, "refused; clients get no answer"),
        ({"ports": {("::1", 9092): "in use"}}, CheckCode.PORT, "in use"),
        (
            {"brokers": {0: ("a", 1), 1: ("b", 1)}, "keeps_ports": False},
            CheckCode.STATE,
            "may reach other brokers",
        ),
        ({"problems": [("it has no settings", "Nothing")]}, CheckCode.UNREAD, "no settings"),
        ({"topics": {"a": TargetTopic([2], None)}}, CheckCode.LEADERLESS, "1 of its partitions"),
        ({"topics": {"a": topic(0b1000)}}, CheckCode.PERMISSION, "no right to Write"),
        (
            {"topics": {"a": topic(compression_type="zstd")}},
            CheckCode.ZSTD,
            "2.0 get error 76",
        ),
        ({"topics": {"a": topic(max_message_bytes="9000000")}}, CheckCode.SIZES, "1 MiB"),
        (
            {"topics": {"a": topic(message_timestamp_before_max_ms="3600000")}},
            CheckCode.TIMESTAMPS,
            "too old get error 32",
        ),
        (
            {"topics": {}, "settings": {"auto.create.topics.enable": "true"}},
            CheckCode.CREATION,
            "creates it",
        ),
        (
            {"topics": {}, "settings": {"message.max.bytes": "1000"}},
            CheckCode.SIZES,
            "a set that is larger is stored in parts",
        ),
    ],
)
def test_each_problem_has_its_finding(changed: dict[str, Any], code: CheckCode, text: str) -> None:
    assert text in found(sample(**changed))[code].why


def test_limits_that_do_not_apply_are_no_findings() -> None:
    settings: dict[str, Any] = {
        "message_timestamp_before_max_ms": str(2**63 - 1),
        "message_timestamp_after_max_ms": "1",
        "message_timestamp_type": "LogAppendTime",
        "max_message_bytes": "1048588",
    }
    assert list(found(sample(topics={"a": topic(**settings)}))) == [CheckCode.TARGET]


def test_only_allowed_topics_are_judged_and_patterns_without_a_topic_are_named() -> None:
    target = sample(topics={"a": topic(), "other": topic(0)})
    findings = found(target, ONLY_A)
    assert findings.keys() == {CheckCode.TARGET, CheckCode.PATTERN}
    assert findings[CheckCode.PATTERN].where == "--topics b"


def test_ports_of_one_broker_need_no_file() -> None:
    assert CheckCode.STATE not in found(sample(keeps_ports=False))


def test_pattern_of_all_names_needs_no_topic() -> None:
    patterns = compile_patterns("include", [".*", ".+", "(?!x).*", "orders-.*"])
    findings = judge(
        sample(topics={}), replace(OPTIONS, access=Access(NamePatterns(patterns))), FLAG_NAMES
    )
    named = [one.where for one in findings if one.code is CheckCode.PATTERN]
    assert named == ["--topics orders-.*"]


OTHER = ("g2", 9092)
NAMED_BY_PEER = {0: ("g2", 9093), FIRST_ID: ("127.0.0.1", 9092), FIRST_ID + 1: OTHER}


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (PeerAnswer("c", NAMED_BY_PEER), None, ""),
        (None, CheckCode.UNREAD, "its clients authenticate"),
        ("it can't be reached: refused", CheckCode.PEER_AWAY, "refused"),
        (PeerAnswer("d", NAMED_BY_PEER), CheckCode.PEER, "its cluster is d, that of the target c"),
        (PeerAnswer("c", {0: ("kafka", 9092)}), CheckCode.PEER, "it is a broker, or a gateway"),
        (
            PeerAnswer("c", NAMED_BY_PEER | {0: ("127.0.0.1", 9093)}),
            CheckCode.PEER,
            "its own name is 127.0.0.1:9092",
        ),
    ],
)
def test_peer_is_another_gateway_to_the_same_cluster(
    answer: PeerAnswer | str | None, code: CheckCode | None, text: str
) -> None:
    target = sample(cluster_id="c", peers={OTHER: answer}, ports={("127.0.0.1", 9093): None})
    findings = found(target)
    assert findings.keys() - {CheckCode.TARGET} == ({code} if code else set())
    if code is not None:
        assert findings[code].where == "--peers g2:9092"
        assert text in findings[code].why


async def test_peers_are_asked_but_for_the_gateway_itself() -> None:
    ports = [free_ports() for _ in range(3)]
    peers = tuple((HOST, port) for port in ports)
    options = replace(OPTIONS, listen=peers[0], advertise=HOST, peers=peers)
    async with (
        EmbeddedCluster(version="0.10") as cluster,
        running(cluster.bootstrap_servers, listen=peers[1], peers=peers) as other,
    ):
        answers = await ask_peers(options)
        assert list(answers) == list(peers[1:])
        answer = answers[peers[1]]
        assert isinstance(answer, PeerAnswer)
        assert answer.brokers == {
            0: (HOST, first_port(other)), **dict(enumerate(peers, FIRST_ID))
        }  # fmt: skip
        assert "refused" in str(answers[peers[2]])
        users = SaslUsers({"alice": "alice-secret"})
        assert (await ask_peers(replace(options, users=users)))[peers[1]] is None


async def test_zookeeper_that_cannot_be_reached_is_a_finding() -> None:
    options = replace(OPTIONS, zookeeper=f"{HOST}:{free_port()}/kafka")
    why = await why_unusable(options)
    assert why is not None
    assert "refused" in why
    findings = found(sample(zookeeper=why))
    assert findings[CheckCode.ZOOKEEPER].where == "--zookeeper"
    assert await why_unusable(OPTIONS) is None


def test_read_only_gateway_needs_no_right_to_write() -> None:
    options = replace(OPTIONS, access=Access(is_read_only=True))
    assert CheckCode.PERMISSION not in found(sample(topics={"a": topic(0b1000)}), options)


def test_codes_are_those_of_the_guide() -> None:
    text = (ROOT / "docs/guides/gateway.md").read_text()
    for code in CheckCode:
        assert f"| `{code.value}` | {code.severity} | {code.meaning} |" in text, code


async def test_sample_of_a_broker_without_settings_names_the_problem() -> None:
    async with EmbeddedCluster(2, version="0.10", topics={"t": 2}) as cluster:
        target = await sample_target(
            target_network([("127.0.0.1", cluster.nodes[0].port)]), is_quick=False
        )
        assert list(target.brokers) == [0, 1]
        assert target.topics is not None
        assert list(target.topics) == ["t"]
        why = "it doesn't know DescribeConfigs, so its settings couldn't be read"
        assert target.problems == [(why, "Look at the settings yourself")]
        assert CheckCode.UNSUPPORTED in found(target)
        quick = await sample_target(
            target_network([("127.0.0.1", cluster.nodes[0].port)]), is_quick=True
        )
        assert quick.topics is None


async def test_target_is_the_first_address_that_answers() -> None:
    async with EmbeddedCluster(version="0.10") as cluster:
        missing = ("127.0.0.1", free_port())
        target = await sample_target(
            target_network([missing, ("127.0.0.1", cluster.nodes[0].port)]), is_quick=True
        )
        assert target.address == ("127.0.0.1", cluster.nodes[0].port)
        with pytest.raises(
            KafkaConnectionError, match=rf"127\.0\.0\.1:{missing[1]}: .*(refused|failed)"
        ):
            await sample_target(target_network([missing]), is_quick=True)


async def test_broker_that_hangs_up_is_named() -> None:
    """As brokers do that expect TLS, and those before 0.10."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with StreamServer(hang_up) as server:
        address = (server.host, server.port)
        with pytest.raises(KafkaConnectionError, match=r"closed the connection|reset by peer"):
            await sample_target(target_network([address]), is_quick=True)


def test_ports_are_tried() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        taken, free = used.getsockname(), ("127.0.0.1", free_port())
        assert why_unavailable(*taken) == "Address already in use"
        assert why_unavailable(*free) is None
