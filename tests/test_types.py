"""A program's code, as a type checker sees it: `nox -s types` fails if an error below is missing.

mypy reports a `type: ignore` that hides nothing, so each of them says that a misspelt value of an
option is an error. At run time the options raise the same errors.
"""

from __future__ import annotations

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import IllegalArgumentError


def test_allowed_values_of_options_have_literal_types() -> None:
    AIOKafkaProducer(acks="all", compression_type="gzip", security_protocol="PLAINTEXT")
    AIOKafkaProducer(acks=-1, compression_type=None)
    AIOKafkaConsumer(auto_offset_reset="earliest", security_protocol="PLAINTEXT")
    AIOKafkaConsumer(auto_offset_reset="none", group_id="g", offsets_storage="kafka")
    AIOKafkaAdminClient(security_protocol="PLAINTEXT")


def test_misspelt_options_are_errors_for_type_checkers() -> None:
    with pytest.raises(IllegalArgumentError, match="acks"):
        AIOKafkaProducer(acks="al")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="compression_type"):
        AIOKafkaProducer(compression_type="gz")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="auto_offset_reset"):
        AIOKafkaConsumer(auto_offset_reset="smallest")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="offsets_storage"):
        AIOKafkaConsumer(group_id="g", offsets_storage="kafk")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="security_protocol"):
        AIOKafkaAdminClient(security_protocol="TLS")  # type: ignore[arg-type]
