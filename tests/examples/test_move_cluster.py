"""examples/move_cluster moves real clusters, with clients of their day, to a real 4.1.0.

The files are the examples', with other addresses and names; the steps are those of
docs/guides/moving.md. What the test does itself is what people do in between: it stops clients,
starts them at the new addresses, and switches the old brokers off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests._tools.gateway.test_clients import kcat
from tests.bridge.clusters import TargetReader
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import require_real_brokers, zookeeper_alone
from tests.brokers.java_process import JavaProcess
from tests.brokers.ports import free_ports
from tests.brokers.waiting import wait_for
from tests.consumer.membership.other_clients import JavaMember, ScalaMember
from tests.support.paths import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

EXAMPLE = ROOT / "examples/move_cluster"
HOST = "127.0.0.1"
PARTITIONS = 2
WAIT_S = 400.0


class Move:
    """A copy of the example for other addresses and names, and its script.

    Args:
        folder: where the copy is made.
        names: what stands in place of each name and address in the files.
    """

    def __init__(self, folder: Path, names: Mapping[str, str]) -> None:
        self.folder = folder / "move"
        shutil.copytree(EXAMPLE, self.folder)
        found = set()
        pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

        def replaced(match: re.Match[str]) -> str:
            found.add(match[0])
            return names[match[0]]

        for file in self.folder.iterdir():
            if file.suffix in {".toml", ".env"}:
                file.write_text(pattern.sub(replaced, file.read_text()))
        assert found == set(names)
        for bridge in ("orders.toml", "clicks.toml"):
            # Small transactions, so that equal offsets aren't equal messages: one for each fetch.
            with (self.folder / bridge).open("a") as settings:
                settings.write("\n[copy]\ntransaction_records = 1\nfetch_bytes = 1024\n")
        program = folder / "bin/aiokafka08"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m aiokafka08 "$@"\n')
        program.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONASYNCIODEBUG": "",
            "XDG_CONFIG_HOME": str(folder),
            "XDG_STATE_HOME": str(folder),
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=self.folder,
            env=self._environment,
        )

    def do(self, step: str) -> None:
        """Run a step that must succeed."""
        done = self.run("./move.sh", step)
        assert done.returncode == 0, done.stdout + done.stderr

    def wait_for_groups(self) -> None:
        """Wait until the bridges have copied what the groups have read."""
        wait_for(lambda: self.run("./move.sh", "rehearse").returncode == 0, WAIT_S, "they can move")

    def wait_for_members(self, group: str, *at: str) -> None:
        """Wait until two members have one partition each."""
        command = ("aiokafka08", "group", "describe", group, *at, "--format", "json")

        def are_two() -> bool:
            done = self.run(*command)
            rows = json.loads(done.stdout) if done.returncode == 0 else []
            return [len(row["partitions"]) for row in rows if row["member"]] == [1, 1]

        wait_for(are_two, WAIT_S, f"two members of {group}")

    @contextmanager
    def running(self, step: str) -> Iterator[None]:
        """Run a step until the block ends."""
        log = self.folder / f"{step}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["./move.sh", step],
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=self._environment,
            )
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(60)
        assert process.returncode == 0, log.read_text()


class Moved(NamedTuple):
    """Where clients of a release find the new cluster."""

    programs: RealCluster
    bootstrap_servers: str
    zookeeper_connect: str

    @property
    def version(self) -> str:
        return self.programs.version

    def popen_java(self, main_class: str, *args: str, writable_stdin: bool = False) -> JavaProcess:
        return self.programs.popen_java(main_class, *args, writable_stdin=writable_stdin)


class ScalaProducer:
    """The Scala producer; a value is a number, and its key decides about the partition."""

    def __init__(self, cluster: RealCluster | Moved, topic: str) -> None:
        self._process = cluster.popen_java(
            "kafka.tools.ConsoleProducer",
            *("--broker-list", cluster.bootstrap_servers, "--topic", topic, "--sync"),
            # On a busy machine it would send again after the default, 1.5 s.
            *("--request-required-acks", "-1", "--request-timeout-ms", "60000"),
            *("--property", "parse.key=true", "--property", "key.separator=:"),
            writable_stdin=True,
        )

    def send(self, values: range) -> None:
        self._process.write(keyed(values, "scala"))

    def end(self) -> None:
        """Let it send what it has, and end."""
        self._process.close_stdin()
        assert self._process.wait(WAIT_S) == 0, self._process.stderr()


def keyed(values: range, sender: str) -> str:
    """Return lines with keys that are so long that a fetch has few messages."""
    return "".join(f"{sender:.<100}{value % 7}:{value}\n" for value in values)


class Readers:
    """All that a group has read, by the members that it has had.

    Args:
        new_member: starts a member at a cluster; the first one begins at the first message.
    """

    def __init__(self, new_member: Callable[[Any, bool], ScalaMember | JavaMember]) -> None:
        self._new_member = new_member
        self._members: list[ScalaMember | JavaMember] = []

    def add(self, cluster: RealCluster | Moved) -> None:
        """Start a member."""
        self._members.append(self._new_member(cluster, not self._members))

    def stop(self) -> None:
        """Stop all members."""
        for member in self._members:
            member.stop()

    def wait_for(self, values: range) -> None:
        """Wait until each value is read; none may be read twice."""
        wait_for(lambda: set(self._values()) >= set(values), WAIT_S, lambda: self._state(values))
        assert sorted(self._values()) == list(values)

    def _values(self) -> list[int]:
        return [int(value) for member in self._members for value in member.values]

    def _state(self, values: range) -> str:
        missing = sorted(set(values) - set(self._values()))
        logs = "\n".join(member.process.log_tail() for member in self._members)
        return f"these are read: {missing}; the logs of the members:\n{logs}"


class KcatJob:
    """A job that reads what is new since its last run; its offsets are in a file."""

    def __init__(self, name: str, topic: str, file: Path) -> None:
        self.read: list[int] = []
        self._name = name
        self._topic = topic
        self._file = file
        self._write([0] * PARTITIONS)

    def save(self, file: Path) -> None:
        """Give the offsets to those who move it."""
        shutil.copy(self._file, file)

    def take(self, file: Path) -> None:
        """Go on at these offsets, which are others than before."""
        assert file.read_text() != self._file.read_text()
        shutil.copy(file, self._file)

    def run(self, servers: str) -> None:
        rows = [line.split(",") for line in self._file.read_text().splitlines()]
        offsets = [int(offset) for *_, offset in sorted(rows)]
        assert len(offsets) == PARTITIONS
        for partition, offset in enumerate(offsets):
            done = kcat(
                servers,
                "0.8.2.2",
                *("-C", "-e", "-t", self._topic, "-p", str(partition), "-o", str(offset)),
                *("-f", "%o %s\\n"),
            )
            assert done.returncode == 0, done.stderr
            for line in done.stdout.splitlines():
                last, value = map(int, line.split())
                self.read.append(value)
                offsets[partition] = last + 1
        self._write(offsets)

    def _write(self, offsets: Sequence[int]) -> None:
        self._file.write_text(
            "".join(f"{self._name},{self._topic},{n},{at}\n" for n, at in enumerate(offsets))
        )


def kcat_sends(servers: str, fallback: str, topic: str, values: range) -> None:
    lines = keyed(values, "kcat").splitlines()
    done = kcat(servers, fallback, "-P", "-t", topic, "-K", ":", lines=lines)
    assert done.returncode == 0, done.stderr


def stored(target: RealCluster, topic: str) -> list[int]:
    """Return the values of the new cluster; those of a key must be in order."""
    reader = TargetReader(target)
    try:
        found = [one for some in reader.messages(topic).values() for one in some]
    finally:
        reader.close()
    last: dict[bytes | None, int] = {}
    for key, value in found:
        number = int(value or b"")
        assert last.get(key, -1) < number
        last[key] = number
    return sorted(int(value or b"") for _, value in found)


class Rehearsal:
    """The old clusters and the new one, what moves them, and their clients.

    Args:
        old: the cluster of 0.8.2.2.
        clicks: the cluster of 0.9.0.1; None: there is none.
        new: the cluster of 4.1.0.
        zookeeper: the ZooKeeper of the gateways.
        folder: gets files.
    """

    def __init__(
        self,
        old: RealCluster,
        clicks: RealCluster | None,
        new: RealCluster,
        zookeeper: str,
        folder: Path,
    ) -> None:
        self.old, self.clicks, self.new = old, clicks, new
        gateways = [f"{HOST}:{free_ports()}" for _ in range(2)]
        self.moved = Moved(old, ",".join(gateways), zookeeper)
        names = {
            "old1:9092,old2:9092,old3:9092": old.bootstrap_servers,
            "old-zk:2181": old.zookeeper_connect,
            "new1:9092,new2:9092,new3:9092": new.bootstrap_servers,
            "new-zk:2181": zookeeper,
            "10.0.0.5:9092": gateways[0],
            "10.0.0.6:9092": gateways[1],
            "10.0.0.0/24": f"{HOST}/32",
        }
        if clicks is None:
            names[" clicks.toml"] = ""
        else:
            names["clicks1:9092"] = clicks.bootstrap_servers
            names["clicks-zk:2181"] = clicks.zookeeper_connect
        self.move = Move(folder, names)
        old.create_topic("orders", PARTITIONS, len(old.nodes))
        if clicks is not None:
            clicks.create_topic("clicks", PARTITIONS)
        self.billing = Readers(
            lambda at, first: ScalaMember(at, folder, "billing", "orders", from_beginning=first)
        )
        self.search = Readers(
            lambda at, first: JavaMember(at, folder, "search", "clicks", from_beginning=first)
        )
        self.nightly = KcatJob("nightly", "orders", folder / "job.csv")
        self._sent = 0
        self._producer: ScalaProducer | None = None

    @property
    def values(self) -> range:
        """What was sent to each topic so far."""
        return range(self._sent)

    def add_consumers(self, *, moved: bool) -> None:
        """Start a member of each group."""
        self.billing.add(self.moved if moved else self.old)
        if self.clicks is not None:
            self.search.add(self._moved_clicks(self.clicks) if moved else self.clicks)

    def add_second_consumers(self, *, moved: bool) -> None:
        """Start another member of each group, and wait until both have partitions."""
        self.add_consumers(moved=moved)
        at = self.moved if moved else self.old
        servers, zookeeper = at.bootstrap_servers, at.zookeeper_connect
        self.move.wait_for_members("billing", "-b", servers, "--zookeeper", zookeeper)
        if self.clicks is not None:
            servers = servers if moved else self.clicks.bootstrap_servers
            self.move.wait_for_members("search", "-b", servers)

    def stop_consumers(self) -> None:
        self.billing.stop()
        self.search.stop()

    def send(self, *, moved: bool) -> None:
        """Let the Scala producer send to one topic, and kcat to all."""
        at = self.moved if moved else self.old
        if self._producer is None:
            self._producer = ScalaProducer(at, "orders")
        first = self._sent
        self._producer.send(range(first, first + 50))
        kcat_sends(at.bootstrap_servers, "0.8.2.2", "orders", range(first + 50, first + 60))
        if self.clicks is not None:
            clicks = self._moved_clicks(self.clicks) if moved else self.clicks
            kcat_sends(clicks.bootstrap_servers, "0.9.0.1", "clicks", range(first, first + 60))
        self._sent += 60

    def end_producer(self) -> None:
        assert self._producer is not None
        self._producer.end()
        self._producer = None

    def until_read(self) -> None:
        """Wait until the groups have read what was sent: each message once."""
        self.billing.wait_for(self.values)
        if self.clicks is not None:
            self.search.wait_for(self.values)

    def switch_off(self) -> None:
        """End the old brokers and ZooKeepers."""
        for cluster in filter(None, (self.old, self.clicks)):
            for number in cluster.nodes:
                cluster.kill(number)
            cluster.stop_zookeeper()

    def _moved_clicks(self, clicks: RealCluster) -> Moved:
        return self.moved._replace(programs=clicks)


@pytest.fixture
def new_rehearsal(tmp_path: Path) -> Iterator[Callable[..., Rehearsal]]:
    """Return a function that starts all clusters."""
    require_real_brokers()
    with ExitStack() as stack:

        def new(brokers: int, *, with_clicks: bool) -> Rehearsal:
            folder = tmp_path / "zookeeper"
            folder.mkdir()
            clicks = stack.enter_context(RealCluster("0.9.0.1")) if with_clicks else None
            return Rehearsal(
                stack.enter_context(RealCluster("0.8.2.2", brokers)),
                clicks,
                stack.enter_context(RealCluster("4.1.0")),
                stack.enter_context(zookeeper_alone(folder)).connect,
                tmp_path,
            )

        yield new


def test_clients_go_on_at_the_new_cluster(new_rehearsal: Callable[..., Rehearsal]) -> None:
    """A Scala producer, a Scala group, and jobs with kcat; the group is behind at the move."""
    rehearsal = new_rehearsal(brokers=1, with_clicks=False)
    move = rehearsal.move
    rehearsal.add_consumers(moved=False)
    rehearsal.send(moved=False)
    rehearsal.until_read()
    with ExitStack() as gateways:
        with move.running("copy"):
            rehearsal.nightly.run(rehearsal.old.bootstrap_servers)
            rehearsal.nightly.save(move.folder / "nightly.csv")
            rehearsal.stop_consumers()
            rehearsal.send(moved=False)
            gateways.enter_context(move.running("gateways"))
            rehearsal.end_producer()
            move.wait_for_groups()
            move.do("cut-over")
        rehearsal.switch_off()
        rehearsal.add_consumers(moved=True)
        rehearsal.until_read()
        rehearsal.send(moved=True)
        rehearsal.end_producer()
        rehearsal.until_read()
        rehearsal.nightly.take(move.folder / "nightly.new.csv")
        rehearsal.nightly.run(rehearsal.moved.bootstrap_servers)
        rehearsal.stop_consumers()
    assert sorted(rehearsal.nightly.read) == list(rehearsal.values)
    assert stored(rehearsal.new, "orders") == list(rehearsal.values)


@pytest.mark.full
def test_two_clusters_move_back_and_again(new_rehearsal: Callable[..., Rehearsal]) -> None:
    """Also a group of 0.9.0.1. All groups go back once, and read on at the old clusters."""
    rehearsal = new_rehearsal(brokers=3, with_clicks=True)
    move = rehearsal.move
    assert move.run("./move.sh", "look").returncode == 1  # nothing is copied yet
    rehearsal.add_consumers(moved=False)
    rehearsal.send(moved=False)
    rehearsal.until_read()
    with ExitStack() as gateways:
        with move.running("copy"):
            rehearsal.add_second_consumers(moved=False)
            rehearsal.send(moved=False)
            rehearsal.until_read()
            rehearsal.nightly.run(rehearsal.old.bootstrap_servers)
            rehearsal.nightly.save(move.folder / "nightly.csv")
            rehearsal.stop_consumers()
            rehearsal.send(moved=False)
            rehearsal.end_producer()
            gateways.enter_context(move.running("gateways"))
            move.wait_for_groups()
            move.do("cut-over")
            rehearsal.add_consumers(moved=True)
            rehearsal.until_read()
            rehearsal.stop_consumers()
            rehearsal.nightly.take(move.folder / "nightly.new.csv")
            rehearsal.nightly.run(rehearsal.moved.bootstrap_servers)
            rehearsal.nightly.save(move.folder / "nightly.new.csv")
            move.do("back")
            rehearsal.nightly.take(move.folder / "nightly.old.csv")
            rehearsal.add_consumers(moved=False)
            rehearsal.send(moved=False)
            rehearsal.until_read()
            rehearsal.nightly.run(rehearsal.old.bootstrap_servers)
            rehearsal.nightly.save(move.folder / "nightly.csv")
            rehearsal.stop_consumers()
            rehearsal.send(moved=False)
            rehearsal.end_producer()
            move.wait_for_groups()
            move.do("cut-over")
            move.do("cut-over")  # it may be repeated
        rehearsal.switch_off()
        rehearsal.add_consumers(moved=True)
        rehearsal.until_read()
        rehearsal.send(moved=True)
        rehearsal.until_read()
        rehearsal.add_second_consumers(moved=True)
        rehearsal.send(moved=True)
        rehearsal.end_producer()
        rehearsal.until_read()
        rehearsal.nightly.take(move.folder / "nightly.new.csv")
        rehearsal.nightly.run(rehearsal.moved.bootstrap_servers)
        rehearsal.stop_consumers()
    assert sorted(rehearsal.nightly.read) == list(rehearsal.values)
    for topic in ("orders", "clicks"):
        assert stored(rehearsal.new, topic) == list(rehearsal.values)
