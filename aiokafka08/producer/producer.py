"""`AIOKafkaProducer`, the public producer, with aiokafka's names and signatures.

The class starts and stops the producer, serializes messages, and refuses what the 0.8 protocol
can't do. It also checks that calls come from the event loop and the operating-system process that
started the producer. The parts of `ProducerEngine` do everything else: messages go in through
`Intake`, out through `Sender`.

Invariant: no part refers to `AIOKafkaProducer`, so a producer that is dropped without `stop()` is
garbage-collected and warns.
"""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from aiokafka08._core.net.client_attributes import ClientAttributes
from aiokafka08._core.net.config import (
    ApiVersion,
    BootstrapServers,
    NetConfig,
    SecurityProtocol,
    callable_or_none,
    check_not_negative,
    check_positive,
    net_config,
    not_async,
    numbered_client_id,
)
from aiokafka08._core.net.lifecycle import Lifecycle
from aiokafka08._core.net.router import Router
from aiokafka08.embedded_headers import Headers, HeadersMode, embed, headers_mode
from aiokafka08.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    UnsupportedVersionError,
)
from aiokafka08.partitioner import DefaultPartitioner, Partitioner, partitioner_factory
from aiokafka08.producer.batch_builder import BatchBuilder
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.engine import NO_METRICS, ProducerEngine
from aiokafka08.producer.fast_path import DeliveryFuture, SendNow
from aiokafka08.producer.headers import HeaderPolicy, no_headers
from aiokafka08.producer.messages import ArrowMessages, ListedMessages
from aiokafka08.producer.options import (
    NO_TRANSACTIONS,
    Acks,
    CompressionType,
    ProducerOptions,
    check_duration,
    producer_options,
)
from aiokafka08.producer.serialize import Serializer, serialize_all, serialize_pair
from aiokafka08.protocol import twins
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import BinaryColumn
from aiokafka08.structs import RecordMetadata, TopicPartition
from aiokafka08.telemetry import Event, Telemetry

if TYPE_CHECKING:
    from aiokafka08._core.arrow import RecordBatch

_DEFAULT_PARTITIONER: Final = DefaultPartitioner()
# The default of `acks`, by the name of aiokafka's sentinel; FastStream passes it
_missing = 1
_COUNTERS: Final = (
    "batches_failed",
    "acks0_unknown",
    "connections_opened",
    "connections_closed",
    "connect_failures",
    "metadata_changes",
    "metadata_failures",
    "created_topics",
)


