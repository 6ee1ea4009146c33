"""What a user should do about each error, event and metric: sentences for docs/reference.

Each needs one; a test fails for an error, an event or a metric without it. Errors that only brokers
of later protocols return (`UnsentRequestError`) need none.
"""

from __future__ import annotations

UNUSED = ""
"""The advice about an error that is only there for `except` clauses."""
ERRORS: dict[str, str] = {
    "IllegalStateError": "Call `start()` first, from the event loop that uses the client, and not "
    "after `stop()`.",
    "IllegalArgumentError": "Mend the argument that the text names.",
    "KafkaConfigurationError": "Change one of the options that the text names, or install the "
    "extra.",
    "ZookeeperMismatchError": "Correct `zookeeper_connect`, its chroot, or `bootstrap_servers`. If "
    "something translates the brokers' addresses, set `zookeeper_check='warn'`.",
    "KafkaConnectionError": "Nothing while calls are retried. If it lasts: address, port, "
    "firewall, `advertised.host.name` of the broker.",
    "CertificateError": "Compare the certificate with the host name, and the CA in `ssl_context`.",
    "NoBrokersAvailable": "Read the reason that the text has for each address. A service that "
    "starts before its cluster sets `start_timeout_ms`.",
    "KafkaTimeoutError": "The text names the deadline and the last reason: act on that reason. "
    "A message whose send timed out may be in the log.",
    "KafkaUnavailableError": "Try again later; look at the brokers.",
    "KafkaProtocolError": "Is the address that of a Kafka broker, and of its plain or TLS "
    "listener as configured?",
    "CorrelationIdError": "Look at what is between client and broker: a proxy mixes connections.",
    "UnrecognizedBrokerVersion": "Retried. If it lasts: a 4.x broker, a proxy that closes "
    "connections, or no Kafka at all. `api_version` overrides the detection.",
    "CommitFailedError": "The partitions belong to another member now, which reads the messages "
    "again. Process faster, or raise `session_timeout_ms` (event loop held up) or "
    "`max_poll_interval_ms` (messages not taken).",
    "PartitionRevokedError": "As for `CommitFailedError`, its base class.",
    "NoOffsetForPartitionError": "Choose `auto_offset_reset`, or `seek()`.",
    "RecordTooLargeError": "Raise the limit that the text names, or `seek()` to the next offset.",
    "UnsupportedCodecError": "Choose another `compression_type` for this broker line.",
    "ProducerClosed": "The producer was stopped; create a new one.",
    "ProducerFenced": UNUSED,
    "ConsumerStoppedError": "The consumer was stopped; create a new one.",
    "IllegalOperation": "Use `assign()` or `subscribe()`, not both.",
    "NodeNotReadyError": UNUSED,
    "Cancelled": UNUSED,
    "TooManyInFlightRequests": UNUSED,
    "StaleMetadata": UNUSED,
    "MetadataEmptyBrokerList": UNUSED,
    "IncompatibleBrokerVersion": UNUSED,
    "AuthenticationMethodNotSupported": "Set sasl_mechanism to one that the broker offers.",
    "AuthenticationFailedError": "Do what the text says; guides/sasl.md has the options.",
    "QuotaViolationError": UNUSED,
    "BrokerResponseError": "The code isn't known to Kafka 0.8 – 3.9 as far as these requests go: "
    "look at the broker's log.",
    "NoError": "Nothing.",
    "UnknownError": "Look at the broker's log.",
    "OffsetOutOfRangeError": "The messages are deleted, or the log was cut: choose "
    "`auto_offset_reset`, or `seek()`.",
    "CorruptRecordException": "Consumer: `seek(error.partition, error.next_offset)` skips the "
    "message; look at the disks of the broker. Producer: a compacted topic of 0.9 and later needs "
    "keys; the text says whether that is it.",
    "EmbeddedHeadersError": "The value isn't an envelope of headers: read that topic with "
    '`headers="drop"`, or skip the message.',
    "UnknownTopicOrPartitionError": "Create the topic, or wait until the new broker has it. "
    "A topic that is deleted stays so.",
    "InvalidFetchRequestError": "Nothing: this client sends no such size.",
    "LeaderNotAvailableError": "If it lasts, no replica of the partition is alive: start a broker "
    "that has one.",
    "NotLeaderForPartitionError": "If it lasts, brokers and ZooKeeper disagree: `aiokafka08 "
    "doctor`.",
    "RequestTimedOutError": "If it lasts, a follower is slow or dead.",
    "BrokerNotAvailableError": "Start the broker.",
    "ReplicaNotAvailableError": "Start the broker that has the replica.",
    "MessageSizeTooLargeError": "For a single message raise `message.max.bytes`.",
    "StaleControllerEpochError": "Look at the brokers: two of them act as the controller.",
    "OffsetMetadataTooLargeError": "Shorten the metadata of the commit "
    "(`offset.metadata.max.bytes`, 4096).",
    "StaleLeaderEpochCodeError": "Look at the brokers: two of them act as the controller.",
    "GroupLoadInProgressError": "Nothing.",
    "GroupCoordinatorNotAvailableError": "If it lasts, "
    "`__consumer_offsets` can't be created, since its replication factor exceeds the live brokers, "
    "or the group's partition of it has no leader: the text says which.",
    "NotCoordinatorForGroupError": "Nothing.",
    "InvalidTopicError": "Choose a name of letters, digits, `.`, `_` and `-`, at most 249 "
    "characters (a topic with up to 255 that exists already can be read and written). If it "
    "collides with another topic, use a name that differs in more than `.` and `_`.",
    "RecordListTooLargeError": "For a single message raise `segment.bytes`.",
    "NotEnoughReplicasError": "Start the replicas, or lower `min.insync.replicas`.",
    "NotEnoughReplicasAfterAppendError": "Start the replicas.",
    "InvalidRequiredAcksError": 'Choose acks 0, 1 or "all".',
    "IllegalGenerationError": "Nothing.",
    "InconsistentGroupProtocolError": "Give all members of the group a common "
    "`partition_assignment_strategy`; for a group of another kind, such as Kafka Connect's, choose "
    "another `group_id`.",
    "InvalidGroupIdError": "Choose a group id that isn't empty.",
    "UnknownMemberIdError": "If it lasts, the event loop is held up for longer than "
    "`session_timeout_ms`.",
    "InvalidSessionTimeoutError": "Choose a `session_timeout_ms` within the broker's "
    "`group.min.session.timeout.ms` and `group.max.session.timeout.ms`.",
    "RebalanceInProgressError": "Nothing.",
    "InvalidCommitOffsetSizeError": "Commit fewer partitions at a time, or with less metadata.",
    "TopicAuthorizationFailedError": "Grant the client's principal the topic "
    "(`kafka-acls.sh`). A client without TLS is `User:ANONYMOUS`.",
    "GroupAuthorizationFailedError": "Grant the client's principal the group (`kafka-acls.sh`).",
    "ClusterAuthorizationFailedError": "Grant the client's principal the cluster "
    "(`kafka-acls.sh`).",
    "InvalidTimestampError": "Send timestamps within "
    "`message.timestamp.difference.max.ms` of the broker's clock.",
    "UnsupportedVersionError": "The text names the missing feature and its first release; or a "
    "topic refuses to convert its messages: set its `message.downconversion.enable=true`.",
    "TopicAlreadyExistsError": "Nothing, or choose another name.",
    "InvalidPartitionsError": "Choose a number of partitions from 1 on; it can only grow.",
    "InvalidReplicationFactorError": "Choose at most as many replicas as brokers are alive.",
    "InvalidReplicationAssignmentError": "Assign each partition distinct live brokers.",
    "InvalidConfigurationError": "Mend the config that the text names.",
    "InvalidRequestError": "Look at the broker's log for the reason.",
    "UnsupportedForMessageFormatError": "Raise `log.message.format.version`, or ask by offset "
    "instead of by time.",
    "UnsupportedCompressionTypeError": "Set `compression.type` of the topic to gzip, snappy or "
    "lz4; read the stored messages with a modern client.",
    "GroupMaxSizeReachedError": "Raise `group.max.size`, or run fewer members.",
    "InvalidRecordError": "Send a key with each message: the topic is compacted. Else look at the "
    "broker's log.",
}

