"""Render the tables of options in docs/spark.md from the tables of `aiokafka08.spark`.

Names, defaults and properties are those of the code. What differs from Spark's own source is said
here, once for options that belong together; a test fails for an option without a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiokafka08._core.properties import NETWORK, PRODUCE, TLS, PropertyTable
from aiokafka08._core.sasl.java_properties import SASL
from aiokafka08.spark import properties
from aiokafka08.spark.options import READ_OPTIONS, WRITE_OPTIONS, LogEnd, read_options
from tests.docs.tables import DOCS, replace_section, table

BEGIN = "<!-- {}: made from the code by `python -m tests.docs`. -->\n"

HEADERS = "`refuse`, or the driver's `AIOKAFKA08_HEADERS`"
MINIMAL = {"kafka.bootstrap.servers": "kafka1:9092", "subscribe": "events"}

Sentences = Mapping[tuple[str, ...], tuple[str, str]]
"""Options that belong together → a default that isn't a plain text, or "", and the sentence."""

READING: Sentences = {
    ("assign", "subscribe", "subscribePattern"): (
        "",
        "same; exactly one of them. The pattern is found anywhere in a name (`^a$` matches a whole "
        "name), and has Java's syntax as far as Python shares it: classes in classes, `&&` in "
        "them, `\\p{…}`, back-references and flags in the middle are refused. A pattern that "
        "matches nothing is logged once, and so is `assign` without a partition (`{}`, "
        '`{"t":[]}`). Reading never creates a topic. A partition that the topic lacks, or −1, is '
        "refused. JSON: see `startingOffsets`",
    ),
    ("startingOffsets",): (
        "{streaming} in streams, {batch} in batches",
        "same; JSON must have an entry for each partition, and no other. All options refuse "
        "fractions (`0.0`), `null`, numbers like `00`, a name that occurs twice, and text behind "
        "the JSON, which Spark takes",
    ),
    ("endingOffsets",): ("", "same; in batches only"),
    (
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
    ): (
        "",
        "same precedence; a timestamp below 0 is refused; see [Timestamps](#timestamps-as-bounds)",
    ),
    ("startingOffsetsByTimestampStrategy",): (
        "",
        "`error` and `latest` are the same; `segment` is new; see "
        "[Timestamps](#timestamps-as-bounds)",
    ),
    ("failOnDataLoss",): (
        "",
        "same; the error has topic, partition and range. See [Lost data](#lost-data)",
    ),
    ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"): (
        "",
        "same. `Trigger.AvailableNow` doesn't wait for the minimum",
    ),
    ("maxTriggerDelay",): ("", "same"),
    ("minPartitions",): (
        "two per core",
        "the minimum number of tasks (unless there are fewer offsets): large ranges are split, "
        "small ones are combined down to it; see [Tasks](#tasks)",
    ),
    ("maxRecordsPerPartition",): (
        "",
        "as Spark's guide says, also for combined ranges and in batches, where Spark's code (4.2) "
        "ignores it unless `minPartitions` exceeds the number of partitions",
    ),
    ("groupIdPrefix",): (
        "",
        "without effect, as `kafka.group.id`, with a warning: no consumer group is joined",
    ),
    ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"): (
        "",
        "same (Spark's guide says 10, its code has 1000)",
    ),
    ("kafkaConsumer.pollTimeoutMs",): (
        "",
        "same: how long a task waits without progress",
    ),
    ("includeHeaders",): ("", "same; the column is null without `headers=embedded`"),
    ("headers",): (
        HEADERS,
        "new: `embedded` reads headers out of the values ([Frameworks](frameworks.md)); a damaged "
        "envelope fails the query. `refuse` and `drop` return values as they are",
    ),
}

WRITING: Sentences = {
    ("topic",): ("", "same: the topic of all rows"),
    ("includeHeaders",): ("", "no effect"),
    ("headers",): (
        HEADERS,
        "new: rows with headers are refused; `drop` writes them without headers, `embedded` writes "
        "the headers into the value ([Frameworks](frameworks.md))",
    ),
    ("timestamps",): (
        "",
        "new: brokers older than 0.10 refuse rows with a `timestamp` that isn't null; `drop` "
        "writes them without it",
    ),
    ("partitioner",): (
        "`murmur2`",
        "new: a partitioner of this client, such as `murmur2` (that of the Java client), "
        "`scala-0.8.2` or `round_robin`",
    ),
}

