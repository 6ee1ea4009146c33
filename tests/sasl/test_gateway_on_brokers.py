"""A gateway to a real 4.1.0 with TLS and SASL, and what is found and said if they are wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._tools.gateway.check import CheckCode, unreachable
from aiokafka08._tools.gateway.client_security import server_context
from aiokafka08._tools.gateway.options import FLAG_NAMES
from aiokafka08._tools.gateway.target_client import TargetClient
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08._tools.gateway.target_sample import sample_target
from aiokafka08.errors import KafkaConnectionError
from aiokafka08.helpers import create_ssl_context
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from tests._tools.cli.conftest import command_line
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    first_port,
    make_certificate,
    running,
)
from tests._tools.gateway.processes import Gateways
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.kdc import Kdc
from tests.brokers.ports import accepts, free_ports
from tests.brokers.sasl import PASSWORDS, REAUTHENTICATION_MS
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata
from tests.sasl.conftest import SECRETS, StartCluster, options_of
from tests.support.environments import as_users
from tests.support.full import in_full
from tests.support.paths import ROOT
from tests.tools.message_layouts import BETWEEN_BROKERS

with warnings.catch_warnings():  # of importlib.resources, in the import
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

VERSION = "4.1.0"
pytestmark = [pytest.mark.release(VERSION), pytest.mark.timeout(240)]

UniqueTopic = Callable[..., str]


def network_of(cluster: RealCluster, mechanism: str, *, tls: bool, **others: Any) -> Any:
    options = options_of(cluster, mechanism, tls=tls, **others)
    return target_network(options.pop("bootstrap_servers"), **options)


def create(cluster: RealCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=100)[topic].result(100)


async def produce(client: RawClient, topic: str, value: bytes) -> None:
    messages = encode_entry(0, None, value)
    asked = ProduceRequest(1, 5000, [Topic(topic, [ProducePartition(0, messages)])])
    (found,) = (await client.call(asked, 0)).topics[0].partitions
    assert found.error_code == 0


async def fetched(client: RawClient, topic: str) -> bytes:
    asked = FetchRequest(-1, 500, 1, [Topic(topic, [FetchPartition(0, 0, 1 << 20)])])
    (found,) = (await client.call(asked, 0)).topics[0].partitions
    assert found.error_code == 0
    return bytes(found.message_set)


@pytest.mark.parametrize(
    ("mechanism", "tls"),
    [
        ("GSSAPI", False),
        ("PLAIN", True),
        ("SCRAM-SHA-512", False),
        *in_full(("GSSAPI", True), ("SCRAM-SHA-256", True)),
    ],
)
async def test_old_client_uses_a_target_with_sasl(
    mechanism: str,
    tls: bool,
    sasl_cluster: StartCluster,
    unique_topic: UniqueTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    topic = unique_topic()
    await asyncio.to_thread(create, cluster, topic)
    network = network_of(cluster, mechanism, tls=tls)
    async with (
        running("unused:1", network=network) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        await produce(client, topic, b"tea")
        assert b"tea" in await fetched(client, topic)
    assert not any(secret in caplog.text + repr(network) for secret in SECRETS)


OF_BROKERS: dict[tuple[str, int], dict[str, Any]] = {
    ("WriteTxnMarkers", 1): {
        "Markers": [{"ProducerId": 7, "Topics": [{"Name": "t", "PartitionIndexes": [3]}]}]
    },
    **{
        (name, 0): {"GroupId": "g", "Topics": [{"Partitions": [{"Partition": 3}]}]}
        for name in BETWEEN_BROKERS - {"WriteTxnMarkers"}
    },
    **{
        (name, version): {
            "ReplicaId": 3,
            "ReplicaState": {"ReplicaId": 3},
            "SessionId": 0,
            "Topics": [
                {
                    "Name": "t",
                    "Topic": "t",
                    "Partitions": [{"Partition": 1, "PartitionIndex": 1, "Timestamp": -1}],
                }
            ],
        }
        for name, versions in (
            ("Fetch", (4, 11, 12)),
            ("ListOffsets", (1, 6)),
            ("OffsetForLeaderEpoch", (3, 4)),
        )
        for version in versions
    },
}
"""What only brokers may send, by API and version."""


def errors_of(value: Any) -> Any:
    """Return what isn't without meaning in an error: names, numbers, and codes."""
    if isinstance(value, list):
        return [errors_of(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: errors_of(one)
        for name, one in value.items()
        if isinstance(one, list)
        or name.endswith(("Code", "Id", "Name", "Topic", "Partition", "Index"))
    }


async def test_requests_of_brokers_get_what_a_broker_answers(sasl_cluster: StartCluster) -> None:
    """The same errors as from the target to a user without rights."""
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    user = {"sasl_plain_username": "mallory", "sasl_plain_password": PASSWORDS["mallory"]}
    network = network_of(cluster, "PLAIN", tls=False, **user)
    async with (
        running(cluster.bootstrap_servers) as gateway,
        TargetClient.connected((HOST, first_port(gateway)), target_network("unused:1")) as ours,
        TargetClient.connected(network.bootstrap[0], network) as theirs,
    ):
        for (name, version), values in OF_BROKERS.items():
            answer, wanted = [
                errors_of(await one.call(name, version, **values)) for one in (ours, theirs)
            ]
            assert answer == wanted, name
            assert re.search(r"'ErrorCode': (29|31)", str(answer))


async def test_old_client_uses_a_target_with_tls_alone(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    topic = unique_topic()
    await asyncio.to_thread(create, cluster, topic)
    network = target_network(
        cluster.ssl_bootstrap_servers,
        security_protocol="SSL",
        ssl_context=create_ssl_context(cafile=str(cluster.ca_path)),
    )
    async with (
        running("unused:1", network=network) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        await produce(client, topic, b"tea")


async def test_connection_outlives_the_session_of_a_real_broker(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic
) -> None:
    """The broker ends sessions of GSSAPI after three seconds; a busy machine may miss that."""
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    topic = unique_topic()
    await asyncio.to_thread(create, cluster, topic)
    network = network_of(cluster, "GSSAPI", tls=True)
    async with running("unused:1", network=network) as gateway, asyncio.timeout(150):
        while not await lives_for(3 * REAUTHENTICATION_MS / 1000, first_port(gateway), topic):
            pass


async def lives_for(seconds: float, port: int, topic: str) -> bool:
    """Produce on one connection for this time; return whether it has lived so long."""
    loop = asyncio.get_running_loop()
    async with await RawClient.connect(port) as client:
        ends = loop.time() + seconds
        while loop.time() < ends:
            try:
                await produce(client, topic, b"tea")
            except (EOFError, ConnectionError):
                return False
    return True


def use_as_of_0_10(servers: str, topic: str) -> None:
    """Produce and consume with kafka-python as of 0.10: plain tokens."""
    client: dict[str, Any] = {
        "bootstrap_servers": servers,
        "api_version": (0, 10),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "bob-secret",
    }
    with closing(kafka.KafkaProducer(**client, max_block_ms=30_000)) as producer:
        producer.send(topic, b"old").get(60)
    consumer = kafka.KafkaConsumer(
        topic, **client, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    with closing(consumer):
        assert next(consumer).value == b"old"


def use_as_today(servers: str, topic: str, cafile: Path) -> None:
    """Produce and consume with librdkafka of today, by SCRAM in SaslAuthenticate over TLS."""
    client = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cafile),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": "bob-secret",
    }
    producer = confluent_kafka.Producer(client)
    producer.produce(topic, b"new")
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {**client, "group.id": "gateway", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        values = [found.value() for found in consumer.consume(2, timeout=60)]
        assert values[-1] == b"new"
    finally:
        consumer.close()


async def test_clients_log_in_at_the_gateway_and_it_at_the_target(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic, tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    topic = unique_topic()
    await asyncio.to_thread(create, cluster, topic)
    network = network_of(cluster, "SCRAM-SHA-256", tls=True)
    users = SaslUsers({"bob": "bob-secret"})
    cert, key = await asyncio.to_thread(make_certificate, tmp_path)
    async with (
        running("unused:1", network=network, users=users) as plain,
        running(
            "unused:1", network=network, users=users, tls=server_context(cert, key, None)
        ) as secured,
    ):
        await asyncio.to_thread(use_as_of_0_10, f"{HOST}:{first_port(plain)}", topic)
        await asyncio.to_thread(use_as_today, f"{HOST}:{first_port(secured)}", topic, cert)
        for gateway in (plain, secured):
            assert "bob" in {row["principal"] for row in gateway.clients.rows()}


@pytest.mark.release("3.9.1")
async def test_observed_clients_of_3_9_work_as_before(
    broker_clusters: BrokerClusters, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    topic = unique_topic()
    await asyncio.to_thread(create, cluster, topic)

    def use(servers: str) -> None:
        client: dict[str, Any] = {"bootstrap_servers": servers, "api_version": (0, 9)}
        with closing(kafka.KafkaProducer(**client, max_block_ms=30_000)) as producer:
            producer.send(topic, b"old").get(60)
        admin = AdminClient({"bootstrap.servers": servers, "client.id": "today"})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)

    async with running(cluster.bootstrap_servers, is_observing=True) as gateway:
        await asyncio.to_thread(use, f"{HOST}:{first_port(gateway)}")
        rows = {row["needs_gateway"]: row for row in gateway.clients.rows()}
    assert rows[True]["requests"]["stranded"] == {"Produce": {"1": 1}}
    assert rows[False]["client_id"] == "today"
    assert "CreatePartitions" in rows[False]["requests"]["passed"]


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"sasl_plain_password": "wrong-secret"}, CheckCode.AUTHENTICATION, "Invalid username or"),
        (
            {"sasl_plain_password": "wrong-secret", "sasl_mechanism": "SCRAM-SHA-256"},
            CheckCode.AUTHENTICATION,
            "invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        (
            {"ssl_context": create_ssl_context()},
            CheckCode.CERTIFICATE,
            "certificate verify failed: self-signed certificate",
        ),
        (
            {"ssl_context": None, "security_protocol": "SASL_PLAINTEXT"},
            CheckCode.UNREACHABLE,
            "it responds in TLS",
        ),
    ],
)
async def test_wrong_security_is_a_finding_without_secrets(
    changed: dict[str, Any], code: CheckCode, text: str, sasl_cluster: StartCluster
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    network = network_of(cluster, "PLAIN", tls=True, **changed)
    with pytest.raises(KafkaConnectionError) as caught:
        await sample_target(network, is_quick=True)
    finding = unreachable(caught.value, FLAG_NAMES)
    assert finding.code is code
    assert text in finding.why
    assert not any(secret in f"{finding} {caught.value!r}" for secret in SECRETS)


async def test_wrong_listeners_and_host_names_are_findings(sasl_cluster: StartCluster) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)

    async def finding(servers: str, *, tls: bool) -> tuple[Any, str]:
        network = network_of(cluster, "PLAIN", tls=tls, bootstrap_servers=servers)
        with pytest.raises(KafkaConnectionError) as caught:
            await sample_target(network, is_quick=True)
        found = unreachable(caught.value, FLAG_NAMES)
        return found.code, found.why

    plain, sasl_ssl = cluster.bootstrap_servers, cluster.sasl_ssl_bootstrap_servers
    code, why = await finding(plain, tls=True)
    assert code is CheckCode.UNREACHABLE
    assert "Check that the port is a TLS listener" in why
    code, why = await finding(plain, tls=False)
    assert code is CheckCode.AUTHENTICATION
    assert "the port isn't a SASL listener" in why
    code, why = await finding(sasl_ssl.replace("localhost", "127.1"), tls=True)
    assert code is CheckCode.CERTIFICATE
    assert "Hostname mismatch, certificate is not valid for '127.1'" in why
    with pytest.raises(KafkaConnectionError, match="may be one for SASL"):
        await sample_target(target_network(cluster.sasl_bootstrap_servers), is_quick=True)