UNSENT_ERRORS: dict[str, str] = {
    "NonEmptyGroup": "Stop the members of the group first.",
    "GroupIdNotFound": "Nothing: the group is gone.",
}

EVENTS: dict[str, tuple[str, str]] = {
    "Connected": ("a few per broker at the start, and after a broker's restart", ""),
    "Disconnected": (
        "at a stop, at a restart, and after `connections.max.idle.ms`",
        "many a minute",
    ),
    "ConnectFailed": ("while a broker is down", "longer than a restart takes"),
    "MetadataChanged": ("at the start, and when a leader moves", "many a minute: leaders flap"),
    "MetadataFailed": ("none", "`increase(…[5m]) > 2`: the client sees no broker"),
    "BatchRetried": (
        "when a leader moves",
        "a steady rate; with `may_be_stored` messages may be stored twice",
    ),
    "BatchFailed": ("none", "each one: its messages have an error"),
    "Acks0Unknown": (
        "none",
        "each one: messages may be lost. And on `BatchFailed`: messages that were never written",
    ),
    "PartitionFailed": ("when a leader moves", "a steady rate for one partition: it isn't read"),
    "TopicCreated": ("for a new topic", "a misspelt name"),
    "TopicMissing": ("none", "each one: create the topic, or mend its name"),
    "OffsetReset": ("none", "each one: messages were deleted unread, or the log was cut"),
    "StartedAtEnd": (
        "when a group or a consumer without a group begins",
        "for a group that has committed before: its offsets have expired, or its name has changed",
    ),
    "CommitFailed": ("none", "more than one in a row: a restart will repeat messages"),
    "GroupJoined": (
        "at the start of a member of the group",
        "many a minute: the group never settles",
    ),
    "GroupJoinFailed": ("while the coordinator moves", "more than a few in a row"),
    "GroupLeft": ("at a stop", "at other times: the member was too slow"),
    "Rebalanced": ("when a member comes or goes", "many a minute"),
}
"""By the name of an event: when it is normal, and what to alert on."""

