"""How flags, environment, profiles and files become settings; no file and no network."""

from __future__ import annotations

import re
import zipfile

import pytest

from aiokafka08._tools.cli import property_names
from aiokafka08._tools.cli.settings import (
    SETTABLE,
    Settings,
    Source,
    environment_source,
    flag_source,
    settings,
)
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError
from tests.brokers.jars import jar_folder
from tests.support.paths import ROOT


def merged(*sources: dict[str, str], bootstrap: str = "kafka1:9092") -> Settings:
    given = [Source(f"source {number}", one) for number, one in enumerate(sources)]
    return settings([Source("first", {"bootstrap.servers": bootstrap}), *given])


def test_later_source_wins_by_any_name_of_a_property() -> None:
    found = merged({"linger.ms": "1", "acks": "1"}, {"queue.buffering.max.ms": "2"})
    assert found.producer == {"linger_ms": 2, "acks": 1}


def test_defaults_wait_short_for_a_broker_and_long_for_responses() -> None:
    found = merged()
    assert found.network == {
        "bootstrap_servers": "kafka1:9092",
        "client_id": "aiokafka08-cli",
        "request_timeout_ms": 30_000,
        "start_timeout_ms": 5_000,
    }
    assert (found.producer, found.consumer, found.tls, found.notes) == ({}, {}, None, ())
    assert merged({"request.timeout.ms": "1000"}).network["start_timeout_ms"] == 1000


def test_flags_are_properties() -> None:
    flags = flag_source("kafka2", "zk1:2181/kafka", ["group.id=g", "linger.ms = 5"], 0.25)
    found = settings([flags])
    assert found.bootstrap_servers == "kafka2"
    assert found.zookeeper_connect == "zk1:2181/kafka"
    assert found.consumer == {"group_id": "g"}
    assert found.producer == {"linger_ms": 5}
    assert found.timeout_s == 0.25
    assert found.network["start_timeout_ms"] == 250


@pytest.mark.parametrize("other", ["environment", "profile 'prod' of config.toml"])
def test_brokers_of_the_command_line_take_no_zookeeper_from_elsewhere(other: str) -> None:
    """It may belong to another cluster, whose topics and groups a command would change."""
    theirs = Source(other, {"bootstrap.servers": "prod:9092", "zk.connect": "zk-prod:2181"})
    found = settings([theirs, flag_source("test:9092", None, [], None)])
    assert (found.bootstrap_servers, found.zookeeper_connect) == ("test:9092", None)
    assert found.unused_zookeeper == (
        f"zk.connect='zk-prod:2181' ({other}) isn't used beside brokers on the command line, which "
        "may be of another cluster. If it is theirs, give --zookeeper zk-prod:2181 too"
    )
    for flags, connect in (
        (flag_source(None, None, [], None), "zk-prod:2181"),
        (flag_source("test:9092", "zk:2181", [], None), "zk:2181"),
        (flag_source("test:9092", None, ["zookeeper.connect=zk:2181"], None), "zk:2181"),
        (flag_source(None, "zk:2181", [], None), "zk:2181"),
    ):
        found = settings([theirs, flags])
        assert (found.zookeeper_connect, found.unused_zookeeper) == (connect, None)


def test_zookeeper_check_is_a_property() -> None:
    assert merged().zookeeper_check is None
    assert merged({"zookeeper.check": "warn"}).zookeeper_check == "warn"
    with pytest.raises(IllegalArgumentError, match="expected one of refuse, warn"):
        merged({"zookeeper.check": "off"})


def test_environment_has_properties_and_other_variables() -> None:
    source = environment_source(
        {
            "AIOKAFKA08_BOOTSTRAP_SERVERS": "kafka1",
            "AIOKAFKA08_SSL_KEY_PASSWORD": "hush",
            "AIOKAFKA08_PROFILE": "prod",
            "AIOKAFKA08_IMPL": "c",
            "AIOKAFKA08_HEADERS": "drop",
            "PATH": "/bin",
        }
    )
    assert source.values == {"bootstrap.servers": "kafka1", "ssl.key.password": "hush"}


