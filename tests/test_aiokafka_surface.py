"""The public names of aiokafka exist here, with the same arguments, or are excluded with a reason.

A user of aiokafka moves to this package by changing the import.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.admin
import aiokafka.errors
import aiokafka.helpers
import aiokafka.structs
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder as TheirBatchBuilder

from aiokafka08.producer.batch_builder import BatchBuilder

_NEWER_BROKERS = "an error that only requests of brokers from 0.11 on can answer with"
_NOT_ON_THE_WIRE = "brokers before 0.11 have no request for it"

EXCLUDED: dict[str, str] = {
    "aiokafka.AIOKafkaClient": "internal to aiokafka; net.router is not public either",
    "aiokafka.abc.AbstractTokenProvider": "SASL needs SaslHandshake (brokers from 0.10 on)",
    "aiokafka.admin.RecordsToDelete": _NOT_ON_THE_WIRE,
    "aiokafka.admin.AIOKafkaAdminClient.delete_records": _NOT_ON_THE_WIRE,
    "aiokafka.admin.AIOKafkaAdminClient.describe_configs": _NOT_ON_THE_WIRE,
    "aiokafka.admin.AIOKafkaAdminClient.alter_configs": _NOT_ON_THE_WIRE,
    "aiokafka.errors.NodeNotReadyError": "internal to aiokafka: KafkaConnectionError is raised",
    "aiokafka.errors.Cancelled": "internal to aiokafka: asyncio's CancelledError is raised",
    "aiokafka.errors.TooManyInFlightRequests": "internal to aiokafka: requests wait in a queue",
    "aiokafka.errors.StaleMetadata": "internal to aiokafka: metadata is refreshed instead",
    "aiokafka.errors.IncompatibleBrokerVersion": "UnsupportedVersionError is raised",
    "aiokafka.errors.AuthenticationMethodNotSupported": "SASL (see AbstractTokenProvider)",
    "aiokafka.errors.AuthenticationFailedError": "SASL (see AbstractTokenProvider)",
    "aiokafka.errors.UnsupportedSaslMechanismError": "SASL (see AbstractTokenProvider)",
    "aiokafka.errors.IllegalSaslStateError": "SASL (see AbstractTokenProvider)",
    "aiokafka.errors.NotControllerError": _NEWER_BROKERS,
    "aiokafka.errors.PolicyViolationError": _NEWER_BROKERS,
}

MODULES = ("", ".abc", ".admin", ".errors", ".helpers", ".structs")


def public_names(module: Any) -> list[str]:
    names = getattr(module, "__all__", None)
    if names is None:  # aiokafka.abc and .helpers
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return list(names)


NAMES = [
    (module, name)
    for module in MODULES
    for name in public_names(importlib.import_module(f"aiokafka{module}"))
]
CLASSES = [("", "AIOKafkaProducer"), ("", "AIOKafkaConsumer"), (".admin", "AIOKafkaAdminClient")]
METHODS = [
    (module, name, method)
    for module, name in CLASSES
    for method, value in vars(getattr(importlib.import_module(f"aiokafka{module}"), name)).items()
    if inspect.isfunction(value)
    and (not method.startswith("_") or method in {"__init__", "__aenter__", "__aiter__"})
]


def ours(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"aiokafka08{module}"), name, None)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_public_names_of_aiokafka_exist_or_are_excluded(module: str, name: str) -> None:
    excluded = f"aiokafka{module}.{name}" in EXCLUDED
    assert (ours(module, name) is None) == excluded


@pytest.mark.parametrize(("module", "name", "method"), METHODS)
def test_methods_accept_arguments_of_aiokafka(module: str, name: str, method: str) -> None:
    mine = getattr(ours(module, name), method, None)
    if f"aiokafka{module}.{name}.{method}" in EXCLUDED:
        assert mine is None
        return
    assert mine is not None, f"{name}.{method} is missing"
    theirs = getattr(getattr(importlib.import_module(f"aiokafka{module}"), name), method)
    assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(theirs)
    wanted, given = inspect.signature(theirs).parameters, inspect.signature(mine).parameters
    missing = [parameter for parameter in wanted if parameter not in given]
    assert not missing, f"{name}.{method} doesn't take {missing}"
    for parameter, value in wanted.items():
        assert given[parameter].kind == value.kind, parameter
    positional = [one for one, value in wanted.items() if value.kind is value.POSITIONAL_OR_KEYWORD]
    assert list(given)[: len(positional)] == positional
    added = [
        one
        for one, value in given.items()
        if one not in wanted
        and value.default is value.empty
        and value.kind is not value.VAR_KEYWORD
    ]
    assert not added, f"{name}.{method} needs {added}, which aiokafka doesn't"


def test_batches_have_methods_of_aiokafka() -> None:
    """The batches that `create_batch` returns."""
    for name, theirs in vars(TheirBatchBuilder).items():
        if not name.startswith("_") and inspect.isfunction(theirs):
            mine = getattr(BatchBuilder, name)
            assert list(inspect.signature(mine).parameters) == list(
                inspect.signature(theirs).parameters
            )


# The options whose default differs from that of aiokafka, with the reason.
OTHER_DEFAULTS = {
    "client_id": "names this package",
    "api_version": 'None and "auto" mean the same; aiokafka has deprecated it',
    "acks": "a sentinel there (1 unless idempotent), 1 here",
    "partitioner": "the same function, another object",
    "partition_assignment_strategy": "the same assignor, another object",
}


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_defaults_equal_those_of_aiokafka(module: str, name: str) -> None:
    theirs = getattr(importlib.import_module(f"aiokafka{module}"), name).__init__
    given = inspect.signature(ours(module, name).__init__).parameters
    different = {
        parameter: (given[parameter].default, value.default)
        for parameter, value in inspect.signature(theirs).parameters.items()
        if parameter not in OTHER_DEFAULTS and given[parameter].default != value.default
    }
    assert not different, "ours, theirs"


@pytest.mark.parametrize(
    "name",
    [
        "TopicPartition",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "RecordMetadata",
        "BrokerMetadata",
        "PartitionMetadata",
        "ConsumerRecord",
    ],
)
def test_structs_have_fields_of_aiokafka_in_order(name: str) -> None:
    def fields(struct: Any) -> list[str]:
        return list(inspect.signature(struct).parameters)

    assert fields(ours(".structs", name)) == fields(getattr(aiokafka.structs, name))


def test_error_codes_have_names_and_flags_of_aiokafka() -> None:
    for name in aiokafka.errors.__all__:
        theirs = getattr(aiokafka.errors, name)
        mine = ours(".errors", name)
        if mine is None or not hasattr(theirs, "errno"):
            continue
        assert mine.errno == theirs.errno, name
        assert mine.invalid_metadata == theirs.invalid_metadata, name
        if mine.errno >= 0:
            assert mine.message == theirs.message, name


def test_excluded_names_exist_in_aiokafka() -> None:
    for path in EXCLUDED:
        found: Any = aiokafka
        for part in path.split(".")[1:]:
            found = getattr(found, part)