PROPERTIES: Mapping[str, str] = {
    "acks": "0, 1 or all. With 0 brokers acknowledge nothing, so messages may be lost. `all` "
    "without the option",
    "batch.size": "",
    "bootstrap.servers": "`host:port,host:port`; required",
    "buffer.memory": "",
    "check.crcs": "",
    "client.id": "",
    "compression.type": "none, gzip, snappy, lz4 (from 0.8.2 on); zstd is refused",
    "connections.max.idle.ms": "-1: never",
    "delivery.timeout.ms": "limits retries and the wait for memory, too",
    "enable.idempotence": "true is refused",
    "fetch.max.bytes": "the size of the largest message",
    "isolation.level": "read_committed is refused",
    "linger.ms": "",
    "max.in.flight.requests.per.connection": "the order within a partition doesn't depend on it",
    "max.partition.fetch.bytes": "the size of one request",
    "max.request.size": "",
    "metadata.max.age.ms": "",
    "partitioner.class": "DefaultPartitioner, RoundRobinPartitioner or UniformStickyPartitioner; "
    "others are refused",
    "request.timeout.ms": "30000 reading, 40000 writing; also the time in which a query, or a "
    "task that writes, must reach a first broker, 25000 without the option",
    "retry.backoff.ms": "",
    "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT (also as PLAINTEXTSASL), SASL_SSL",
    "sasl.jaas.config": "PlainLoginModule, ScramLoginModule or Krb5LoginModule",
    "sasl.kerberos.keytab": "a path on the driver and the executors ([SASL](guides/sasl.md))",
    "sasl.kerberos.principal": "",
    "sasl.kerberos.service.name": "kafka without the option",
    "sasl.mechanism": "GSSAPI, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
    "sasl.password": "as in librdkafka",
    "sasl.username": "as in librdkafka",
    "ssl.endpoint.identification.algorithm": "https, or empty: the host name isn't checked",
    "ssl.key.password": "",
    "ssl.keystore.location": "a PEM file",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.location": "a PEM file",
    "ssl.truststore.type": "PEM",
}
"""What to know of a property `kafka.*` beside its meaning in Java's clients; "": nothing."""


def spark_page() -> str:
    """Return docs/spark.md with its tables of options made anew."""
    page = (DOCS / "spark.md").read_text()
    for name, made in (
        ("Reader", _options(READ_OPTIONS, READING)),
        ("Writer", _options(WRITE_OPTIONS, WRITING)),
        ("Properties", "".join(_properties())),
    ):
        page = replace_section(page, BEGIN.format(name), made)
    return page


def _options(defaults: Mapping[str, str | None], sentences: Sentences) -> str:
    rows = []
    for names, (words, sentence) in sentences.items():
        shown = [f"`{defaults[name]}`" if defaults[name] is not None else "" for name in names]
        if words:
            assert not any(shown), names
        default = words.format(**_starts()) if words else ", ".join(filter(None, shown))
        rows.append((", ".join(f"`{name}`" for name in names), default, sentence))
    return table(("option", "default", 'compared with `format("kafka")`'), rows)


def _starts() -> dict[str, str]:
    """Return where a query starts without an option, by the kind of query."""
    starts = {}
    for kind, streaming in (("streaming", True), ("batch", False)):
        start = read_options(MINIMAL, streaming=streaming).start
        assert isinstance(start, LogEnd)
        starts[kind] = f"`{start.value}`"
    return starts


def _properties() -> Iterator[str]:
    tables: Sequence[tuple[str, PropertyTable, str]] = (
        ("both", NETWORK, "`{}`"),
        ("reading", properties.FETCH, ""),  # settings of a task, which aren't public
        ("writing", PRODUCE, "`{}`"),
    )
    parts = [
        [
            (name, where, shown.format(argument))
            for where, found, shown in tables
            for name, (argument, _) in found.items()
        ],
        [(name, "both", "`ssl_context`") for name in TLS],
        [(name, "both", "`sasl_…`") for name in SASL],
    ]
    rows = []
    for part in parts:
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for name, where, argument in part:
            alike.setdefault((where, PROPERTIES[name]), []).append((f"`kafka.{name}`", argument))
        for (where, note), some in alike.items():
            names, arguments = (
                ", ".join(dict.fromkeys(column)) for column in zip(*some, strict=True)
            )
            rows.append((names, where, arguments, note))
    yield table(("property", "for", "argument of this client", ""), rows)
    yield "\nRefused:\n\n"
    refused: dict[str, dict[str, None]] = {}
    for found in (properties.REFUSED_READING, properties.REFUSED_WRITING):
        for name, reason in found.items():
            refused.setdefault(reason, {})[f"`kafka.{name}`"] = None
    yield table(("property", "reason"), [(", ".join(some), why) for why, some in refused.items()])
    yield "\nAccepted without effect, with a warning:\n\n"
    reasons: dict[str, list[str]] = {}
    for name, reason in properties.WITHOUT_EFFECT.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    yield table(
        ("properties, each behind `kafka.`", "reason"),
        [(", ".join(names), reason) for reason, names in reasons.items()],
    )
    yield "\nSo are all `kafka.ssl.*` while `kafka.security.protocol` is PLAINTEXT.\n"