def test_documented_variables_of_the_environment_are_accepted() -> None:
    """The command line also runs where a variable of another part of the package is set."""
    page = (ROOT / "docs/reference/environment.md").read_text()
    names = set(re.findall(r"AIOKAFKA08_[A-Z_]+", page)) - {"AIOKAFKA08_NAME_OF_PROPERTY"}
    values = {
        "AIOKAFKA08_LINGER_MS": "5",
        "AIOKAFKA08_OFFSETS_STORAGE": "kafka",
        "AIOKAFKA08_ZOOKEEPER_CHECK": "warn",
    }
    assert set(values) < names
    source = environment_source({name: values.get(name, "kafka1") for name in names})
    assert settings([source]).bootstrap_servers == "kafka1"


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("lingerms", "linger.ms"),
        ("request.required.ack", "request.required.acks"),
        ("xyz", "'The command line' in the documentation lists the properties"),
    ],
)
def test_unknown_property_is_an_error_with_similar_names(name: str, similar: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        merged({name: "x"})
    assert f"{name}=…: unknown property; " in str(caught.value)
    assert similar in str(caught.value)
    assert "(source 0)" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("linger.ms", "soon", "linger.ms='soon': expected an integer"),
        ("socket.timeout.ms", "0", "socket.timeout.ms='0': expected an integer from 1"),
        ("interceptor.classes", "X", "interceptor.classes='X' is not supported: interceptors"),
        ("auto.offset.reset", "middle", "expected one of earliest"),
        ("security.protocol", "SASL", "expected one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ("offsets.storage", "disk", "expected one of zookeeper, kafka, dual"),
        ("bootstrap.servers", " ", "empty; expected a non-empty text"),
        ("zookeeper.connect", " ", "empty; expected a non-empty text"),
    ],
)
def test_wrong_value_names_property_value_and_source(name: str, value: str, message: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        merged({name: value})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.codec", "zstd"),
        ("partitioner", "fnv1a"),
        ("isolation.level", "read_committed"),
        ("enable.idempotence", "true"),
    ],
)
def test_value_beyond_the_protocol_of_0_8_raises(name: str, value: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=re.escape(f"{name}='{value}'")):
        merged({name: value})


@pytest.mark.parametrize(
    ("storage", "dual", "expected"),
    [
        ("kafka", "true", "dual"),
        ("kafka", "false", "kafka"),
        ("kafka", None, "kafka"),
        ("dual", "true", "dual"),
        ("zookeeper", "false", "zookeeper"),
        (None, "false", None),
    ],
)
def test_dual_commit_of_kafka_means_both_stores(
    storage: str | None, dual: str | None, expected: str | None
) -> None:
    given = {"dual.commit.enabled": dual, "offsets.storage": storage}
    found = merged({name: value for name, value in given.items() if value is not None})
    assert (found.consumer.get("offsets_storage"), found.notes) == (expected, ())


@pytest.mark.parametrize("storage", [{}, {"offsets.storage": "zookeeper"}])
def test_dual_commit_without_kafka_has_no_effect(storage: dict[str, str]) -> None:
    """As in Scala's consumer, whose default is ZooKeeper."""
    found = merged({"dual.commit.enabled": "true", **storage})
    assert found.notes == ("dual.commit.enabled='true' has no effect: offsets.storage isn't kafka",)
    with pytest.raises(IllegalArgumentError, match=r"enabled='yes'.*expected"):
        merged({"dual.commit.enabled": "yes", **storage})
    with pytest.raises(IllegalArgumentError, match=r"'false' with offsets\.storage=dual: expected"):
        merged({"dual.commit.enabled": "false", "offsets.storage": "dual"})


def test_property_without_effect_is_noted_with_reason() -> None:
    found = merged({"broker.version.fallback": "0.8.2", "sasl.mechanisms": "PLAIN"})
    assert found.notes == (
        "broker.version.fallback='0.8.2' has no effect: the version of each broker is detected",
        "sasl.mechanisms=… has no effect: security.protocol doesn't ask for SASL",
    )


def test_topic_prefix_of_librdkafka_is_removed() -> None:
    assert merged({"topic.request.required.acks": "0"}).producer == {"acks": 0}
    assert merged({"topic.metadata.refresh.sparse": "true"}).producer == {}


