"""Listeners with a name: each has its own principal at the target."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08.protocol.api import ApiKey
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.broker_lines import LINES
from tests._tools.gateway.gateways import HOST, first_port, running
from tests._tools.gateway.worker_processes import workers_gateway
from tests.brokers.ports import free_ports
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata

pytestmark = pytest.mark.timeout(300)

TEXT = """
target_config = "alice.properties"
[listeners.billing]
listen = "{host}:{port}"
target_config = "bob.properties"
topics.include = ["bills"]
"""
PROPERTIES = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.username={user}
sasl.password=secret of {user}
"""


async def test_each_listener_has_its_own_principal_and_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is another gateway, which lists the principals of its clients."""
    # The broker says that it takes the versions that a gateway needs; they aren't used here.
    for api, versions in ((ApiKey.PRODUCE, range(4)), (ApiKey.FETCH, range(11))):
        monkeypatch.setitem(LINES["0.10"].refused_apis, api, versions)
    port, file = free_ports(), tmp_path / "gateway.toml"
    file.write_text(TEXT.format(host=HOST, port=port))
    for user in ("alice", "bob"):
        properties = tmp_path / f"{user}.properties"
        properties.write_text(PROPERTIES.format(user=user))
        properties.chmod(0o600)
    users = SaslUsers({user: f"secret of {user}" for user in ("alice", "bob")})
    async with (
        EmbeddedCluster(version="0.10", topics={"orders": 1, "bills": 1}) as cluster,
        running(cluster.bootstrap_servers, users=users) as target,
    ):

        def ask() -> None:
            with workers_gateway(f"{HOST}:{first_port(target)}", tmp_path, 2, str(file)) as gateway:
                found = [metadata(one, ["orders", "bills"]) for one in (gateway.port, port)]
                assert [one.brokers for one in found] == [
                    {0: (HOST, gateway.port)}, {0: (HOST, port)},
                ]  # fmt: skip
                topics = [{name for name, led in one.leaders.items() if led} for one in found]
                assert topics == [{"orders", "bills"}, {"bills"}]
                assert f"listener billing listening on port {port} for node 0" in gateway.log()
                wait_for(lambda: len(gateway.clients()) == 2, 30, "both clients are listed")
                assert {one["listener"] for one in gateway.clients()} == {"", "billing"}
                text = gateway.page("metrics").decode()
                assert 'gateway_listening{node="0",listener="billing"} 1' in text

        await asyncio.to_thread(ask)
        seen = {(one["client_id"], one["principal"]) for one in target.clients.rows()}
    assert {("harness", "alice"), ("harness", "bob")} <= seen
