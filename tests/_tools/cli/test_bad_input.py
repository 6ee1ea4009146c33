"""What goes wrong in every command alike: one clear line, the right exit code, no traceback."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, command_line
from tests._tools.cli.document import commands
from tests.brokers.ports import free_port

ZOOKEEPER = ("--zookeeper", "127.0.0.1:1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "metadata": (),
    "topics": (),
    "offsets": ("orders",),
    "produce": ("orders",),
    "consume": ("orders", "--exit"),
    "bench produce": ("orders", "-c", "10"),
    "bench consume": ("orders",),
    "bench latency": ("orders", "-c", "3"),
    "group list": (),
    "group describe": ("billing",),
    "group lag": ("billing",),
    "group reset": ("billing", "--to-latest"),
    "group export": ("billing",),
    "group import": (),
    "group delete": ("billing", "--yes"),
    "topic create": ("visits", *ZOOKEEPER),
    "topic grow": ("orders", "4", *ZOOKEEPER),
    "topic config": ("orders", *ZOOKEEPER),
    "topic delete": ("orders", "--yes", *ZOOKEEPER),
    "exporter": ("--once",),
    "doctor": (),
}
"""Each command that connects to a cluster, with arguments that would do."""
READ_STDIN = {
    "produce": b"tea\n",
    "group import": b'{"group": "billing", "topic": "orders", "partition": 0, "offset": 1}\n',
}
NO_TOPIC = [
    ("metadata", "nope"),
    ("offsets", "nope"),
    ("consume", "nope", "--exit"),
    ("bench", "consume", "nope"),
    ("consume", "orders", "-p", "9", "--exit"),
    ("offsets", "orders", "-p", "9"),
    ("consume", "orders", "--from", "999999999", "--exit"),
]
"""Commands that name what doesn't exist."""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster with messages in `orders` and offsets of the group `billing`."""

    async def fill(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await (await producer.send_many("orders", [b"tea"] * 5, partition=0))
        async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="billing") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            await consumer.commit({TopicPartition("orders", 0): 2})

    with EmbeddedCluster(topics={"orders": 2}) as running:
        asyncio.run(fill(running.bootstrap_servers))
        yield running


def one_line(err: str) -> str:
    assert err.startswith("aiokafka08: ")
    assert err.count("\n") == 1, err
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert "Error(" not in err
    return err


def failure(name: str) -> int:
    """Return the exit code of a command that fails: doctor's 1 means that it has findings."""
    return 2 if name == "doctor" else 1


def test_table_has_every_command_that_connects() -> None:
    connecting = {
        name
        for _, name, command in commands()
        if any(one.name == "bootstrap" for one in command.params)
    }
    # The console is served without a cluster, too, and shows why it has no data.
    assert connecting == {*COMMANDS, "console"}


@pytest.mark.parametrize("name", COMMANDS)
def test_closed_port_is_named(cli: RunCommand, name: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    arguments = (*name.split(), *COMMANDS[name], "-b", address, "--timeout", "0.2")
    done = cli(*arguments, stdin=READ_STDIN.get(name, b""))
    assert done.code == failure(name)
    assert done.out == b"" or name == "exporter"  # which says `up 0`
    line = one_line(done.err)
    assert address in line
    assert "refused" in line


@pytest.mark.parametrize("name", COMMANDS)
def test_server_without_kafka_is_named(cli: RunCommand, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = (*name.split(), *COMMANDS[name], "-b", address, "--timeout", "0.2")
        done = cli(*arguments, stdin=READ_STDIN.get(name, b""))
    assert done.code == failure(name)
    assert address in one_line(done.err)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("-X", "linger.mss=1"), "linger.mss=…: unknown property; similar: linger.ms"),
        (("--timeout", "soon"), "'soon' is not a valid float"),
        (("--no-such-option",), "no such option '--no-such-option'"),
        (("-b", "kafka 1"), "' ' in the host name"),
    ],
)
def test_wrong_option_is_named(
    cli: RunCommand, name: str, options: tuple[str, ...], part: str
) -> None:
    arguments = (*name.split(), *COMMANDS[name], "-b", "127.0.0.1:1", *options)
    done = cli(*arguments, stdin=READ_STDIN.get(name, b""))
    assert (done.code, done.out) == (2, b"")
    assert part in one_line(done.err)


@pytest.mark.parametrize("arguments", NO_TOPIC, ids=" ".join)
def test_what_does_not_exist_is_named_and_not_created(
    cluster: EmbeddedCluster, cli: RunCommand, arguments: tuple[str, ...]
) -> None:
    done = cli(*arguments, "-b", cluster.bootstrap_servers, "--timeout", "2")
    assert (done.code, done.out) == (1, b"")
    line = one_line(done.err)
    assert any(word in line for word in ("nope", "9"))
    assert cli("topics", "-q", "-b", cluster.bootstrap_servers).lines == [
        "__consumer_offsets",
        "orders",
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("metadata", "offsets", "consume", "bench consume", "group list", "group lag"),
        *("group export", "exporter", "doctor"),
    ],
)
def test_full_disk_on_stdout_is_named(cluster: EmbeddedCluster, name: str) -> None:
    arguments = (*name.split(), *COMMANDS[name], "-b", cluster.bootstrap_servers)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command_line(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, timeout=30
        )
    assert done.returncode == 1
    assert "stdout: No space left on device" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
