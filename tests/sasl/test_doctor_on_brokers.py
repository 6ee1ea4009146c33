"""The doctor says what is missing: keytab, ticket, principal, KDC, mechanism, permission."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, cli, folder_of_profiles
from tests.brokers import RealCluster
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import HOST_NAME, PASSWORDS
from tests.sasl.conftest import StartCluster

__all__ = ["cli", "folder_of_profiles"]

RELEASE = "0.9.0.1"

pytestmark = [pytest.mark.heavy, pytest.mark.release(RELEASE)]


class Doctor:
    """Runs the command with a principal of the KDC."""

    def __init__(self, cli: RunCommand, kdc: Kdc, folder: Path) -> None:
        self._cli = cli
        self._kdc = kdc
        self._file = folder / "client.properties"

    async def findings(self, servers: str, user: str = "client", **given: str) -> dict[str, Any]:
        """Return the findings by their codes, without notes; `given` replaces properties."""
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.keytab": str(self._kdc.keytab(user)),
            "sasl.kerberos.principal": user,
            **{name.replace("_", "."): value for name, value in given.items()},
        }
        lines = [f"{name}={value}\n" for name, value in properties.items() if value]
        self._file.write_text("".join(lines))
        at = ("-b", servers, "-F", str(self._file), "--format", "json", "--timeout", "5")
        done = await asyncio.to_thread(self._cli, "doctor", *at)
        assert done.code in (0, 1), done.err
        printed = json.loads(done.out)
        assert done.code == (0 if printed["healthy"] else 1)
        shown = done.out.decode() + done.err
        assert not any(password in shown for password in PASSWORDS.values())
        return {one["code"]: one for one in printed["findings"] if one["severity"] != "note"}


@pytest.fixture
def doctor(cli: RunCommand, kdc: Kdc, tmp_path: Path) -> Doctor:
    return Doctor(cli, kdc, tmp_path)


@pytest.fixture
def old_cluster(sasl_cluster: StartCluster) -> RealCluster:
    return sasl_cluster(RELEASE)


@pytest.mark.parametrize(
    ("given", "code", "action"),
    [
        ({"sasl_kerberos_keytab": "/nowhere/a.keytab"}, "keytab-unusable", "sasl.kerberos.keytab"),
        ({"sasl_kerberos_principal": "nobody"}, "keytab-unusable", "klist -k"),
        (
            {"sasl_kerberos_keytab": "", "sasl_kerberos_principal": ""},
            "no-ticket",
            "Run kinit, set sasl.kerberos.keytab",
        ),
        (
            {"sasl_kerberos_service_name": "other"},
            "unknown-broker-principal",
            "Check sasl.kerberos.service.name",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "alice-secret"},
            "authentication-refused",
            "PLAIN is in the broker's sasl.enabled.mechanisms",
        ),
    ],
)
async def test_what_is_missing_is_a_finding(
    given: dict[str, str], code: str, action: str, doctor: Doctor, old_cluster: RealCluster
) -> None:
    found = await doctor.findings(old_cluster.sasl_bootstrap_servers, **given)
    assert [*found] == [code]
    assert action in found[code]["action"]
    assert "nothing else was looked at" in found[code]["why"]


async def test_wrong_host_name_is_a_finding(doctor: Doctor, old_cluster: RealCluster) -> None:
    servers = old_cluster.sasl_bootstrap_servers.replace(HOST_NAME, "127.0.0.1")
    found = await doctor.findings(servers)
    assert [*found] == ["unknown-broker-principal"]
    assert "kafka/127.0.0.1" in found["unknown-broker-principal"]["why"]


async def test_expired_ticket_is_a_finding(
    doctor: Doctor,
    old_cluster: RealCluster,
    kdc: Kdc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "cache"
    await asyncio.to_thread(kdc.kinit, "client", cache, "-l", "1s")
    await asyncio.sleep(1.1)  # the life of the ticket
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    found = await doctor.findings(
        old_cluster.sasl_bootstrap_servers, sasl_kerberos_keytab="", sasl_kerberos_principal=""
    )
    assert [*found] == ["no-ticket"]
    assert "the ticket has expired" in found["no-ticket"]["why"]


async def test_principal_that_the_kdc_lost_is_a_finding(
    doctor: Doctor, old_cluster: RealCluster, kdc: Kdc
) -> None:
    await asyncio.to_thread(kdc.add_principal, "goner")
    await asyncio.to_thread(kdc.administer, "delprinc -force goner")
    found = await doctor.findings(old_cluster.sasl_bootstrap_servers, "goner")
    assert [*found] == ["unknown-client-principal"]


async def test_kdc_that_is_down_is_a_finding(
    doctor: Doctor, old_cluster: RealCluster, kdc: Kdc
) -> None:
    await asyncio.to_thread(kdc.add_principal, "unlucky")  # no other client has a ticket of it
    kdc.stop()
    try:
        found = await doctor.findings(old_cluster.sasl_bootstrap_servers, "unlucky")
    finally:
        await asyncio.to_thread(kdc.start)
    assert [*found] == ["kdc-unreachable"]


async def test_listener_without_sasl_is_a_finding(doctor: Doctor, old_cluster: RealCluster) -> None:
    servers = old_cluster.bootstrap_servers.replace("127.0.0.1", HOST_NAME)
    found = await doctor.findings(servers)
    assert [*found] == ["not-a-sasl-listener"]


async def test_mechanism_that_is_not_enabled_is_a_finding(doctor: Doctor) -> None:
    """Of brokers with PLAIN and SCRAM."""
    async with EmbeddedCluster(version="0.10", sasl={"alice": "alice-secret"}) as cluster:
        servers = cluster.bootstrap_servers.replace("127.0.0.1", HOST_NAME)
        found = await doctor.findings(servers)
    [finding] = found.values()
    assert finding["code"] == "mechanism-not-enabled"
    assert "it offers PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in finding["why"]
    assert finding["action"].startswith("Set sasl.mechanism to one of them")


async def test_missing_permission_is_a_finding(doctor: Doctor, old_cluster: RealCluster) -> None:
    found = await doctor.findings(old_cluster.sasl_bootstrap_servers, "guest")
    finding = found["no-permission"]
    assert finding["action"].endswith("Describe on the cluster")
    assert "guest" in finding["why"]


async def test_principal_with_all_rights_lacks_none(
    doctor: Doctor, old_cluster: RealCluster
) -> None:
    found = await doctor.findings(old_cluster.sasl_bootstrap_servers)
    assert not {"no-permission", "authentication-refused"} & found.keys()