def test_tls_takes_names_of_java_and_of_librdkafka() -> None:
    java = merged(
        {
            "security.protocol": "ssl",
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.key.password": "hush",
        }
    )
    librdkafka = merged(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
            "enable.ssl.certificate.verification": "false",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert java.tls is not None
    assert (java.tls.cafile, java.tls.password, java.tls.verify) == ("/ca.pem", "hush", True)
    assert librdkafka.tls is not None
    assert (librdkafka.tls.certfile, librdkafka.tls.keyfile) == ("/me.pem", "/me.key")
    assert (librdkafka.tls.verify, librdkafka.tls.check_hostname) == (False, False)
    assert "hush" not in repr(java)
    with pytest.raises(IllegalArgumentError, match=r"ssl\.crl\.location='x' is not supported"):
        merged({"security.protocol": "SSL", "ssl.crl.location": "x"})
    assert merged({"ssl.crl.location": "x"}).tls is None
    with pytest.raises(IllegalArgumentError, match=r"'x' without security\.protocol: expected"):
        merged({"ssl.ca.location": "x"})
    assert merged({"ssl.ca.location": "x", "security.protocol": "PLAINTEXT"}).tls is None


def test_secrets_are_in_no_error_and_not_accepted_from_flags() -> None:
    for name in ("ssl.key.password", "sasl.password", "sasl.jaas.config", "my.secret"):
        with pytest.raises(IllegalArgumentError) as caught:
            flag_source(None, None, [f"{name}=hush"], None)
        assert "hush" not in str(caught.value)
        assert "Put it into a file" in str(caught.value)
    for name in ("ssl.key.passwords", "ssl.key.passwd", "ssl.keystore.pass"):
        with pytest.raises(IllegalArgumentError) as caught:
            merged({name: "hush"})
        assert f"{name}=…: unknown property" in str(caught.value)
        assert "hush" not in str(caught.value)
    protocols: list[dict[str, str]] = [{}, {"security.protocol": "SASL_SSL"}]
    for name in ("sasl.passwd", "sasl.foo"):
        for protocol in protocols:
            with pytest.raises(IllegalArgumentError, match=f"{name}=…: unknown prop") as refused:
                merged({name: "hush", **protocol})
            assert "hush" not in str(refused.value)
    of_java = {"sasl.login.class": "a.B"}
    assert merged(of_java).notes == (
        "sasl.login.class=… has no effect: security.protocol doesn't ask for SASL",
    )
    with pytest.raises(IllegalArgumentError, match=r"sasl\.login\.class=… is not supported"):
        merged({**of_java, "security.protocol": "SASL_SSL"})
    sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN"}
    found = merged({**sasl, "sasl.username": "me", "sasl.password": "hush"})
    assert found.network["sasl_plain_password"] == "hush"
    assert "hush" not in repr(found)
    assert "hush" not in repr(merged({"sasl.password": "hush"}))


@pytest.mark.parametrize("given", ["linger.ms", "=1", " =1"])
def test_flag_without_name_or_value_raises(given: str) -> None:
    with pytest.raises(IllegalArgumentError, match="expected NAME=VALUE"):
        flag_source(None, None, [given], None)


def test_missing_address_names_the_ways_to_give_one() -> None:
    with pytest.raises(IllegalArgumentError, match=r"-b HOST:PORT.*AIOKAFKA08_BOOTSTRAP_SERVERS"):
        settings([])


# --- the tables -----------------------------------------------------------------------------------


def test_a_name_is_in_one_table() -> None:
    tables = [
        set(property_names.ALIASES),
        set(property_names.WITHOUT_EFFECT),
        set(property_names.REFUSED),
        set(SETTABLE),
    ]
    assert sum(map(len, tables)) == len(set.union(*tables))
    assert set(property_names.ALIASES.values()) <= set(SETTABLE)


def java_names(version: str, *classes: str) -> set[str]:
    """Return the constants of Java classes that look like property names."""
    found: set[str] = set()
    for jar in jar_folder(version).glob("*kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for name in set(classes) & set(archive.namelist()):
                text = archive.read(name).decode("latin-1")
                # A constant of UTF-8: its tag, its length in two bytes, its bytes.
                for found_one in re.finditer(r"\x01\x00(.)([a-z]+(?:\.[a-z0-9]+)+)", text, re.S):
                    if ord(found_one[1]) == len(found_one[2]):
                        found.add(found_one[2])
    return found


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "classes"),
    [
        (
            "3.9.1",
            [
                "org/apache/kafka/clients/CommonClientConfigs.class",
                "org/apache/kafka/clients/admin/AdminClientConfig.class",
                "org/apache/kafka/clients/consumer/ConsumerConfig.class",
                "org/apache/kafka/clients/producer/ProducerConfig.class",
                "org/apache/kafka/common/config/SslConfigs.class",
            ],
        ),
        (
            "0.8.2.2",
            [
                "kafka/consumer/ConsumerConfig.class",
                "kafka/producer/ProducerConfig.class",
                "kafka/producer/async/AsyncProducerConfig.class",
                "kafka/utils/ZKConfig.class",
            ],
        ),
    ],
)
def test_every_property_of_kafkas_clients_is_known(version: str, classes: list[str]) -> None:
    """A file that configures Kafka's own clients is read as it is."""
    names = java_names(version, *classes)
    assert "zookeeper.connect" in names or "bootstrap.servers" in names
    unknown = []
    for name in sorted(names):
        try:
            merged({name: "1"})
        except (IllegalArgumentError, UnsupportedVersionError) as error:
            if "unknown property" in str(error):
                unknown.append(name)
    assert unknown == []
