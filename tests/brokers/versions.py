"""The table of supported broker versions: their Maven artifacts and JVM options.

Invariant: what differs between versions and isn't a server property is in this table. Server
properties are in ``properties.py``, the download is in ``jars.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.brokers.errors import HarnessError

# Dependencies of log4j 1.2.15 that no public repository has. Brokers don't need them.
_UNRESOLVABLE = ("com.sun.jmx:jmxri", "com.sun.jdmk:jmxtools", "javax.jms:jms")
# The old snappy-java defines classes in the boot loader by reflection. Java 17 forbids it without
# this option; brokers then respond to each snappy produce request with error -1.
_OLD_SNAPPY = ("--add-opens=java.base/java.lang=ALL-UNNAMED",)
_LOG4J_1 = "org.slf4j:slf4j-log4j12:1.7.6"
_LOG4J_2 = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"


@dataclass(frozen=True, slots=True)
class BrokerVersion:
    """One released Kafka broker."""

    name: str
    artifacts: tuple[str, ...]
    exclusions: tuple[str, ...] = ()
    java_options: tuple[str, ...] = ()

    @property
    def number(self) -> tuple[int, ...]:
        """The version as a tuple that can be compared: ``(0, 8, 2, 2)``."""
        return tuple(int(part) for part in self.name.split("."))

    @property
    def needs_zookeeper(self) -> bool:
        """True if the state is in ZooKeeper (up to 3.9), False for KRaft (4.x)."""
        return self.number < (4,)


VERSIONS: dict[str, BrokerVersion] = {
    version.name: version
    for version in (
        BrokerVersion(
            "0.8.0",
            ("org.apache.kafka:kafka_2.10:0.8.0", _LOG4J_1),
            # A second slf4j binding would only print warnings.
            (*_UNRESOLVABLE, "org.slf4j:slf4j-simple"),
            _OLD_SNAPPY,
        ),
        BrokerVersion(
            "0.8.1.1",
            ("org.apache.kafka:kafka_2.10:0.8.1.1", _LOG4J_1),
            _UNRESOLVABLE,
            _OLD_SNAPPY,
        ),
        BrokerVersion("0.8.2.2", ("org.apache.kafka:kafka_2.10:0.8.2.2", _LOG4J_1)),
        BrokerVersion("0.9.0.1", ("org.apache.kafka:kafka_2.11:0.9.0.1",)),
        BrokerVersion(
            "0.10.2.2",
            ("org.apache.kafka:kafka_2.12:0.10.2.2", "javax.xml.bind:jaxb-api:2.3.1"),
        ),
        # The console tools are in kafka-tools, no longer in the core jar.
        BrokerVersion(
            "3.9.1",
            ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1"),
        ),
        BrokerVersion(
            "4.1.0",
            (
                "org.apache.kafka:kafka_2.13:4.1.0",
                "org.apache.kafka:kafka-tools:4.1.0",
                _LOG4J_2,
            ),
        ),
    )
}

PEERS: dict[str, BrokerVersion] = {
    version.name: version
    for version in (
        # Spring's class for headers in values, and the clients of 0.8.2.2. Of Spring's other
        # dependencies it needs only these; Jackson would come with the servlet container.
        BrokerVersion(
            "0.8.2.2-spring",
            (
                "org.apache.kafka:kafka_2.10:0.8.2.2",
                "org.springframework.cloud:spring-cloud-stream:1.3.4.RELEASE",
                "org.springframework.integration:spring-integration-core:4.3.20.RELEASE",
                "com.fasterxml.jackson.core:jackson-databind:2.8.11.3",
                _LOG4J_1,
            ),
            (*_UNRESOLVABLE, "org.springframework.boot:*", "com.esotericsoftware:*"),
        ),
        # It takes other versions of requests than 4.0.1 and later.
        BrokerVersion(
            "4.0.0",
            (
                "org.apache.kafka:kafka_2.13:4.0.0",
                "org.apache.kafka:kafka-tools:4.0.0",
                _LOG4J_2,
            ),
        ),
        # Admin tools that read and write ZooKeeper, as they did until 2.8.
        BrokerVersion(
            "0.11.0.3",
            ("org.apache.kafka:kafka_2.12:0.11.0.3", "javax.xml.bind:jaxb-api:2.3.1"),
        ),
        BrokerVersion("1.1.1", ("org.apache.kafka:kafka_2.12:1.1.1", _LOG4J_1)),
        BrokerVersion("2.8.2", ("org.apache.kafka:kafka_2.13:2.8.2", _LOG4J_1)),
        # MirrorMaker 2 with its client, which reads the offset-sync and checkpoint topics.
        BrokerVersion(
            "3.9.1-mirror",
            (
                "org.apache.kafka:kafka_2.13:3.9.1",
                "org.apache.kafka:connect-mirror:3.9.1",
                "org.slf4j:slf4j-reload4j:1.7.36",  # without it nothing is logged
            ),
        ),
    )
}
"""Other jars that some tests need; ``find_version`` finds them, too."""


def find_version(name: str) -> BrokerVersion:
    """Return a version by its exact name.

    Raises:
        HarnessError: the version is unknown.
    """
    try:
        return (VERSIONS | PEERS)[name]
    except KeyError:
        known = ", ".join(VERSIONS)
        raise HarnessError(f"unknown broker version {name!r}; known versions: {known}") from None
