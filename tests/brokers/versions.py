"""The broker versions the harness knows: where their jars are and what their JVM needs.

Law: everything that is true of *one version* and is not a server property stands in this table;
server properties live in ``properties.py``, downloading in ``jars.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.brokers.errors import HarnessError

# Dependencies of log4j 1.2.15 that no public repository serves; brokers don't need them.
_UNRESOLVABLE = ("com.sun.jmx:jmxri", "com.sun.jdmk:jmxtools", "javax.jms:jms")
# The old snappy-java defines classes in the boot loader by reflection. Java 17 forbids it, and
# then every snappy produce is answered with error -1: the JVM's fault, not the broker's.
_OLD_SNAPPY = ("--add-opens=java.base/java.lang=ALL-UNNAMED",)
_LOG4J_1 = "org.slf4j:slf4j-log4j12:1.7.6"


@dataclass(frozen=True, slots=True)
class BrokerVersion:
    """One released Kafka broker."""

    name: str
    artifacts: tuple[str, ...]
    exclusions: tuple[str, ...] = ()
    java_options: tuple[str, ...] = ()

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers, to compare: ``(0, 8, 2, 2)``."""
        return tuple(int(part) for part in self.name.split("."))

    @property
    def needs_zookeeper(self) -> bool:
        """Whether it keeps its state in ZooKeeper (up to 3.9) or in KRaft (4.x)."""
        return self.number < (4,)


VERSIONS: dict[str, BrokerVersion] = {
    version.name: version
    for version in (
        BrokerVersion(
            "0.8.0",
            ("org.apache.kafka:kafka_2.10:0.8.0", _LOG4J_1),
            # It brings a second slf4j binding; two of them only print warnings.
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
        # The console tools moved out of the core jar into kafka-tools.
        BrokerVersion(
            "3.9.1",
            ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1"),
        ),
        BrokerVersion(
            "4.1.0",
            (
                "org.apache.kafka:kafka_2.13:4.1.0",
                "org.apache.kafka:kafka-tools:4.1.0",
                "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
            ),
        ),
    )
}


def find_version(name: str) -> BrokerVersion:
    """Look a version up by its exact name; the error names the known ones."""
    try:
        return VERSIONS[name]
    except KeyError:
        known = ", ".join(VERSIONS)
        raise HarnessError(f"unknown broker version {name!r}; known versions: {known}") from None
