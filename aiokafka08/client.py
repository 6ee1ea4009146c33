"""`AIOKafkaClient`, the type of `producer.client` and `consumer._client`, for annotations.

In aiokafka it is the network layer, which programs can construct too. Here it can't be constructed.
"""

from __future__ import annotations

from typing import Any

from aiokafka08.errors import UnsupportedVersionError


class AIOKafkaClient:
    """What programs read of a client's network layer. Constructing it raises an error.

    Attributes:
        _bootstrap_servers: the string as given, or a list of "host:port".
        _client_id: the name that brokers log.

    Raises:
        UnsupportedVersionError: always. This package has no client for single requests; the
            producer, the consumer and the admin client have calls.
    """

    _bootstrap_servers: str | list[str]
    _client_id: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedVersionError(
            "AIOKafkaClient: this package has no client for single requests. Use AIOKafkaProducer, "
            "AIOKafkaConsumer or AIOKafkaAdminClient"
        )