class AIOKafkaProducer:
    """Send messages to a Kafka cluster of brokers 0.8.0 to 3.9, in batches.

    `async with` starts and stops the producer. Call `stop()` in any case: a producer that is
    dropped without it warns when it is garbage-collected. With the compiled `send()` it isn't
    collected while the callback of a pending future refers to it.

    Options whose names end with `_ms` are in milliseconds.

    Args:
        loop: deprecated: the event loop in which `start()` will be called (default None).
        bootstrap_servers: addresses of some of the cluster's brokers: "host:port,…", or a list of
            "host:port" or of pairs (host, port). Without a port it is 9092; an IPv6 address with a
            port needs brackets (default "localhost").
        client_id: the name that brokers log, at most 32767 bytes. None or "":
            "aiokafka08-producer-" and a number (default None).
        request_timeout_ms: how long to wait for a broker's response, from 1 on (default 40000).
        start_timeout_ms: how long `start()` tries to reach a broker before it raises, from 1 on. A
            service that starts before its cluster needs more. None: `request_timeout_ms` (default
            None).
        retry_backoff_ms: the first pause before a failed request is repeated; later pauses grow to
            a second. From 0 on (default 100).
        metadata_max_age_ms: refresh the metadata at this age, from 1 on (default 300000).
        acks: when a message is acknowledged (default 1).
            0: don't wait for the broker. The results of `send()`, `send_and_wait()` and
            `send_batch()` are None; those of `send_many()` have offsets of -1. Brokers report
            errors by closing the connection; messages on their way are then counted as
            `acks0_unknown`, too. Messages that can't be written within `delivery_timeout_ms` fail.
            1: the leader has stored the message. "all" or -1: all in-sync replicas have. Other
            numbers of replicas: brokers of the 0.8 lines only.
        key_serializer, value_serializer: called with the key or value of each message, also with
            None; return bytes or None. None: keys and values are bytes (default None).
        compression_type: None, "gzip", "snappy", or "lz4" (brokers from 0.8.2 on). "zstd", which
            needs brokers from 2.1 on, raises `UnsupportedVersionError` (default None).
        max_batch_size: size in bytes at which a partition's batch is sent without waiting for more
            messages, from 1 on (default 16384). While one batch is in flight, the next one grows:
            with compression to `max_request_size`, without to 256 KiB, or more if messages are
            small or the round trip is long. With acks=0 a batch that is too large for the broker is
            lost, so it grows to at most 768 KiB.
            Brokers from 0.11 on give other clients that fetch below version 3 no batch larger than
            their `fetch.message.max.bytes` (or `max.partition.fetch.bytes`).
            For them, set `max_request_size` to the smallest of these values.
        partitioner: "murmur2" (that of Java's producer), "round_robin", "sticky", "random",
            "scala-0.8.0", "scala-0.8.0-string", "scala-0.8.2", "scala-0.8.2-string" (see
            `aiokafka08.partitioner`), or a callable
            `(key_bytes, all_partitions, available) -> partition` (default `DefaultPartitioner()`,
            which is "murmur2").
        max_request_size: the largest request, and the largest message, in bytes before compression;
            from 1 on (default 1048576).
        linger_ms: how long a batch waits for more messages, but no longer than half of
            `delivery_timeout_ms`. From 0 on, with fractions (default 0).
        api_version: the version of the brokers. None or "auto" detects that of each broker;
            "0.8.2" or (0, 8, 2) sets it, from 0.8.0 to 3.9 (default None).
        security_protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL"; "PLAINTEXTSASL" is
            HDP's name of "SASL_PLAINTEXT" (default "PLAINTEXT").
        ssl_context: the `ssl.SSLContext` of "SSL" and "SASL_SSL", for example of
            `helpers.create_ssl_context()`; None without TLS (default None).
        connections_max_idle_ms: close a connection after this many idle milliseconds, from 1 on,
            but not the last one; None never closes one (default 540000).
        enable_idempotence: True, which needs brokers from 0.11 on, raises `UnsupportedVersionError`
            (default False).
        transactional_id: for transactions, which need brokers from 0.11 on: other values raise
            `UnsupportedVersionError` (default None).
        transaction_timeout_ms: without effect, since there are no transactions (default 60000).
        sasl_mechanism: "PLAIN" (brokers from 0.10.0 on), "SCRAM-SHA-256" or "SCRAM-SHA-512" (from
            0.10.2 on, extra `sasl`), "GSSAPI" (Kerberos, from 0.9 on, extra `kerberos`) or
            "OAUTHBEARER" (from 2.0 on) (default "PLAIN"). A SASL option with a value other than
            its default is an error without SASL.
        sasl_plain_username, sasl_plain_password: the user of PLAIN and SCRAM (default None).
        sasl_kerberos_service_name: the first part of the brokers' principals (default "kafka").
        sasl_kerberos_domain_name: the second part of the brokers' principals, with "@REALM" if
            theirs isn't the client's; by default the host name that the client connects to (default
            None).
        sasl_oauth_token_provider: an `aiokafka08.abc.AbstractTokenProvider` (default None).
        sasl_kerberos_keytab: path of the keytab; without it the ticket cache is used, which kinit
            fills (default None).
        sasl_kerberos_principal: the client's principal; by default that of the ticket cache, or
            the first one in the keytab (default None).
        buffer_memory: bytes of messages that may be buffered or in flight (in wire format, before
            compression), from 1 on (default 33554432). While it is full, `send()` waits. With the
            default values of the other options, the process takes at most 16 MiB more.
        delivery_timeout_ms: the longest time from the call of `send()` until the message is
            acknowledged or fails; it includes retries, leader elections and waiting for memory. It
            may be shorter by a tenth, or by `linger_ms` if that is longer, because all messages of
            a batch have one deadline. In `send_many` it counts from the step that buffers the
            message. From 1 on (default 120000).
        max_in_flight_requests_per_connection: produce requests in flight per broker, from 1 on.
            Unless acks=0, no two of them carry batches of the same partition, so retries keep the
            order (default 5).
        max_block_ms: how long a send and `partitions_for()` wait for the metadata of a topic that
            isn't known yet; from 0 on; None: `request_timeout_ms` (default None). A send waits
            at most `delivery_timeout_ms`, for an unknown partition at most three seconds. The wait
            ends earlier if the brokers report for a second (from 0.10 on for five) that the topic
            doesn't exist and isn't created. Waiting for memory counts towards `delivery_timeout_ms`
            only, unlike in Java.
        headers: what to do with the headers of messages, since message formats 0 and 1 have none.
            "refuse": raise `UnsupportedVersionError`. "drop": send the message without them, count
            it as `headers_dropped` and log a warning for each topic. "embedded": put them into the
            value, in the envelope of Spring Cloud Stream (see `aiokafka08.embedded_headers`); a
            null value loses its headers, as with "drop". None: the environment variable
            AIOKAFKA08_HEADERS, or "refuse" without it (default None).
        on_event: called with each event of `aiokafka08.telemetry`, in the event loop
            (default None).

    Raises:
        IllegalArgumentError: a value isn't allowed (a `ValueError` too).
        UnsupportedVersionError: an option that the 0.8 protocol can't serve: idempotence,
            transactions, zstd.

    Attributes:
        client: addresses and client id, for instrumentors that expect aiokafka's client.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: BootstrapServers = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: ApiVersion = None,
        acks: Acks = 1,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        compression_type: CompressionType | None = None,
        max_batch_size: int = 16384,
        partitioner: str | Partitioner = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: float = 0,
        retry_backoff_ms: int = 100,
        security_protocol: SecurityProtocol = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: object = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: object = None,
        sasl_kerberos_keytab: str | None = None,
        sasl_kerberos_principal: str | None = None,
        buffer_memory: int = 33554432,
        delivery_timeout_ms: int = 120000,
        max_in_flight_requests_per_connection: int = 5,
        start_timeout_ms: int | None = None,
        max_block_ms: int | None = None,
        headers: HeadersMode | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        if loop is not None:
            warnings.warn(
                "the loop argument is deprecated: the producer uses the loop that starts it",
                DeprecationWarning,
                stacklevel=2,
            )
        self._given_loop = loop
        self._config = net_config(
            bootstrap_servers=bootstrap_servers,
            client_id=numbered_client_id("aiokafka08-producer", client_id),
            request_timeout_ms=request_timeout_ms,
            start_timeout_ms=start_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            api_version=api_version,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_kerberos_service_name=sasl_kerberos_service_name,
            sasl_kerberos_domain_name=sasl_kerberos_domain_name,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
            sasl_kerberos_keytab=sasl_kerberos_keytab,
            sasl_kerberos_principal=sasl_kerberos_principal,
        )
        self._lifecycle = Lifecycle(
            "AIOKafkaProducer", self._config.client_id, twins=twins.PRODUCER_TWINS
        )
        self._options = producer_options(
            acks=acks,
            compression_type=compression_type,
            max_batch_size=max_batch_size,
            max_request_size=max_request_size,
            buffer_memory=buffer_memory,
            linger_ms=linger_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_in_flight_requests_per_connection=max_in_flight_requests_per_connection,
            max_block_ms=request_timeout_ms if max_block_ms is None else max_block_ms,
            enable_idempotence=enable_idempotence,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        callable_or_none("key_serializer", key_serializer)
        callable_or_none("value_serializer", value_serializer)
        callable_or_none("on_event", on_event)
        self._serializers = (key_serializer, value_serializer)
        self._headers = HeaderPolicy(headers_mode(headers), self._config.client_id)
        self._prepares = (
            key_serializer is not None
            or value_serializer is not None
            or self._headers.mode == "embedded"
        )
        try:
            self._new_partitioner = partitioner_factory(partitioner)
        except (TypeError, ValueError) as error:
            raise IllegalArgumentError(f"partitioner={partitioner!r}: {error}") from None
        # If it is a class, its instances are called.
        called = partitioner.__call__ if isinstance(partitioner, type) else partitioner
        not_async("partitioner", called)
        self._telemetry = Telemetry(on_event, client_id=self._config.client_id)
        self._router = self._make_router(self._config, self._telemetry)
        self.client = ClientAttributes(self._router, bootstrap_servers, self._options.max_block_s)
        self._engine: ProducerEngine | None = None
        self._send_now: SendNow = _not_now
        self._loop: asyncio.AbstractEventLoop | None = None  # set while messages are accepted
        self._stopping: asyncio.Future[None] | None = None

    def _make_router(self, config: NetConfig, telemetry: Telemetry) -> Router:
        """Make the router. A subclass may do it with other limits."""
        return Router(config, telemetry)

    def _make_engine(
        self, router: Router, options: ProducerOptions, new_partitioner: Callable[[], Partitioner]
    ) -> ProducerEngine:
        """Make the engine. A subclass may do it with other limits and parts."""
        return ProducerEngine(router, options, new_partitioner)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap)
        state = "running" if self._lifecycle.is_running else "stopped"
        if self._loop is None and not self._lifecycle.stopped:
            state = "not started"
        used_bytes = 0 if self._engine is None else self._engine.used_bytes
        impl = twins.describe(twins.PRODUCER_TWINS)
        return f"<AIOKafkaProducer {servers} {state} used={used_bytes} impl={impl}>"

    def __del__(self) -> None:
        lifecycle: Lifecycle | None = getattr(self, "_lifecycle", None)
        if lifecycle is not None:
            engine: ProducerEngine | None = getattr(self, "_engine", None)
            lifecycle.warn_if_not_stopped(self, 0 if engine is None else engine.used_bytes)

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. After a failure, everything is closed; make a new producer.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker within `start_timeout_ms`; the
                text has the last error of each.
            UnsupportedVersionError: only 4.x brokers were found, or they don't support `acks`.
            UnsupportedCodecError: the brokers don't support the codec.
            ProducerClosed: the producer was stopped while it started.
            IllegalStateError: the producer was started before.
        """
        loop = asyncio.get_running_loop()
        if self._given_loop is not None and self._given_loop is not loop:
            raise IllegalStateError(
                "this AIOKafkaProducer was constructed with another event loop than the running one"
            )
        self._lifecycle.bind_to_loop()
        try:
            await self._router.start(keep_connected=True)
            version = self._router.version()
            if version is not None and self._options.codec is Codec.LZ4:
                limit_s = self._config.start_timeout_s
                version = await self._router.exact_version(timeout_s=limit_s)
            if version is not None and version.line not in self._options.supported_lines:
                raise self._options.unsupported_line(version, "the oldest known broker")
            if self._lifecycle.stopped:
                raise ProducerClosed("the producer was stopped while it started")
        except BaseException as error:
            stopped, self._lifecycle.stopped = self._lifecycle.stopped, True
            await self._router.stop()
            if stopped and isinstance(error, KafkaError):
                raise ProducerClosed("the producer was stopped while it started") from None
            raise
        self._engine = self._make_engine(self._router, self._options, self._new_partitioner)
        self._send_now = self._engine.intake.send
        self._loop = loop

    async def stop(self, timeout: float | None = None) -> None:
        """Send all buffered messages, then close all connections. May be called more than once.

        `send()` calls that wait for memory or metadata raise `ProducerClosed` at once. If this call
        is cancelled, unacknowledged messages fail with `ProducerClosed` at once (brokers may still
        store those in flight), and everything is closed.

        Args:
            timeout: for how many seconds to go on sending, from 0 on; messages not acknowledged by
                then fail with `KafkaTimeoutError`. None: until each message is acknowledged or has
                failed, which takes at most `delivery_timeout_ms` (default None).
        """
        if timeout is not None:
            check_duration("timeout", timeout)
        if self._stopping is not None:
            await asyncio.wait((self._stopping,))
            return
        if not self._lifecycle.is_running:
            self._lifecycle.stopped = True
            return
        if self._loop is not None:
            self._lifecycle.check()
        self._loop = None
        self._send_now = _not_now
        self._lifecycle.stopped = True
        stopping = self._stopping = asyncio.get_running_loop().create_future()
        fate = "not written" if self._options.required_acks == 0 else "not acknowledged"
        error: KafkaError = ProducerClosed(f"message {fate}: the producer was stopped")
        try:
            if self._engine is not None:
                self._engine.close()
                async with asyncio.timeout(timeout):
                    await self._engine.sender.flush()
        except TimeoutError:
            assert timeout is not None
            error = KafkaTimeoutError(f"message {fate} within stop(timeout={timeout})")
        finally:
            try:
                if self._engine is not None:
                    await self._engine.stop(error)
            finally:
                try:
                    await self._router.stop()  # closes everything, even if this call is cancelled
                finally:
                    stopping.set_result(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    # --- sending ----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> DeliveryFuture:
        """Buffer a message; return a future for its acknowledgement.

        Returns without waiting if the topic is known and memory is available. If a task calls this
        in a loop without ever waiting, then every few milliseconds a call yields to the event loop
        before it appends its message. Within a partition, messages are logged in the order of the
        calls, with one exception: while a call yields, other tasks may send messages, and these are
        logged before the message of the yielding call.
        Cancelling this call before it returns withdraws the message; cancelling the future doesn't.

        Args:
            topic: the topic.
            value: bytes, or what `value_serializer` takes. None is a tombstone, and needs a key
                (default None).
            key: bytes, or what `key_serializer` takes; None for no key (default None).
            partition: a number from 0 on; None lets the partitioner choose (default None).
            timestamp_ms: milliseconds since the epoch, from 0 on; None for now. Brokers below 0.10
                store none, and a number raises an error there (default None).
            headers: pairs of a name and a value in bytes, or None; refused, dropped or embedded
                by the option `headers` of the producer (default None).

        Returns:
            An awaitable with the interface of `asyncio.Future`. A task that awaits many completed
            ones yields to the event loop now and then. The result is a `RecordMetadata`, or None
            with acks=0. The errors are `KafkaTimeoutError` (not acknowledged, or with acks=0 not
            written, within `delivery_timeout_ms`; if the broker didn't respond, the message may be
            stored), `MessageSizeTooLargeError`, and the errors that brokers report. A batch may be
            stored twice when it is retried after a lost connection, after error codes 7 and 20,
            with acks="all" also after code 6, or because another broker became the leader while the
            first one was silent.

        Raises:
            MessageSizeTooLargeError: larger than `max_request_size`.
            KafkaTimeoutError: no memory within `delivery_timeout_ms`, or no metadata within
                `max_block_ms`.
            UnknownTopicOrPartitionError: the topic doesn't exist and isn't created, or has no such
                partition, not even after a wait for one that was just added.
            InvalidTopicError: brokers don't accept the topic name.
            UnsupportedVersionError: headers, unless the option `headers` allows them; or a
                timestamp for a broker below 0.10.
            IllegalArgumentError: neither key nor value; or the headers can't be embedded: a value
                isn't text in UTF-8, or there are more than 255.
            ProducerClosed: the producer was stopped before or during this call.
            TypeError: key or value isn't bytes.
        """
        if self._prepares:
            key, value, headers = self._prepare(key, value, headers)
        future = self._send_now(topic, value, key, partition, timestamp_ms, headers)
        if future is None:
            future = await self._send(topic, value, key, partition, timestamp_ms, headers)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a message and wait until it is acknowledged.

        The arguments are those of `send`, with the same defaults. Raises as `send` and its future.
        If a subclass, a patch or a wrapper has replaced `send`, this calls the replacement.
        """
        send = self.send
        if type(send) is not MethodType or send.__func__ is not _SEND:
            return await (await send(topic, value, key, partition, timestamp_ms, headers))
        # Doesn't call `send`, which would cost one more coroutine per message.
        if self._prepares:
            key, value, headers = self._prepare(key, value, headers)
        future = self._send_now(topic, value, key, partition, timestamp_ms, headers)
        if future is None:
            future = await self._send(topic, value, key, partition, timestamp_ms, headers)
        return await future

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamps_ms: Iterable[int] | None = None,
        headers: Iterable[Headers | None] | None = None,
    ) -> Deliveries:
        """Buffer many messages at once, far cheaper than by `send` for each.

        Works in two phases, and yields to the event loop every few milliseconds in both. First it
        checks the arguments; messages that other tasks send in this phase are logged before the
        messages of this call. Then it buffers the messages in chunks, as memory allows; other calls
        that send to the topic wait until this phase ends. Returns when all messages are buffered.
        If an error is raised, or this call is cancelled, the messages buffered before are sent all
        the same.

        Arguments that have a length (lists, dicts) are copied at the start, but their items aren't.
        Until this returns, don't change bytearrays or objects that a serializer gets. If an
        argument is an iterator, don't change the collection behind it either.

        Without `keys` and `partition`, the partitioner chooses once for a run of messages. Only
        "round_robin" and partitioners of your own are called for each message.

        Args:
            topic: the topic.
            values: bytes, or what `value_serializer` takes.
            keys: as many; None for messages without keys (default None).
            partition: the partition of all messages, from 0 on; None lets the partitioner choose
                (default None).
            timestamps_ms: as many, as in `send`; None for now (default None).
            headers: as many lists of headers, as in `send`; None for messages without headers
                (default None).

        Returns:
            Await it for a sequence of `RecordMetadata` in the order of `values`.

        Raises:
            As `send`; `KafkaTimeoutError` also if the wait for earlier calls to the topic, or a
            later wait for memory, takes longer than `delivery_timeout_ms`. Wrong types, sizes and
            timestamps, and exceptions of a serializer, are raised before anything is buffered; the
            text (or a note) has the index of the message.
        """
        self._check()
        assert self._engine is not None
        loop_yield = self._engine.loop_yield
        all_values: Sequence[bytes | None]
        arguments = (keys, timestamps_ms, *self._serializers)
        if isinstance(values, BinaryColumn) and arguments == (None,) * 4:
            all_values, all_keys, timestamps = values, None, None  # immutable, and checked
        else:
            all_values, all_keys, timestamps = await loop_yield.run_steps(
                serialize_all(values, keys, timestamps_ms, *self._serializers)
            )
        if headers is not None or self._headers.mode == "embedded":
            steps = self._headers.apply_all(topic, all_values, headers)
            all_values = await loop_yield.run_steps(steps)
        messages = ListedMessages(range(len(all_values)), all_keys, all_values, timestamps)
        groups = await self._engine.intake.append_many(topic, messages, partition)
        return Deliveries(len(all_values), groups, timestamps, loop_yield)

    async def send_arrow(self, topic: str, batch: RecordBatch) -> Deliveries:
        """Buffer the rows of a `pyarrow.RecordBatch`, as `send_many`; create no object per row.

        Needs the extra `arrow`. Serializers aren't applied. A partitioner that isn't based on
        murmur2 (`scala-…`, or your own) is called for each key, which creates an object per key.

        Args:
            topic: the topic; a column named `topic` is ignored.
            batch: the rows; columns other than these are ignored:
                `value`: binary or text, of any Arrow type; may be null.
                `key`: as `value`; null for rows without a key.
                `partition`: integers; null lets the partitioner choose.
                `timestamp`: of any unit, or integers, milliseconds since the epoch; null for now.
                `headers`: lists of structs of `key` and `value`; refused, dropped or embedded by
                the option `headers` of the producer.
                So the result of `getmany_arrow` can be sent as it is.

        Returns:
            Await it for a sequence of `RecordMetadata` in the order of the rows.

        Raises:
            As `send_many`; the text has the number of the row, from 0 on.
            KafkaConfigurationError: pyarrow isn't installed.
            TypeError: it isn't a RecordBatch, or a column has a wrong type.
            IllegalArgumentError: there is no column `value`, or a row has a negative timestamp or
                partition.
        """
        self._check()
        messages = ArrowMessages.of(batch)  # checks its columns
        assert self._engine is not None
        if "headers" in batch.schema.names or self._headers.mode == "embedded":
            steps = self._headers.apply_arrow(topic, batch)
            messages = ArrowMessages.of(await self._engine.loop_yield.run_steps(steps))
        groups = await self._engine.intake.append_many(topic, messages)
        return Deliveries(
            len(messages.values), groups, messages.timestamps_ms, self._engine.loop_yield
        )

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch for the caller to fill, for `send_batch`."""
        version = self._router.version()
        return BatchBuilder(
            1 if version is None else version.magic,
            self._options.codec,
            min(self._options.max_batch_size, self._options.max_request_size),
            self._serialize,
            self._headers,
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata | None] | DeliveryFuture:
        """Send a batch that the caller has filled. The batch accepts no more messages.

        Args:
            batch: from `create_batch()`.
            topic: the topic.
            partition: the partition of all its messages, from 0 on; None: the partitioner chooses
                it, as for a message without a key.

        Returns:
            A future with the `RecordMetadata` of the batch's first message; with None for an empty
            batch.

        Raises:
            As `send`, and:
            TypeError: it isn't a batch of `create_batch()`.
            IllegalStateError: the batch was sent before.
        """
        self._check()
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"batch={batch!r}: expected a batch of create_batch()")
        assert self._engine is not None
        if batch.record_count() == 0:
            batch.close()
            sent: asyncio.Future[RecordMetadata | None] = asyncio.get_running_loop().create_future()
            sent.set_result(None)
            return sent
        future = await self._engine.intake.append_batch(batch, topic, partition)
        if batch.dropped_headers:
            self._headers.count_dropped(topic, batch.dropped_headers)
        return future

    async def flush(self) -> None:
        """Wait until every message buffered now is acknowledged or has failed."""
        self._check()
        assert self._engine is not None
        await self._engine.sender.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of `topic`; brokers may create a topic that doesn't exist.

        Raises:
            KafkaTimeoutError, UnknownTopicOrPartitionError, InvalidTopicError: as `send`.
        """
        self._check()
        assert self._engine is not None
        return await self._engine.topics.partitions(topic, self._options.max_block_s)

    # --- state ------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Return whether the producer is running and reaches a broker, for readiness checks.

        It costs nothing: no request is sent. True means that a connection is open, and that some
        broker has responded within `metadata_max_age_ms`. From the start to the stop the producer
        keeps one connection, also when nothing is sent; if it is lost, it is opened again with
        pauses of up to 5 s. `ping()` sends a request instead.
        """
        engine = self._engine
        return (
            self._loop is not None
            and engine is not None
            and engine.crash is None
            and self._router.is_reachable()
        )

    async def ping(self, timeout_ms: int = 5000) -> None:
        """Return when some broker has responded to a small request, over an open or new connection.

        Args:
            timeout_ms: how long to try one broker after another, in milliseconds, from 1 on
                (default 5000).

        Raises:
            NoBrokersAvailable: no broker has responded; the text has the reason of each.
            ProducerClosed: the producer was stopped.
            IllegalStateError: it isn't started.
        """
        timeout_s = check_positive("timeout_ms", timeout_ms) / 1000
        self._check()
        try:
            await self._router.ping(timeout_s)
        except IllegalStateError:
            self._check()
            raise

    def metrics(self) -> dict[str, float]:
        """Return counters since the start and current gauges, by name.

        Gauges: `requests_in_flight`, `buffer_used_bytes`, `buffer_limit_bytes`, `senders_waiting`
        (calls that wait for memory, for a topic's metadata, or behind such a call for the same
        topic), `batches_unfinished`, `oldest_batch_ms`, `compiled` (1; 0 if a part of the producer
        runs in pure Python, as `repr()` and the log line at the start say). Counters:
        `messages_sent` (acknowledged, or written if acks=0), `messages_failed`, `bytes_sent`
        (compressed message sets, retries included), `requests_sent`, `retries` (batches),
        `batches_failed`, `acks0_unknown` (messages), `headers_dropped` (messages whose headers
        were dropped), `connections_opened`, `connections_closed`, `connect_failures`,
        `metadata_changes`, `metadata_failures`, `created_topics` (by brokers, because they were
        named).

        Histograms, in seconds: `acknowledgement_seconds` (from the first message of a batch to its
        acknowledgement, once for each batch; none with acks=0) and `request_seconds` (from the
        write of a Produce request to its response). A histogram `x` has the counters `x_count`,
        `x_sum` and `x_bucket{bound}`, the number of times up to that bound.
        """
        counters = self._telemetry.counters
        return {
            **(NO_METRICS if self._engine is None else self._engine.metrics()),
            "buffer_limit_bytes": self._options.buffer_memory,
            "compiled": int(twins.are_compiled(twins.PRODUCER_TWINS)),
            "retries": counters["batches_retried"],
            "headers_dropped": self._headers.dropped,
            **{name: counters[name] for name in _COUNTERS},
        }

    # --- attributes of aiokafka's producer that instrumentors and frameworks read -----------------

    @property
    def _closed(self) -> bool:
        """Whether the producer was stopped."""
        return self._lifecycle.stopped

    @property
    def _key_serializer(self) -> Serializer | None:
        """The `key_serializer`."""
        return self._serializers[0]

    @property
    def _value_serializer(self) -> Serializer | None:
        """The `value_serializer`."""
        return self._serializers[1]

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: object,
        value: object,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int:
        """Return the partition that `send()` would choose, or `partition` if the topic has it.

        The topic must be known: await `client._wait_on_metadata(topic)` first. A random choice,
        without a key, may differ from that of `send()`.

        Raises:
            IllegalArgumentError: `partition` isn't a partition number.
            UnknownTopicOrPartitionError: the topic isn't known, or has no such partition.
            IllegalStateError: the producer isn't started.
            ProducerClosed: the producer was stopped.
        """
        self._check()
        assert self._engine is not None
        return self._engine.topics.predict(topic, partition, serialized_key)

    # --- not supported by the protocol ------------------------------------------------------------

    async def begin_transaction(self) -> NoReturn:
        """Raise `UnsupportedVersionError`."""
        raise UnsupportedVersionError(NO_TRANSACTIONS)

    async def commit_transaction(self) -> NoReturn:
        """Raise `UnsupportedVersionError`."""
        raise UnsupportedVersionError(NO_TRANSACTIONS)

    async def abort_transaction(self) -> NoReturn:
        """Raise `UnsupportedVersionError`."""
        raise UnsupportedVersionError(NO_TRANSACTIONS)

    def transaction(self) -> NoReturn:
        """Raise `UnsupportedVersionError`."""
        raise UnsupportedVersionError(NO_TRANSACTIONS)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group_id: str
    ) -> NoReturn:
        """Raise `UnsupportedVersionError`."""
        raise UnsupportedVersionError(NO_TRANSACTIONS)

    # --- inside -----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._lifecycle.stopped:
            raise ProducerClosed("the producer was stopped")
        self._lifecycle.check()
        if self._loop is None:
            raise self._lifecycle.still_starting()

    async def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> DeliveryFuture:
        """Send a serialized message by the slow path, after the fast path has returned None."""
        self._check()
        if headers and self._headers.mode == "refuse":
            raise no_headers()
        if type(value) is not bytes or (key is not None and type(key) is not bytes):
            key, value = serialize_pair(key, value, None, None)
        if key is not None and len(key) > self._options.max_message_bytes:
            raise self._options.too_large(len(key), "the key alone")  # before it is hashed
        if timestamp_ms is not None:
            timestamp_ms = check_not_negative("timestamp_ms", timestamp_ms)
        assert self._engine is not None
        future = await self._engine.intake.append(topic, key, value, partition, timestamp_ms)
        if headers:
            self._headers.count_dropped(topic)
        return future

    def _prepare(
        self, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, Headers | None]:
        """Serialize a message; with `headers="embedded"` embed its headers in the value.

        Returns the headers that are left: `_send` refuses or drops them.
        """
        self._check()
        key, value = self._serialize(key, value)
        if self._headers.mode == "embedded":
            value = embed(value, headers)
            if value is not None:
                headers = None
        return key, value, headers

    def _serialize(self, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        return serialize_pair(key, value, *self._serializers)


# `send()` as this module defines it
_SEND: Final = AIOKafkaProducer.send


def _not_now(*arguments: object) -> None:
    """Take the place of the fast path while the producer isn't running."""
