"""Two gateways in front of a real 4.1.0: clients go on when one of them is killed.

The clients are given one gateway only, but for the Scala producer, and retry. Gateways are killed
in turn, and come back.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08._tools.gateway.peers import FIRST_ID
from tests._tools.gateway.foreign_work import Program
from tests._tools.gateway.gateways import HOST
from tests._tools.gateway.processes import Gateways
from tests.brokers.cluster import RealCluster
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version
from tests.brokers.waiting import wait_for
from tests.support.full import in_full
from tests.support.old_packages import kafka_python_2

with warnings.catch_warnings():  # of importlib.resources, in the import
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.admin import KafkaAdminClient

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(600)]

WAIT_S = 120.0
AT_ONCE = 30


@pytest.fixture
def gateways(modern_cluster: RealCluster, tmp_path: Path) -> Iterator[Gateways]:
    made = Gateways(modern_cluster.bootstrap_servers, tmp_path, 2)
    try:
        for number in (0, 1):
            made.start(number)
        yield made
    finally:
        made.close()


@pytest.fixture
def topic(modern_cluster: RealCluster, unique_topic: Callable[..., str]) -> str:
    admin = AdminClient({"bootstrap.servers": modern_cluster.bootstrap_servers})
    name = unique_topic("peers")
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    return name


@pytest.fixture(autouse=True)
def sockets_of_kafka_python_are_collected() -> Iterator[None]:
    """It doesn't close those of connections that are refused."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Client(Protocol):
    """A producer of numbers, and a member of a group that reads them."""

    def send(self, values: range) -> None:
        """Send the values, and wait until they are acknowledged."""

    def read(self) -> list[int]:
        """Return what was read since the last call, which may wait for it."""

    def close(self) -> None: ...


class KafkaPython:
    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        common: Any = {"bootstrap_servers": servers, "api_version": (0, 10, 1)}
        self._topic = topic
        self._producer = kafka.KafkaProducer(
            **common,
            acks="all",
            retries=1000,
            max_in_flight_requests_per_connection=1,
            enable_idempotence=False,
        )
        self._consumer = kafka.KafkaConsumer(
            topic, **common, group_id=topic, auto_offset_reset="earliest"
        )

    def send(self, values: range) -> None:
        sent = [self._producer.send(self._topic, b"%d" % value) for value in values]
        for one in sent:
            one.get(WAIT_S)

    def read(self) -> list[int]:
        polled = self._consumer.poll(500)
        return [int(record.value) for records in polled.values() for record in records]

    def close(self) -> None:
        self._producer.close(5)
        self._consumer.close(autocommit=False)


class Librdkafka:
    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        # By default it forgets the gateways that Metadata has named when it reaches none of them
        # for a moment. Then it knows only the one in bootstrap.servers, which may be down.
        common = {
            "bootstrap.servers": servers,
            "metadata.recovery.strategy": "none",
            "log_level": 2,
        }
        self._topic = topic
        self._producer = confluent_kafka.Producer({**common, "enable.idempotence": True})
        self._consumer = confluent_kafka.Consumer(
            {**common, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])

    def send(self, values: range) -> None:
        errors: list[Any] = []
        for value in values:
            self._producer.produce(
                self._topic, b"%d" % value, on_delivery=lambda error, _: errors.append(error)
            )
        assert self._producer.flush(WAIT_S) == 0
        assert not any(errors)

    def read(self) -> list[int]:
        messages = self._consumer.consume(100, 0.5)
        return [int(message.value() or b"") for message in messages if not message.error()]

    def close(self) -> None:
        self._consumer.close()


