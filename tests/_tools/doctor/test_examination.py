"""All rules together, the list of codes, and the report."""

from __future__ import annotations

import dataclasses
import re

from aiokafka08._tools.doctor.brokers import mixed_lines, unreachable
from aiokafka08._tools.doctor.examination import Examination, examine
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import duration, ranges, topic_list
from aiokafka08._tools.doctor.replication import under_replicated
from aiokafka08._tools.findings import Severity, in_order, is_healthy, report, summary
from aiokafka08._tools.monitoring.cluster_sample import BrokerSample
from tests._tools.doctor.samples import cluster, partition, told
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "doctor.md"
CONFIG = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
HEALTHY = cluster(partition(assigned=[0, 1, 2], stored_isr=[0, 1, 2]), config=CONFIG)


def test_healthy_cluster_has_no_findings() -> None:
    later = dataclasses.replace(HEALTHY)
    assert examine(Examination(HEALTHY, later, 60.0)) == []


def test_what_was_not_looked_at_is_a_note() -> None:
    seen = cluster(partition(), config=None)
    found = examine(Examination(seen, seen, asks_zookeeper=False))
    [note] = found
    assert note.code is FindingCode.UNCHECKED
    assert note.action == "Give --watch 60s and --zookeeper host:2181/chroot"
    assert "without a second sample: how near" in note.why
    assert "without ZooKeeper: the true replication factor" in note.why
    assert "min.insync.replicas" in note.why
    [note] = examine(Examination(HEALTHY, HEALTHY))
    assert note.action == "Give --watch 60s"
    assert "ZooKeeper" not in note.why
    assert is_healthy(found)


def test_cluster_without_a_visible_topic_may_be_hidden_by_an_authorizer() -> None:
    """As a real 3.9.1 answers a principal without rights: no topic, no group and no error."""
    nothing = dataclasses.replace(HEALTHY, topics={})
    [note] = examine(Examination(nothing, nothing))
    assert note.code is FindingCode.UNCHECKED
    assert "what an authorizer hides" in note.why
    assert "Describe on topics and groups" in note.action
    assert is_healthy([note])


def test_what_could_not_be_read_is_a_finding() -> None:
    seen = dataclasses.replace(HEALTHY, errors=("groups not read: no coordinator",))
    [found, _] = examine(Examination(seen, seen))
    assert (found.code, found.why) == (FindingCode.UNREADABLE, "groups not read: no coordinator")
    assert not is_healthy([found])


def test_refusal_is_a_finding_that_names_the_right() -> None:
    gap = "groups in Kafka not read: the client is not authorized"
    seen = dataclasses.replace(HEALTHY, errors=(gap,), rights={gap: "Describe on the cluster"})
    [group, topic, _] = examine(Examination(seen, seen, refused_topics={"t"}))
    assert group.code is topic.code is FindingCode.NO_PERMISSION
    assert group.why == gap
    assert "Describe on the cluster" in group.action
    assert "may not read topic 't'" in topic.why
    assert "Read on topic 't'" in topic.action
    assert not is_healthy([group])


def test_gap_of_the_first_sample_is_a_finding() -> None:
    """A rule that compares two samples says nothing about what one of them lacks."""
    gap = "groups in Kafka not read: no coordinator"
    first = dataclasses.replace(HEALTHY, errors=(gap,))
    for last in (HEALTHY, dataclasses.replace(first)):
        [found] = examine(Examination(first, last, 60.0))
        assert (found.code, found.why) == (FindingCode.UNREADABLE, gap)


def test_broker_that_does_not_respond_is_found() -> None:
    seen = dataclasses.replace(HEALTHY, brokers={1: BrokerSample(1, "k:1", error="it is down")})
    [found] = unreachable(seen)
    assert told([found]) == [("unreachable-broker", "broker 1 at k:1")]
    assert "doesn't respond: it is down. " in found.why


def test_brokers_of_several_releases_are_found() -> None:
    [found] = mixed_lines({0: "0.9", 1: "0.8", 2: "0.9"})
    assert found.why.startswith("brokers of several releases: 0.8: broker 1; 0.9: brokers 0, 2. ")
    assert told(mixed_lines({0: "0.8.2", 1: "0.8", 2: "0.8.0 or 0.8.1"}))
    assert not list(mixed_lines({0: "0.9", 1: "0.9"}))
    assert not list(mixed_lines({0: "0.8.2", 1: "0.8"}))  # which leads no partition