# --- the commands ---------------------------------------------------------------------------------

PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"}
SCRAM = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}
WRONG = {"sasl.password": "wrong-secret"}


def kerberos(principal: str, keytab: str | Path) -> dict[str, str | Path]:
    return {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.principal": principal,
        "sasl.kerberos.keytab": keytab,
    }


def target_config(folder: Path, cluster: RealCluster, lines: Mapping[str, str | Path]) -> Path:
    """Write a file with the properties for SASL_SSL and these, and return its path.

    Those without a value are left out.
    """
    path = folder / "target.properties"
    lines = {"security.protocol": "SASL_SSL", "ssl.ca.location": cluster.ca_path, **lines}
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items() if value))
    path.chmod(0o600)
    return path


def run_at_once(*commands: list[str]) -> list[tuple[int, str, str]]:
    """Run processes beside each other; return their exit codes, stdout and stderr."""
    processes = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=as_users()
        )
        for command in commands
    ]
    try:
        done = [(process.communicate(timeout=END_S), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(code, *texts) for texts, code in done]


END_S = 60.0
"""More than a busy machine needs to start a process; without an error it would run on."""


@pytest.mark.parametrize(
    ("lines", "code", "reason"),
    [
        ({**PLAIN, **WRONG}, "authentication-failed", "Invalid username or password"),
        (
            {**SCRAM, **WRONG},
            "authentication-failed",
            "invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
        (
            kerberos("client", "missing.keytab"),
            "authentication-failed",
            "the keytab doesn't exist or can't be read. Check sasl.kerberos.keytab",
        ),
        (
            kerberos("rotated", "old.keytab"),
            "authentication-failed",
            "the keytab's key isn't the KDC's. Export it again",
        ),
        (
            kerberos("nobody", "client"),
            "authentication-failed",
            "the keytab has no key for the principal",
        ),
        (
            {**PLAIN, "ssl.ca.location": ""},
            "certificate-refused",
            "certificate verify failed: self-signed certificate",
        ),
    ],
    ids=["plain", "scram", "no keytab", "old key", "no key", "unknown authority"],
)
def test_wrong_secret_ends_the_start_with_one_line(
    lines: dict[str, str | Path],
    code: str,
    reason: str,
    sasl_cluster: StartCluster,
    kdc: Kdc,
    tmp_path: Path,
) -> None:
    cluster = sasl_cluster(VERSION)
    match lines.get("sasl.kerberos.keytab"):
        case "old.keytab":
            old = kdc.add_principal("rotated").rename(tmp_path / "old.keytab")
            kdc.administer("cpw -randkey rotated")
            lines = {**lines, "sasl.kerberos.keytab": old}
        case "client":
            lines = {**lines, "sasl.kerberos.keytab": kdc.keytab("client")}
    config = target_config(tmp_path, cluster, lines)
    options = ["--to", cluster.sasl_ssl_bootstrap_servers, "--target-config", str(config)]
    ran, logged, checked = run_at_once(
        # Each at its own port, which it tries.
        *(
            command_line("gateway", *words, *options, "--listen", f"{HOST}:{free_ports()}")
            for words in (["run"], ["run", "--log-level", "debug"], ["check", "--format", "json"])
        )
    )
    assert (ran[0], logged[0], checked[0]) == (1, 1, 1)
    assert ran[1] == ""
    (line,) = ran[2].splitlines()
    assert line.startswith("aiokafka08: --to: ")
    assert reason in line
    assert reason in logged[2]
    (finding,) = json.loads(checked[1])["findings"]
    assert (finding["code"], finding["severity"]) == (code, "critical")
    assert reason in finding["why"]
    assert not re.search("|".join(SECRETS), str((ran, logged, checked)))


@pytest.mark.full
def test_silent_kdc_ends_the_start(sasl_cluster: StartCluster, kdc: Kdc, tmp_path: Path) -> None:
    cluster, keytab = sasl_cluster(VERSION), kdc.add_principal("client/gateway")
    config = target_config(tmp_path, cluster, kerberos("client/gateway", keytab))
    options = ["--to", cluster.sasl_ssl_bootstrap_servers, "--target-config", str(config)]
    kdc.pause()
    try:
        ((code, _, errors),) = run_at_once(
            command_line("gateway", *options, "--listen", f"{HOST}:{free_ports()}")
        )
    finally:
        kdc.resume()
    assert code == 1
    (line,) = errors.splitlines()
    assert "no KDC of the realm has responded" in line


@pytest.fixture
def gateway_process(tmp_path: Path) -> Iterator[Callable[[RealCluster, Path], Gateways]]:
    """Return a function that starts a gateway with these properties for its target."""
    made: list[Gateways] = []

    def start(cluster: RealCluster, config: Path) -> Gateways:
        servers = cluster.sasl_ssl_bootstrap_servers
        made.append(Gateways(servers, tmp_path, 1, "--target-config", str(config)))
        made[0].start(0)
        return made[0]

    yield start
    for one in made:
        one.close()


def until_closed(gateway: Gateways, reason: str) -> None:
    """Wait until the gateway accepts no clients, and has logged the reason."""
    (port,) = gateway.ports
    line = re.compile(f"node 0: not listening until it can be reached: .*{re.escape(reason)}")
    wait_for(lambda: line.search(gateway.log(0)), 60, lambda: gateway.log(0))
    assert not accepts(port)


def until_open(gateway: Gateways) -> None:
    """Wait until the gateway serves clients."""
    (port,) = gateway.ports
    wait_for(lambda: accepts(port), 60, lambda: gateway.log(0))
    assert metadata(port, []).brokers.keys() == {0}


def test_secret_that_the_target_changes_closes_the_port_until_it_fits(
    sasl_cluster: StartCluster,
    unique_topic: UniqueTopic,
    gateway_process: Callable[[RealCluster, Path], Gateways],
    tmp_path: Path,
) -> None:
    cluster, user = sasl_cluster(VERSION), unique_topic("user")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def set_password(password: str) -> None:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, credential, password.encode())
        admin.alter_user_scram_credentials([change])[user].result(60)

    set_password("alice-secret")
    config = target_config(tmp_path, cluster, {**SCRAM, "sasl.username": user})
    gateway = gateway_process(cluster, config)
    until_open(gateway)
    set_password("mallory-secret")
    until_closed(gateway, "invalid credentials with SASL mechanism SCRAM-SHA-512")
    set_password("alice-secret")
    until_open(gateway)
    assert not re.search("|".join(SECRETS), gateway.log(0))


@pytest.mark.full
def test_keytab_that_goes_closes_the_port_until_it_is_back(
    sasl_cluster: StartCluster,
    kdc: Kdc,
    gateway_process: Callable[[RealCluster, Path], Gateways],
    tmp_path: Path,
) -> None:
    """When its last ticket has expired."""
    cluster = sasl_cluster(VERSION)
    keytab = kdc.add_principal("gateway", ticket_s=15)
    config = target_config(tmp_path, cluster, kerberos("gateway", keytab))
    gateway = gateway_process(cluster, config)
    until_open(gateway)
    away = keytab.rename(tmp_path / "away.keytab")
    until_closed(gateway, "the keytab doesn't exist or can't be read")
    away.rename(keytab)
    until_open(gateway)


def test_check_reads_the_example_for_a_hosted_cluster(
    sasl_cluster: StartCluster, tmp_path: Path
) -> None:
    """Its files, with another address and user; the certificate's authority is the system's."""
    cluster = sasl_cluster(VERSION)
    folder = tmp_path / "hosted"
    shutil.copytree(ROOT / "examples/hosted_gateway", folder)
    names = {
        "pkc-1.example.cloud:9092": cluster.sasl_ssl_bootstrap_servers,
        "10.0.0.5:9092": f"{HOST}:{free_ports()}",
        "10.0.0.0/24": f"{HOST}/32",
        "=KEY\n": "=alice\n",
        "=SECRET\n": f"={PASSWORDS['alice']}\n",
    }
    for file in folder.iterdir():
        text = file.read_text()
        for name in [one for one in names if one in text]:
            text = text.replace(name, names.pop(name))
        file.write_text(text)
        file.chmod(0o600)
    assert not names
    done = subprocess.run(
        command_line("gateway", "check", "gateway.toml", "--format", "json"),
        capture_output=True,
        text=True,
        timeout=END_S,
        cwd=folder,
        env=as_users(SSL_CERT_FILE=str(cluster.ca_path), PYTHONPATH=str(ROOT)),
    )
    findings = json.loads(done.stdout)["findings"]
    assert {one["severity"] for one in findings} == {"note"}, done.stdout
    assert done.returncode == 0
    assert PASSWORDS["alice"] not in done.stdout + done.stderr