METRICS: dict[str, tuple[str, str]] = {
    "messages_sent": ("your rate", "0 for long"),
    "messages_failed": ("0", "each one"),
    "bytes_sent": ("your rate", ""),
    "requests_sent": ("your rate", ""),
    "requests_in_flight": ("0 to a few per broker", "above 0 while `messages_sent` stands still"),
    "buffer_used_bytes": ("far below the limit", "above 80 % of the limit for minutes"),
    "buffer_limit_bytes": ("constant", ""),
    "senders_waiting": ("0", "above 0 for minutes: brokers are slower than your senders"),
    "batches_unfinished": ("a few per partition", "growing"),
    "oldest_batch_ms": (
        "`linger_ms` and a round trip",
        "above half of `delivery_timeout_ms`: a partition has no leader, or its broker hangs",
    ),
    "acknowledgement_seconds": (
        "`linger_ms` and a round trip",
        "a 99th percentile near what your callers wait for",
    ),
    "request_seconds": (
        'a round trip, and with `acks="all"` the slowest replica\'s',
        "many times what is usual: a broker or its disk is slow",
    ),
    "fetch_request_seconds": (
        "up to `fetch_max_wait_ms` when idle, less under load",
        "longer than `fetch_max_wait_ms`: a broker is slow, or a quota delays it",
    ),
    "commit_seconds": ("a round trip", "near `session_timeout_ms` / 2: a rebalance waits for it"),
    "compiled": ("1", "0"),
    "retries": ("0", "a steady rate"),
    "headers_dropped": ("what you chose", ""),
    "messages_consumed": ("your rate", "0 while `lag` grows"),
    "bytes_fetched": ("your rate", ""),
    "fetch_requests": ("two a second and broker when idle (`fetch_max_wait_ms`)", ""),
    "fetch_request_failures": ("0, and some when a broker stops", "a steady rate"),
    "buffered_bytes": (
        "up to `fetch_max_bytes`",
        "at the limit for long: the program is slower than the brokers",
    ),
    "buffered_limit_bytes": ("2 to 3 times `fetch_max_bytes`, changes with the assignment", ""),
    "requested_bytes": ("up to `fetch_max_bytes`", ""),
    "assigned_partitions": ("its share", "0 for long"),
    "paused_partitions": ("what you paused", ""),
    "lag": ("a few seconds' worth", "growing for longer than a peak of yours lasts"),
}
"""By a name in `metrics()` that no event has: what is normal, what to alert on."""