def test_urgent_findings_come_first() -> None:
    found = [Finding(code, "w", "y", "a") for code in reversed(FindingCode)]
    ordered = [one.code.severity for one in in_order(found)]
    assert ordered == sorted(ordered, key=list(Severity).index)


def test_page_has_all_codes() -> None:
    tables = re.split(r"^(Critical|Warnings|Notes).*:\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert tables[::2] == ["Critical", "Warnings", "Notes"]
    rows = [
        (code, severity, meaning)
        for severity, table in zip(Severity, tables[1::2], strict=True)
        for code, meaning in re.findall(r"^\| `([a-z-]+)` \| (.+?) \|", table, re.MULTILINE)
    ]
    assert rows == [(one.value, one.severity, one.meaning) for one in FindingCode]


def test_verdict_counts_in_singular_and_plural() -> None:
    codes = (
        [FindingCode.STALE_ISR] * 2
        + [FindingCode.LEADERLESS_PARTITION] * 2
        + [FindingCode.UNCHECKED]
    )
    findings = [Finding(code, "topic 't'", "why", "do it") for code in codes]
    assert summary(findings) == "unhealthy: 2 critical, 2 warnings, 1 note"


def test_report_has_paragraphs_and_a_verdict() -> None:
    text = report([Finding(FindingCode.STALE_ISR, "topic 't'", "why " * 9, "do it")], 30)
    assert text == (
        "WARNING   stale-isr: topic 't'\n"
        "  why why why why why why why\n  why why .\n"
        "  → do it.\n\n"
        "unhealthy: 1 warning\n"
    )
    assert report([], 80) == "healthy\n"


def test_report_fits_names_of_wide_and_of_combining_characters() -> None:
    """Width is columns: a wide character takes two, a combining one none."""
    lines = report([Finding(FindingCode.STALE_ISR, "t", "請求書 " * 9, "do it")], 30).splitlines()
    assert lines[1:4] == ["  " + " ".join(["請求書"] * 4)] * 2 + ["  請求書 ."]
    name = "e\u0301a\u0301"
    lines = report([Finding(FindingCode.STALE_ISR, "t", f"{name} " * 9, "do it")], 30).splitlines()
    assert lines[1] == "  " + " ".join([name] * 9) + " ."


def test_report_breaks_no_name() -> None:
    group = "group 'billing.invoice-writers.production' (zookeeper)"
    text = report([Finding(FindingCode.IDLE_GROUP_LAG, group, "why", "do it")], 30)
    assert text.splitlines()[:3] == [
        "WARNING   idle-group-lag:",
        "          group",
        "          'billing.invoice-writers.production'",
    ]


def test_consequences_of_a_dead_broker_are_one_paragraph() -> None:
    dead = partition([], [], leader=None, assigned=[0, 1, 2], stored_isr=[2])
    under = partition([0, 1, 2], [0, 1])
    seen = dataclasses.replace(
        cluster(under, under, dead, config={"min.insync.replicas": "3"}, brokers=[0, 1]),
        errors=("the leaders of t/9 don't respond",),
        explained=frozenset({"the leaders of t/9 don't respond"}),
    )
    found = [one for one in examine(Examination(seen, seen)) if one.code.severity != "note"]
    caused = [one for one in found if one.cause == "broker 2 is missing"]
    assert [one.code.value for one in caused] == [
        "leaderless-partition",
        "under-min-isr",
        "under-replicated",
    ]
    text = report(caused, 80)
    assert text.startswith("CRITICAL  broker 2 is missing: 3 consequences\n  - leaderless-part")
    assert text.endswith("\n\nunhealthy: 1 critical\n")


def test_replica_that_lags_on_a_live_broker_has_no_such_cause() -> None:
    [found] = under_replicated(cluster(partition([0, 1, 2], [0, 1])))
    assert found.cause is None


def test_places_are_short() -> None:
    assert ranges([7, 0, 3, 4, 5]) == "0, 3-5, 7"
    assert (topic_list(["a"]), topic_list(["b", "a"])) == ("topic 'a'", "2 topics: a, b")
    assert [duration(one) for one in (45.2, 600, 9000)] == ["45 s", "10 min", "2.5 h"]
