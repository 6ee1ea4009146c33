"""Group members of other clients: Java's console consumer, the Scala consumer, kafka-python."""

from __future__ import annotations

import gc
import threading
import warnings
from pathlib import Path
from typing import Any

from aiokafka08.testing import EmbeddedCluster
from tests.brokers import RealCluster
from tests.brokers.java_process import JavaProcess

with warnings.catch_warnings():  # kafka-python's import uses a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka


class JavaMember:
    """`ConsoleConsumer` of the cluster's version, with the new consumer of 0.9 and later."""

    def __init__(self, cluster: RealCluster, folder: Path, group: str, topic: str) -> None:
        settings = folder / f"{group}.properties"
        settings.write_text(
            f"group.id={group}\nclient.id=java\nsession.timeout.ms=6000\n"
            "heartbeat.interval.ms=200\nauto.commit.interval.ms=100\nauto.offset.reset=earliest\n"
        )
        newer = cluster.version.startswith("3.")
        self.process: JavaProcess = cluster.popen_java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer"
            if newer
            else "kafka.tools.ConsoleConsumer",
            *(() if newer else ("--new-consumer",)),
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *("--consumer.config", str(settings)),
        )

    @property
    def values(self) -> list[str]:
        """The messages that it has printed."""
        return self.process.stdout().rpartition("\n")[0].splitlines()

    def stop(self) -> None:
        """Send SIGTERM; the member leaves its group."""
        if self.process.running:
            self.process.terminate(20)


class KafkaPythonMember:
    """kafka-python's consumer, in a thread that polls without pauses.

    kafka-python forgets a join whose response arrives between two polls, and joins again. With
    pauses, its rejoin and that of another member would trigger each other for ever.
    """

    def __init__(self, cluster: RealCluster | EmbeddedCluster, group: str, topic: str) -> None:
        self.values: list[str] = []
        self._end = threading.Event()
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers.split(","),
            "group_id": group,
            "client_id": "kafka-python",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "auto_commit_interval_ms": 100,
            "auto_offset_reset": "earliest",
        }
        if cluster.version.startswith("0.9"):
            options["api_version"] = (0, 9)
        self._consumer: Any = kafka.KafkaConsumer(topic, **options)
        self._consumer.partitions_for_topic(
            topic
        )  # otherwise it leads a group without metadata of the topics
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    @property
    def partitions(self) -> set[int]:
        """The numbers of its partitions."""
        return {tp.partition for tp in self._consumer.assignment()}

    def stop(self) -> None:
        """Leave the group and end the thread."""
        self._end.set()
        self._thread.join(20)
        # It sometimes leaves a socket open; the ResourceWarning would fail a later test.
        self._consumer = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def _poll(self) -> None:
        while not self._end.is_set():
            for records in self._consumer.poll(timeout_ms=500).values():
                self.values += [record.value.decode() for record in records]
        self._consumer.close()


class ScalaMember:
    """The Scala high-level consumer of 0.8, run by `ConsoleConsumer`."""

    def __init__(
        self,
        cluster: RealCluster,
        folder: Path,
        group: str,
        topic: str,
        *,
        from_beginning: bool = True,
        strategy: str = "range",
        pattern: bool = False,
    ) -> None:
        package, options = "kafka.consumer", ["--group", group, "--autocommit.interval.ms", "100"]
        if cluster.version.startswith(("0.8.2", "0.9")):
            package = "kafka.tools"
            settings = folder / f"{group}.properties"
            settings.write_text(
                f"group.id={group}\nzookeeper.session.timeout.ms=4000\nrebalance.backoff.ms=300\n"
                "rebalance.max.retries=30\nauto.commit.interval.ms=100\n"
                f"partition.assignment.strategy={strategy}\n"
            )
            options = ["--consumer.config", str(settings)]
        self.process: JavaProcess = cluster.popen_java(
            f"{package}.ConsoleConsumer",
            *("--zookeeper", cluster.zookeeper_connect),
            *("--whitelist" if pattern else "--topic", topic),
            *options,
            *(("--from-beginning",) if from_beginning else ()),
        )

    @property
    def values(self) -> list[str]:
        """The messages that it has printed."""
        return self.process.stdout().rpartition("\n")[0].splitlines()

    def stop(self) -> None:
        """Send SIGTERM; the member commits and leaves its group."""
        if self.process.running:
            self.process.terminate(20)