class KafkaPython2:
    """kafka-python 2.0.2 as for 0.10.1, in processes of its own."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        path, client = kafka_python_2(), ("kafka-python", "0.10.1", servers)
        self._producer = Program(
            *(folder / "relay.out", "relay", *client, topic), python_path=path, takes_input=True
        )
        self._consumer = Program(
            *(folder / "consume.out", "consume", *client, topic, topic), python_path=path
        )
        self._count = 0

    def send(self, values: range) -> None:
        assert self._producer.running, self._producer.errors()
        self._producer.write("".join(f"{value}\n" for value in values))

    def read(self) -> list[int]:
        assert self._consumer.running, self._consumer.errors()
        values = self._consumer.values
        new, self._count = values[self._count :], len(values)
        return [int(value.removeprefix("0:")) for value in new]

    def close(self) -> None:
        self._producer.stop()
        self._consumer.stop()


class Java:
    """The console programs of 0.10.2.2, with its new clients."""

    release = of_producer = "0.10.2.2"

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self._tools = {one: new_tools(one, folder) for one in {self.release, self.of_producer}}
        settings = folder / "consumer.properties"
        settings.write_text(f"group.id={topic}\n")
        self._producer = self._tools[self.of_producer].popen(
            "kafka.tools.ConsoleProducer",
            *("--broker-list", servers, "--topic", topic, "--sync"),
            *("--request-required-acks", "-1"),
            *("--message-send-max-retries", "1000", "--retry-backoff-ms", "200"),
            *("--request-timeout-ms", "60000"),
            writable_stdin=True,
        )
        self._consumer = self._tools[self.release].popen(
            "kafka.tools.ConsoleConsumer",
            *("--bootstrap-server", servers, "--topic", topic, "--new-consumer"),
            *("--from-beginning", "--consumer.config", str(settings)),
        )
        self._count = 0

    def send(self, values: range) -> None:
        self._producer.write("".join(f"{value}\n" for value in values))

    def read(self) -> list[int]:
        lines = self._consumer.stdout().split()
        new, self._count = lines[self._count :], len(lines)
        return [int(line) for line in new]

    def close(self) -> None:
        for tools in self._tools.values():
            tools.kill_all()


class OldJava(Java):
    """The console programs of 0.9.0.1, with its new clients."""

    release = of_producer = "0.9.0.1"


class Scala(Java):
    """The Scala producer of 0.8.2.2, and the consumer of 0.10.2.2.

    `test_failover` has the Scala consumer, which finds gateways in ZooKeeper.
    """

    of_producer = "0.8.2.2"


def new_tools(release: str, folder: Path) -> JavaTools:
    own = folder / release
    own.mkdir()
    write_logging_files(own)
    return JavaTools(find_version(release), own)


@pytest.mark.parametrize("rounds", [2, *in_full(12)])
@pytest.mark.parametrize(
    "new_client", [KafkaPython, KafkaPython2, Librdkafka, Java, OldJava, Scala]
)
def test_clients_go_on_when_a_gateway_is_killed(
    new_client: Callable[[str, str, Path], Client],
    rounds: int,
    gateways: Gateways,
    topic: str,
    modern_cluster: RealCluster,
    tmp_path: Path,
) -> None:
    """Nothing that was acknowledged is lost or reordered; a retry may store a message twice."""
    found: list[int] = []
    folder = tmp_path / "client"
    folder.mkdir()
    # The Scala producer asks for brokers only at the addresses that it is given.
    given = gateways.ports if new_client is Scala else gateways.ports[:1]
    servers = ",".join(f"{HOST}:{port}" for port in given)
    with closing(new_client(servers, topic, folder)) as client:

        def is_read(value: int) -> bool:
            found.extend(client.read())
            return value in found

        for number in range(2 * rounds):
            values = range(AT_ONCE * number, AT_ONCE * (number + 1))
            if number % 2:
                gateways.kill(number // 2 % 2)
            client.send(values)
            wait_for(lambda: is_read(values[-1]), WAIT_S, f"{values} are read")  # noqa: B023
            if number % 2:
                gateways.start(number // 2 % 2)
    assert list(dict.fromkeys(found)) == list(range(2 * rounds * AT_ONCE))


def test_clients_list_each_group_once(
    gateways: Gateways, topic: str, modern_cluster: RealCluster, tmp_path: Path
) -> None:
    """They ask all brokers that Metadata names, those that stand for other gateways too."""
    servers = f"{HOST}:{gateways.ports[0]}"
    member = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": topic})
    member.subscribe([topic])
    wait_for(lambda: member.poll(0.2) is None and member.assignment(), WAIT_S, "it has joined")
    admin = AdminClient({"bootstrap.servers": servers})
    nodes = {node.id for node in admin.describe_cluster().result(30).nodes}
    assert nodes == {0, FIRST_ID, FIRST_ID + 1}

    def listed_by_librdkafka() -> list[str]:
        # It closes connections when a node has another address: at the other gateway.
        groups = admin.list_consumer_groups().result(30)
        return [] if groups.errors else [one.group_id for one in groups.valid]

    found = wait_for(listed_by_librdkafka, WAIT_S, "all brokers answer")
    assert found.count(topic) == 1
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as other:
        assert [one["group_id"] for one in other.list_groups()].count(topic) == 1
    write_logging_files(tmp_path)
    tools = JavaTools(find_version("0.10.2.2"), tmp_path)
    listed = tools.run(
        "kafka.admin.ConsumerGroupCommand",
        *("--bootstrap-server", servers, "--list", "--new-consumer"),
        input=None,
        timeout=120,
    )
    assert listed.stdout.split().count(topic) == 1, listed.stderr
    member.close()
