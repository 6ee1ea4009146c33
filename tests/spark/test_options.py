"""Options have Spark's names, defaults and precedence; errors show the option and its value."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from aiokafka08._core.properties import TlsOptions
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError
from aiokafka08.spark import offsets
from aiokafka08.spark.options import (
    LogEnd,
    NoMatchStrategy,
    OffsetBound,
    ReadOptions,
    TimestampBound,
    is_create_table,
    read_options,
    write_options,
)
from aiokafka08.structs import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "kafka1:9092,kafka2:9092"}


def read(
    given: Mapping[str, str] | None = None, *, streaming: bool = False, bare: bool = False
) -> ReadOptions:
    base = {} if bare else SERVERS | {"subscribe": "t"}
    return read_options(base | dict(given or {}), streaming=streaming)


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def test_pure_modules_import_no_pyspark_and_no_network() -> None:
    code = (
        "import sys, aiokafka08.spark.options, aiokafka08.spark.planning; print(*[name for name in"
        " sys.modules if name.split('.')[0] in ('pyspark', 'pyarrow', 'asyncio')"
        " or name.startswith('aiokafka08._core.net')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_missing_extra_raises_with_pip_command(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import aiokafka08.spark, aiokafka08.errors\n"
        "try:\n    aiokafka08.spark.Kafka08DataSource\n"
        "except aiokafka08.errors.KafkaConfigurationError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'aiokafka08[spark]'" in done.stdout


def test_defaults_are_those_of_spark() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.start, batch.end) == (LogEnd.EARLIEST, LogEnd.LATEST)
    assert (stream.start, stream.end) == (LogEnd.LATEST, LogEnd.LATEST)
    assert batch.fail_on_data_loss
    assert batch.limits.max_delay_s == 15 * 60
    assert (batch.limits.min_offsets, batch.limits.max_offsets) == (None, None)
    assert (batch.min_partitions, batch.max_records_per_partition) == (None, None)
    assert (batch.fetch_offset_retries, batch.fetch_offset_interval_s) == (3, 1)
    assert batch.poll_timeout_s == 120
    assert batch.no_match_strategy is NoMatchStrategy.ERROR
    assert not batch.include_headers
    assert batch.notes == ()


def test_option_names_ignore_case() -> None:
    options = read_options(
        {"KAFKA.bootstrap.SERVERS": "k", "SUBSCRIBE": "t", "failondataloss": "FALSE"},
        streaming=False,
    )
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": " a, b ,,a"}, ("a", "b")),
        ({"subscribePattern": "a.*"}, "a.*"),
        ({"assign": '{"b":[2,0],"a":[1]}'}, (tp("a", 1), tp("b", 0), tp("b", 2))),
    ],
)
def test_topics_are_selected_in_three_ways(given: dict[str, str], expected: Any) -> None:
    topics = read(SERVERS | given, bare=True).topics
    assert expected in (topics.subscribe, topics.pattern, topics.assign)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {},
            "none of them; expected exactly one of the options assign, subscribe, subscribePattern",
        ),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe='a'"),
        ({"subscribe": " , "}, "subscribe=' , ': no topic is named"),
        ({"subscribePattern": "a("}, "subscribePattern='a(': missing )"),
        ({"subscribePattern": " "}, "empty; expected a regular expression"),
        ({"assign": "a"}, "assign='a': invalid JSON"),
        ({"assign": "[1]"}, "not a JSON object"),
        ({"assign": '{"a":0}'}, "topic 'a' has 0, not a list"),
        ({"assign": '{"a":[-1]}'}, "-1 is no partition"),
        ({"assign": '{"a":[true]}'}, "True is no partition"),
        ({"assign": '{"a":[0.0]}'}, "0.0 is no partition"),
        ({"assign": '{"a":null}'}, "topic 'a' has None, not a list"),
        ({"assign": '{"a":[0],"a":[1]}'}, "a name occurs twice"),
    ],
)
def test_wrong_topic_selection_raises(given: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        read(SERVERS | given, bare=True)
    assert message in str(caught.value)


ONE = '{"t":{"0":5}}'


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "earliest"}, LogEnd.EARLIEST),
        ({"startingOffsets": " Latest "}, LogEnd.LATEST),
        ({"startingOffsets": ONE}, OffsetBound("startingOffsets", {tp("t"): 5})),
        (
            {"startingOffsets": '{"t":{"0":-2,"1":-1}}'},
            OffsetBound("startingOffsets", {tp("t"): -2, tp("t", 1): -1}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "earliest"},
            TimestampBound("startingOffsetsByTimestamp", None, {tp("t"): 7}),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestamp": ONE, "startingOffsets": ONE},
            TimestampBound("startingTimestamp", 9),
        ),
    ],
)
def test_start_bound_follows_precedence(given: dict[str, str], expected: Any) -> None:
    assert read(given, streaming=True).start == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endingOffsets": "latest"}, LogEnd.LATEST),
        ({"endingOffsets": '{"t":{"0":-1}}'}, OffsetBound("endingOffsets", {tp("t"): -1})),
        (
            {"endingOffsetsByTimestamp": ONE},
            TimestampBound("endingOffsetsByTimestamp", None, {tp("t"): 5}),
        ),
        (
            {"endingTimestamp": "9", "endingOffsetsByTimestamp": ONE},
            TimestampBound("endingTimestamp", 9),
        ),
    ],
)
def test_end_bound_follows_precedence(given: dict[str, str], expected: Any) -> None:
    assert read(given).end == expected


WRONG: list[tuple[bool, dict[str, str], str]] = [
    (False, {"startingOffsets": "latest"}, "startingOffsets='latest': a batch query can't start"),
    (False, {"startingOffsets": '{"t":{"0":-1}}'}, "partition 0 has -1: a batch query can't start"),
    (False, {"endingOffsets": "earliest"}, "endingOffsets='earliest': a batch query can't end"),
    (False, {"endingOffsets": '{"t":{"0":-2}}'}, "partition 0 has -2: a batch query can't end"),
    (False, {"startingOffsets": "first"}, "startingOffsets='first': expected earliest, latest"),
    (False, {"endingOffsets": "x"}, "endingOffsets='x': expected latest, or JSON"),
    (False, {"startingOffsets": '{"t":{"0":-3}}'}, "partition 0 has -3, not an integer >= -2"),
    (False, {"startingOffsets": '{"t":{"x":1}}'}, "'x' is no partition"),
    (False, {"startingOffsets": f'{{"t":{{"{"9" * 5000}":1}}}}'}, "is no partition"),
    (False, {"startingOffsets": '{"t":{"0":1,"00":2}}'}, "'00' is no partition"),
    (False, {"startingOffsets": '{"t":{"0":1,"0":2}}'}, "a name occurs twice"),
    (False, {"startingOffsets": '{"t":{"0":"1"}}'}, "has '1', not an integer"),
    (False, {"startingOffsets": '{"t":{"0":1.5}}'}, "has 1.5, not an integer"),
    (False, {"startingOffsets": '{"t":[1]}'}, "topic 't' has [1]"),
    (False, {"startingOffsets": '{"t":{"0":'}, "invalid JSON"),
    (False, {"startingOffsets": "{" * 100_000}, "invalid JSON"),
    (False, {"startingTimestamp": "noon"}, "startingTimestamp='noon': expected an integer"),
    (False, {"startingTimestamp": "-1"}, "startingTimestamp='-1'"),
    (False, {"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "not an integer >= 0"),
    (
        False,
        {"startingOffsets": ONE, "endingOffsets": '{"t":{"1":9}}'},
        "startingOffsets, endingOffsets: only one of them names t/0, t/1",
    ),
    (
        False,
        {"startingOffsets": ONE, "endingOffsets": '{"t":{"0":4}}'},
        "startingOffsets, endingOffsets: topic 't', partition 0 starts at 5 and ends at 4",
    ),
    (
        False,
        {"startingOffsetsByTimestamp": ONE, "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
        "endingOffsetsByTimestamp: topic 't', partition 0 starts at 5 and ends at 4",
    ),
    (
        False,
        {"startingOffsetsByTimestampStrategy": "guess"},
        "expected one of error, latest, segment",
    ),
    (True, {"endingOffsets": "latest"}, "endingOffsets='latest' is not supported in streaming"),
    (True, {"endingTimestamp": "1"}, "endingTimestamp='1' is not supported in streaming"),
    (True, {"endingOffsetsByTimestamp": ONE}, "is not supported in streaming queries"),
    (False, {"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': expected one of true, false"),
    (False, {"includeHeaders": "1"}, "includeHeaders='1': expected one of true, false"),
    (False, {"minPartitions": "0"}, "minPartitions='0': expected an integer from 1"),
    (False, {"minPartitions": "1_0"}, "minPartitions='1_0'"),
    (False, {"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition='-5'"),
    (True, {"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many'"),
    (True, {"maxOffsetsPerTrigger": "9" * 30}, "maxOffsetsPerTrigger="),
    (
        True,
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        "minOffsetsPerTrigger=5: above maxOffsetsPerTrigger=4",
    ),
    (True, {"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': expected a number and a unit"),
    (True, {"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay='5 weeks'"),
    (False, {"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries='x'"),
    (False, {"fetchOffset.retryIntervalMs": "-1"}, "fetchOffset.retryIntervalMs='-1'"),
    (False, {"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs='0'"),
    (
        False,
        {"startingOfsets": "earliest"},
        "startingOfsets=…: unknown option. Did you mean 'startingOffsets' or ",
    ),
    (
        False,
        {"topic": "t"},
        "topic=…: unknown option. Did you mean 'subscribe'?",
    ),
    (
        True,
        {"Topics": "t"},
        "Topics=…: unknown option. Did you mean 'subscribe'?",
    ),
    (
        False,
        {"topicPattern": "t.*"},
        "topicPattern=…: unknown option. Did you mean 'subscribePattern'?",
    ),
    (
        False,
        {"brokers": "kafka1:9092"},
        "brokers=…: unknown option. Did you mean 'kafka.bootstrap.servers'?",
    ),
    (
        False,
        {"offsets": "earliest"},
        "offsets=…: unknown option. Did you mean 'startingOffsets' or 'endingOffsets'?",
    ),
    (
        False,
        {"auto.offset.reset": "earliest"},
        "auto.offset.reset=…: unknown option. Did you mean 'startingOffsets'?",
    ),
    (
        False,
        {"bootstrap.servers": "kafka1:9092"},
        "bootstrap.servers=…: unknown option. Did you mean 'kafka.bootstrap.servers'?",
    ),
    (
        False,
        {"startingTimestamp": "5", "endingTimestamp": "4"},
        "startingTimestamp=5, endingTimestamp=4: the query ends before it starts",
    ),
    (
        False,
        {"startingTimestamp": "6", "endingOffsetsByTimestamp": ONE},
        "endingOffsetsByTimestamp: topic 't', partition 0 starts at 6 and ends at 5",
    ),
    (
        False,
        {"startingOffsetsByTimestamp": ONE, "endingTimestamp": "4"},
        "endingTimestamp: topic 't', partition 0 starts at 5 and ends at 4",
    ),
]


@pytest.mark.parametrize(("streaming", "given", "message"), WRONG)
def test_wrong_option_raises_with_its_value(
    streaming: bool, given: dict[str, str], message: str
) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        read(given, streaming=streaming)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("15m", 900), ("2 min", 120), ("10", 0.01), ("3h", 10800), ("1d", 86400), ("500us", 0.0005)],
)
def test_max_trigger_delay_accepts_units(given: str, seconds: float) -> None:
    assert read({"maxTriggerDelay": given}, streaming=True).limits.max_delay_s == seconds


def test_options_without_effect_are_noted() -> None:
    options = read(
        {
            "maxOffsetsPerTrigger": "5",
            "groupIdPrefix": "g",
            "kafka.group.id": "g",
            "kafka.max.poll.records": "3",
        }
    )
    assert len(options.notes) == 4
    assert any("kafka.group.id='g' has no effect: Spark assigns" in n for n in options.notes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client.rack", "r1"),
        ("metric.reporters", "com.me.Reporter"),
        ("ssl.truststore.location", "/no/such/file"),
        ("ssl.keystore.password", "hush"),
    ],
)
def test_property_that_needs_java_or_tls_is_noted(name: str, value: str) -> None:
    """Spark's own source reads with them, too; so a job needn't change its options."""
    for notes in (
        read({f"kafka.{name}": value}).notes,
        write_options(SERVERS | {f"kafka.{name}": value}).notes,
    ):
        [note] = notes
        assert note.startswith(f"kafka.{name}=")
        assert "has no effect" in note
        assert "hush" not in note


@pytest.mark.parametrize("timestamp", ["5", "6"])
def test_end_timestamp_not_below_the_start_is_accepted(timestamp: str) -> None:
    read({"startingTimestamp": "5", "endingTimestamp": timestamp})
    read({"startingOffsetsByTimestamp": ONE, "endingTimestamp": timestamp})


def test_path_is_accepted_without_effect() -> None:
    """`load("x")` and `save("x")` pass it; Spark's own source ignores it, too."""
    assert read({"path": "x"}) == read()
    assert write_options(SERVERS | {"path": "x"}) == write_options(SERVERS)


