"""The property names that configuration files of other clients may have.

`ALIASES` are names of librdkafka and of Scala's clients for properties that the command line has.
`WITHOUT_EFFECT` are accepted names that do nothing here, each with the reason.

Invariant: a name is in one table only. A property that would change the meaning of data, such as an
interceptor, is in `REFUSED`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aiokafka08._wording import newer_protocol

# The names by which librdkafka prints properties, where they aren't Java's.
OF_LIBRDKAFKA: Final[Mapping[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "socket.timeout.ms": "request.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "sasl.mechanisms": "sasl.mechanism",
}
ALIASES: Final[Mapping[str, str]] = {
    **OF_LIBRDKAFKA,
    "broker.list": "bootstrap.servers",
    "zk.connect": "zookeeper.connect",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.time": "linger.ms",
    "auto.commit.enable": "enable.auto.commit",
}

_TRANSACTIONS: Final = f"transactions need {newer_protocol()}"
_INTERCEPTORS: Final = (
    "interceptors may change messages, and plug-ins of other clients can't run here"
)
# Properties that can't be honoured although the result depends on them, each with the reason.
REFUSED: Final[Mapping[str, str]] = {
    "transactional.id": _TRANSACTIONS,
    "interceptor.classes": _INTERCEPTORS,
    "interceptors": _INTERCEPTORS,
    "plugin.library.paths": _INTERCEPTORS,
    "topic.blacklist": "it would hide topics. Name the topics in the command",
}


def _names(reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for reason, names in reasons.items():
        for name in names.split():
            yield name, reason


# From librdkafka's CONFIGURATION.md, Java's ConsumerConfig, ProducerConfig and AdminClientConfig,
# and the configuration files in Kafka 0.8 to 0.10.
WITHOUT_EFFECT: Final[Mapping[str, str]] = dict(
    _names(
        {
            "the version of each broker is detected": """
                api.version.request api.version.request.timeout.ms api.version.fallback.ms
                broker.version.fallback""",
            "it is a setting of brokers": "inter.broker.protocol.version ssl.client.auth",
            "commands work with bytes; options say how they are shown": """
                key.deserializer value.deserializer key.serializer value.serializer
                serializer.class key.serializer.class default.list.key.serde.inner
                default.list.key.serde.type default.list.value.serde.inner
                default.list.value.serde.type""",
            "this client has own rules for its sockets": """
                socket.blocking.max.ms socket.send.buffer.bytes socket.receive.buffer.bytes
                socket.keepalive.enable socket.nagle.disable socket.max.fails
                broker.address.ttl broker.address.family client.dns.lookup
                receive.buffer.bytes send.buffer.bytes send.buffer.bytes.config
                receive.message.max.bytes message.copy.max.bytes
                socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms""",
            "start.timeout.ms and request.timeout.ms limit the wait": """
                default.api.timeout.ms max.block.ms block.on.buffer.full metadata.fetch.timeout.ms
                timeout.ms metadata.max.idle.ms zookeeper.connection.timeout.ms
                zookeeper.session.timeout.ms zookeeper.sync.time.ms""",
            "retry.backoff.ms sets the pauses": """
                reconnect.backoff.ms reconnect.backoff.max.ms reconnect.backoff.jitter.ms
                retry.backoff.max.ms fetch.error.backoff.ms refresh.leader.backoff.ms
                topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.fast.cnt""",
            "delivery.timeout.ms limits the retries": """
                retries message.send.max.retries""",
            "metadata.max.age.ms sets when metadata is refreshed": """
                topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
                topic.metadata.propagation.max.ms metadata.recovery.strategy
                metadata.recovery.rebootstrap.trigger.ms""",
            "a producer's memory and batches are limited by buffer.memory and batch.size": """
                queue.buffering.max.messages queue.buffering.max.kbytes batch.num.messages
                queue.buffering.backpressure.threshold queue.enqueue.timeout.ms
                sticky.partitioning.linger.ms queuing.strategy msg_order_cmp producer.type
                partitioner.availability.timeout.ms partitioner.adaptive.partitioning.enable
                partitioner.ignore.keys compression.level compression.gzip.level
                compression.lz4.level compression.zstd.level compressed.topics""",
            "transactions need brokers from 0.11 on, and this client has none": """
                transaction.timeout.ms transaction.two.phase.commit.enable
                enable.gapless.guarantee""",
            "a consumer's memory is limited by fetch.max.bytes": """
                queued.min.messages queued.max.messages.kbytes queued.max.message.chunks
                fetch.queue.backoff.ms max.poll.records consumer.timeout.ms
                num.consumer.fetchers""",
            "commands say themselves what they read and commit": """
                enable.auto.offset.store offset.store.method offset.store.path
                offset.store.sync.interval.ms enable.partition.eof exclude.internal.topics
                consume.callback.max.messages offsets.channel.backoff.ms
                offsets.channel.socket.timeout.ms offsets.commit.max.retries
                allow.auto.create.topics""",
            "the group protocol of 0.9 has no such setting": """
                group.instance.id group.protocol group.protocol.type group.remote.assignor
                coordinator.query.interval.ms partition.assignment.strategy rebalance.max.retries
                rebalance.backoff.ms rebalance.timeout.ms consumer.id leave.group.on.close
                internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported
                internal.auto.downgrade.txn.commit share.acknowledgement.mode""",
            "brokers before 2.4 have no fetch from followers": "client.rack",
            "this client has own logs and metrics": """
                debug log_level log.queue log.thread.name log.connection.close
                statistics.interval.ms enabled_events metric.reporters metrics.num.samples
                metrics.recording.level metrics.sample.window.ms auto.include.jmx.reporter
                enable.metrics.push kafka.metrics.reporters kafka.metrics.polling.interval.secs
                kafka.csv.metrics.dir kafka.csv.metrics.reporter.enabled delivery.report.only.error
                produce.offset.report""",
            "it belongs to programs that link librdkafka": """
                builtin.features error_cb throttle_cb stats_cb log_cb background_event_cb socket_cb
                connect_cb closesocket_cb open_cb resolve_cb opaque default_topic_conf
                internal.termination.signal enable.random.seed consume_cb rebalance_cb
                offset_commit_cb dr_cb dr_msg_cb partitioner_cb oauthbearer_token_refresh_cb
                ssl_engine_callback_data ssl.certificate.verify_cb""",
            "Java's security providers and OAUTHBEARER's login need Java": """
                security.providers
                enable.sasl.oauthbearer.unsecure.jwt https.ca.location https.ca.pem""",
            "the controllers of Kafka 3.7 and later speak no protocol of 0.8": """
                bootstrap.controllers""",
        }
    )
)

# TLS properties of librdkafka that this client doesn't have: accepted without TLS only.
TLS_UNSUPPORTED: Final = (
    *("ssl.curves.list", "ssl.sigalgs.list", "ssl.key.pem", "ssl_key", "ssl.certificate.pem"),
    *("ssl_certificate", "ssl.ca.pem", "ssl_ca", "ssl.ca.certificate.stores", "ssl.crl.location"),
    *("ssl.providers", "ssl.engine.location", "ssl.engine.id"),
)
# TLS properties of librdkafka that this client has.
TLS: Final = (
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
    "enable.ssl.certificate.verification",
)
