"""A failed authentication as findings: of each kind, and what the command prints of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from aiokafka08._core.sasl.failure import FailureKind, SaslFailure
from aiokafka08._tools.doctor.authentication import authentication_findings
from aiokafka08._tools.doctor.finding import FindingCode
from aiokafka08._tools.findings import Severity, is_healthy
from aiokafka08.errors import AuthenticationFailedError, KafkaConnectionError, NoBrokersAvailable
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand


@pytest.mark.parametrize("kind", FailureKind)
def test_each_kind_of_failure_has_a_finding_of_its_own(kind: FailureKind) -> None:
    [found] = authentication_findings(AuthenticationFailedError("k:1: no", SaslFailure(kind)))
    assert found.code.severity is Severity.CRITICAL
    assert found.action
    others = {
        authentication_findings(AuthenticationFailedError("k:1: no", SaslFailure(other)))[0].code
        for other in FailureKind
        if other is not kind
    }
    assert found.code not in others


def test_remedy_of_the_error_is_the_action_and_not_in_the_reason() -> None:
    failure = SaslFailure(FailureKind.CLOCK, "Synchronize them")
    text = failure.described("k:1: GSSAPI: the clocks of client and KDC differ too much")
    [found] = authentication_findings(AuthenticationFailedError(text, failure))
    assert found.code is FindingCode.CLOCK
    assert found.why.endswith(": k:1: GSSAPI: the clocks of client and KDC differ too much")
    assert found.action == "Synchronize them"
    assert not is_healthy([found])


def test_failures_of_several_addresses_are_findings_each() -> None:
    failures = [SaslFailure(FailureKind.REFUSED), SaslFailure(FailureKind.KDC)]
    found = authentication_findings(NoBrokersAvailable("k:1: no; k:2: no", *failures))
    assert {one.code for one in found} == {FindingCode.REFUSED, FindingCode.KDC}


def test_another_failure_of_the_start_is_none() -> None:
    assert authentication_findings(KafkaConnectionError("k:1: Connection refused")) == []


async def test_refused_password_is_a_finding_that_cannot_be_ignored(
    cli: RunCommand, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=s3cret\n"
    )
    async with EmbeddedCluster(version="0.10", sasl={"alice": "another"}) as cluster:
        at = ("-b", cluster.bootstrap_servers, "-F", str(config))
        done = await asyncio.to_thread(cli, "doctor", *at, "--format", "json")
        assert (done.code, done.err) == (1, "")
        [found] = json.loads(done.out)["findings"]
        assert found["code"] == "authentication-refused"
        assert "PLAIN as user 'alice'" in found["why"]
        assert found["action"].startswith("Check user name and password")
        # Nothing is known of the cluster: an ignored code doesn't make it healthy.
        done = await asyncio.to_thread(cli, "doctor", *at, "--ignore", "authentication-refused")
        assert (done.code, done.err) == (1, "")
        assert b"s3cret" not in done.out


async def test_listener_without_sasl_is_a_finding(cli: RunCommand, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=s3cret\n"
    )
    async with EmbeddedCluster(version="0.9") as cluster:
        at = ("-b", cluster.bootstrap_servers, "-F", str(config))
        done = await asyncio.to_thread(cli, "doctor", *at, "--format", "json")
    assert (done.code, done.err) == (1, "")
    [found] = json.loads(done.out)["findings"]
    assert found["code"] == "not-a-sasl-listener"
    assert found["action"].startswith("Set security.protocol to 'PLAINTEXT'")