# --- SQL ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["subscribe", "TOPIC", "kafka.bootstrap.servers", "startingOffsets"]
)
def test_create_table_with_options_is_refused(name: str) -> None:
    created = {"provider": "kafka08", "owner": "me", f"option.{name}": "x", name: "x"}
    with pytest.raises(IllegalArgumentError) as caught:
        is_create_table(created)
    assert f"CREATE TABLE with {name}=…" in str(caught.value)
    assert "FROM table WITH ('kafka.bootstrap.servers'=" in str(caught.value)


def test_create_table_with_foreign_properties_is_accepted() -> None:
    created = {"provider": "kafka08", "owner": "me", "team": "x", "comment": "y"}
    assert is_create_table(created)
    assert not is_create_table(SERVERS)


def test_query_of_a_table_without_options_is_explained() -> None:
    for check in (write_options, lambda given: read_options(given, streaming=False)):
        with pytest.raises(IllegalArgumentError, match=r"no options: .* CREATE TEMPORARY VIEW"):
            check({})


# --- kafka.* --------------------------------------------------------------------------------------


def test_java_properties_are_mapped_to_client_settings() -> None:
    client = read(
        {
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
            "kafka.retry.backoff.ms": "0",
            "kafka.metadata.max.age.ms": "1",
            "kafka.connections.max.idle.ms": "-1",
            "kafka.max.partition.fetch.bytes": "2097152",
            "kafka.check.crcs": "false",
            "kafka.isolation.level": "read_uncommitted",
        }
    ).client
    assert client.network == {
        "bootstrap_servers": "kafka1:9092,kafka2:9092",
        "client_id": "me",
        "request_timeout_ms": 5000,
        "retry_backoff_ms": 0,
        "metadata_max_age_ms": 1,
        "connections_max_idle_ms": None,
    }
    assert client.settings == {
        "max_bytes": 2097152,
        "check_crcs": False,
        "isolation_level": "read_uncommitted",
    }
    assert client.tls is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("auto.offset.reset", "latest", "Set the option startingOffsets to earliest or latest"),
        ("key.deserializer", "X", "keys and values are read as bytes"),
        ("value.deserializer", "X", "keys and values are read as bytes"),
        ("enable.auto.commit", "true", "Spark's checkpoint keeps the offsets"),
        ("interceptor.classes", "X", "is not supported"),
        (
            "fetch.maxbytes",
            "1",
            "kafka.fetch.maxbytes=…: unknown option. Did you mean 'kafka.fetch.max.bytes' or ",
        ),
        (
            "acks",
            "all",
            "kafka.acks=…: unknown option; expected one of those in 'Spark and Kafka 0.8'",
        ),
        ("request.timeout.ms", "x", "kafka.request.timeout.ms='x': expected an integer"),
        ("bootstrap.servers", " ", "empty; expected a non-empty text"),
    ],
)
def test_unsupported_java_property_raises(name: str, value: str, message: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        read({f"kafka.{name}": value})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "read_committed"),
    ],
)
def test_property_beyond_the_protocol_raises(name: str, value: str) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        read({f"kafka.{name}": value})
    assert f"kafka.{name}=" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_sasl_options_become_arguments_of_the_client() -> None:
    sasl = {
        "kafka.security.protocol": "PLAINTEXTSASL",
        "kafka.sasl.kerberos.keytab": "./me.keytab",
        "kafka.sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    }
    client = read(sasl).client
    assert client.network["security_protocol"] == "PLAINTEXTSASL"
    assert client.network["sasl_mechanism"] == "GSSAPI"
    assert client.network["sasl_kerberos_keytab"] == "./me.keytab"
    assert "renews tickets by itself" in client.ignored[0]
    unused = read({"kafka.sasl.jaas.config": "hush"}).client
    assert "sasl_mechanism" not in unused.network
    assert unused.ignored == (
        "kafka.sasl.jaas.config=… has no effect: kafka.security.protocol doesn't ask for SASL",
    )


@pytest.mark.parametrize("name", ["ssl.cipher.suites", "ssl.protocol", "ssl.truststore.password"])
def test_property_of_tls_that_is_not_supported_is_named_so(name: str) -> None:
    given = {"kafka.security.protocol": "SSL", f"kafka.{name}": "x1y2"}
    with pytest.raises(IllegalArgumentError) as raised:
        read(given)
    assert raised.value.text == (
        f"kafka.{name}={'…' if 'password' in name else repr('x1y2')} is not supported: of TLS only "
        "PEM files and the check of the host name can be set. Leave it out, or set one of "
        "kafka.ssl.truststore.location, kafka.ssl.truststore.type, kafka.ssl.keystore.location, "
        "kafka.ssl.keystore.type, kafka.ssl.key.password, "
        "kafka.ssl.endpoint.identification.algorithm"
    )


@pytest.mark.parametrize(
    "name",
    [
        "kafka.ssl.keystore.password",
        "kafka.ssl.truststore.password",
        "kafka.ssl.keystore.key",
        "kafka.sasl.jaas.config",
        "kafka.sasl.passwd",
        "kafka.ssl.key.passwd",
        "sasl.jaas.config",
        "passwd",
        "password",
    ],
)
def test_errors_hide_secrets(name: str) -> None:
    for check in (read, lambda given: write_options(SERVERS | given)):
        with pytest.raises((IllegalArgumentError, UnsupportedVersionError)) as caught:
            check({"kafka.security.protocol": "SASL_SSL", name: "hush"})
        assert f"{name}=…" in str(caught.value)
        assert "hush" not in str(caught.value)


def test_missing_bootstrap_servers_raises() -> None:
    with pytest.raises(IllegalArgumentError, match=r"'kafka\.bootstrap\.servers' is missing"):
        read({"subscribe": "t"}, bare=True)


def test_tls_properties_accept_only_pem_files() -> None:
    given = {
        "kafka.security.protocol": "ssl",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.location": "/me.pem",
        "kafka.ssl.keystore.type": "pem",
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    client = read(given).client
    assert client.tls == TlsOptions("/ca.pem", "/me.pem", "secret", False)
    assert "secret" not in repr(client)
    with pytest.raises(IllegalArgumentError, match="only PEM files can be read"):
        read({**given, "kafka.ssl.truststore.type": "JKS"})


# --- writer ---------------------------------------------------------------------------------------


def test_writer_options_are_mapped() -> None:
    options = write_options(
        SERVERS
        | {
            "topic": " out ",
            "timestamps": "drop",
            "checkpointLocation": "/c",
            "kafka.acks": "-1",
            "kafka.compression.type": "snappy",
            "kafka.linger.ms": "5",
            "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "kafka.retries": "3",
        }
    )
    assert options.topic == "out"
    assert options.drop_timestamps
    assert options.client.settings == {
        "acks": "all",
        "compression_type": "snappy",
        "linger_ms": 5,
        "partitioner": "round_robin",
    }
    assert len(options.notes) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": " "}, "topic=' ': empty; expected the name of a topic"),
        ({"subscribe": "t"}, "subscribe=…: unknown option. Did you mean 'topic'?"),
        ({"topics": "t"}, "topics=…: unknown option. Did you mean 'topic'?"),
        ({"servers": "h:1"}, "servers=…: unknown option. Did you mean 'kafka.bootstrap.servers'?"),
        ({"topik": "t"}, "topik=…: unknown option. Did you mean 'topic'?"),
        ({"timestamps": "maybe"}, "timestamps='maybe': expected one of keep, drop"),
        ({"kafka.key.serializer": "X"}, "kafka.key.serializer='X' is not supported"),
        ({"kafka.value.serializer": "X"}, "kafka.value.serializer='X' is not supported"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id='x' is not supported"),
        ({"kafka.acks": "some"}, "kafka.acks='some'"),
        ({"kafka.acks": "7"}, "kafka.acks='7': expected one of all, -1, 0, 1"),
        ({"kafka.compression.type": "zip"}, "expected one of none, gzip, snappy, lz4"),
        ({"kafka.partitioner.class": "com.me.Mine"}, "Java classes can't be called"),
        (
            {"partitioner": "murmur2", "kafka.partitioner.class": "DefaultPartitioner"},
            "kafka.partitioner.class is given, too",
        ),
    ],
)
def test_wrong_writer_option_raises(given: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        write_options(SERVERS | given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("compression.type", "zstd"), ("enable.idempotence", "true")]
)
def test_writer_property_beyond_the_protocol_raises(name: str, value: str) -> None:
    with pytest.raises(UnsupportedVersionError, match="message format 2"):
        write_options(SERVERS | {f"kafka.{name}": value})


# --- JSON -----------------------------------------------------------------------------------------


def test_checkpoint_json_is_that_of_spark() -> None:
    written = {tp("b", 10): 3, tp("b", 2): 4, tp("a"): 2**62}
    assert offsets.to_json(written) == '{"a":{"0":4611686018427387904},"b":{"2":4,"10":3}}'
    assert offsets.from_checkpoint(json.loads(offsets.to_json(written))) == written


@pytest.mark.parametrize(
    "stored", [{"t": 5}, {"t": {"0": "5"}}, {"t": {"0": -1}}, [], {"t": {"-1": 1}}]
)
def test_foreign_checkpoint_raises(stored: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="Is it the checkpoint of this source"):
        offsets.from_checkpoint(stored)
