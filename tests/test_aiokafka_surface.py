"""The names that programs import from aiokafka exist here, with the same arguments.

A user of aiokafka moves to this package by changing the import. The lists are: the public names of
aiokafka's modules, the names in its documentation, and the names that five users of it import. What
can't work with this protocol raises UnsupportedVersionError when it is used. aiokafka's internal
modules don't exist here; docs/aiokafka.md says what to use instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.admin
import aiokafka.errors
import aiokafka.helpers
import aiokafka.structs
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder as TheirBatchBuilder

import aiokafka08
from aiokafka08.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka08.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.producer.batch_builder import BatchBuilder
from tests.support.paths import ROOT

DOCUMENTED = {
    "": "AIOKafkaConsumer AIOKafkaProducer ConsumerRebalanceListener TopicPartition",
    ".abc": "AbstractTokenProvider ConsumerRebalanceListener",
    ".coordinator.assignors.roundrobin": "RoundRobinPartitionAssignor",
    ".errors": "KafkaError KafkaTimeoutError InvalidMessageError RecordTooLargeError for_code",
    ".helpers": "create_ssl_context",
    ".producer": "AIOKafkaProducer",
    ".producer.message_accumulator": "BatchBuilder",
    ".structs": "ConsumerRecord KT OffsetAndTimestamp RecordMetadata TopicPartition VT",
}
"""The names in aiokafka 0.14.0's docs/*.rst and docs/examples, except those of INTERNAL modules.
Its page of errors has all classes of `aiokafka.errors`: see `test_each_error_of_aiokafka_exists`.
"""

IMPORTED = {
    "FastStream (ag2ai/faststream)": {
        "": "AIOKafkaConsumer AIOKafkaProducer ConsumerRebalanceListener ConsumerRecord "
        "TopicPartition",
        ".abc": "AbstractTokenProvider ConsumerRebalanceListener",
        ".admin": "AIOKafkaAdminClient NewTopic",
        ".admin.client": "AIOKafkaAdminClient",
        ".coordinator.assignors.abstract": "AbstractPartitionAssignor",
        ".coordinator.assignors.roundrobin": "RoundRobinPartitionAssignor",
        ".errors": "ConsumerStoppedError KafkaError UnsupportedCodecError",
        ".partitioner": "DefaultPartitioner",
        ".producer.producer": "_missing",
        ".structs": "RecordMetadata",
    },
    "OpenTelemetry (opentelemetry-python-contrib, instrumentation-aiokafka)": {
        "": "AIOKafkaClient AIOKafkaConsumer AIOKafkaProducer ConsumerRecord TopicPartition",
        ".structs": "RecordMetadata",
    },
    "taskiq-aio-kafka (taskiq-python)": {"": "AIOKafkaConsumer AIOKafkaProducer __version__"},
    "kstreams (kpn/kstreams)": {
        "": "AIOKafkaConsumer AIOKafkaProducer",
        ".abc": "ConsumerRebalanceListener",
        ".errors": "ConsumerStoppedError",
        ".helpers": "create_ssl_context",
        ".producer.message_accumulator": "BatchBuilder",
        ".structs": "RecordMetadata TopicPartition",
    },
    "Faust (faust-streaming/faust)": {
        "": "AIOKafkaClient AIOKafkaConsumer AIOKafkaProducer TopicPartition __version__",
        ".abc": "ConsumerRebalanceListener",
        ".coordinator.assignors.abstract": "AbstractPartitionAssignor",
        ".coordinator.assignors.roundrobin": "RoundRobinPartitionAssignor",
        ".coordinator.protocol": (
            "ConsumerProtocolMemberAssignment ConsumerProtocolMemberMetadata"
        ),
        ".errors": "CommitFailedError ConsumerStoppedError IllegalStateError KafkaError "
        "NotControllerError ProducerFenced TopicAlreadyExistsError for_code",
        ".partitioner": "DefaultPartitioner murmur2",
        ".structs": "OffsetAndMetadata TopicPartition",
    },
}
"""What these projects import and use by `aiokafka.…`, except from INTERNAL modules."""

PAGE = ROOT / "docs/aiokafka.md"
INTERNAL = [
    "admin.new_partitions",
    "cluster",
    "codec",
    "conn",
    "consumer.group_coordinator",
    "consumer.subscription_state",
    "coordinator.assignors.sticky.sorted_set",
    "producer.transaction_manager",
    "protocol.abstract",
    "protocol.admin",
    "protocol.commit",
    "protocol.coordination",
    "protocol.fetch",
    "protocol.group",
    "protocol.message",
    "protocol.metadata",
    "protocol.offset",
    "protocol.produce",
    "protocol.struct",
    "protocol.transaction",
    "record",
    "util",
]
"""Modules of aiokafka that don't exist here. Its documentation has `GroupCoordinator` and
`ProduceRequest` under "Other references" and "Protocols"; Faust imports requests and `cluster`."""

MODULES = ("", ".abc", ".admin", ".client", ".errors", ".helpers", ".partitioner", ".structs")


def public_names(module: Any) -> list[str]:
    names = getattr(module, "__all__", None)
    if names is None:  # aiokafka.client, .helpers and .partitioner
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
def test_public_names_of_aiokafka_exist(module: str, name: str) -> None:
    assert ours(module, name) is not None


@pytest.mark.parametrize(
    "names", [DOCUMENTED, *IMPORTED.values()], ids=["aiokafka's documentation", *IMPORTED]
)
def test_names_in_documents_and_programs_exist(names: dict[str, str]) -> None:
    for module, listed in names.items():
        for name in listed.split():
            assert hasattr(importlib.import_module(f"aiokafka{module}"), name), (module, name)
            assert ours(module, name) is not None, (module, name)


def test_each_error_of_aiokafka_exists() -> None:
    """Also those that are not in its `__all__`."""
    theirs = {
        name
        for name, value in vars(aiokafka.errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert len(theirs) > 100
    assert not [name for name in sorted(theirs) if ours(".errors", name) is None]


@pytest.mark.parametrize("code", range(-2, 130))
def test_for_code_returns_the_class_of_aiokafka(code: int) -> None:
    theirs, mine = aiokafka.errors.for_code(code), aiokafka08.errors.for_code(code)
    if theirs is not aiokafka.errors.UnknownError:
        assert mine.__name__ == theirs.__name__
    else:  # aiokafka doesn't know some codes of this protocol
        assert mine is aiokafka08.errors.UnknownError or code in (76, 81, 87)


def test_page_names_each_internal_module() -> None:
    _, _, table = PAGE.read_text().partition("| module of aiokafka | instead |\n|---|---|\n")
    named = []
    for row in table.partition("\n\n")[0].splitlines():
        named += re.findall(r"`([\w.]+)`", row.split("|")[1])
    assert sorted(named) == sorted(INTERNAL)
    for module in INTERNAL:
        importlib.import_module(f"aiokafka.{module}")
        assert importlib.util.find_spec(f"aiokafka08.{module}") is None


def test_modules_of_aiokafka_exist_or_are_internal() -> None:
    for found in pkgutil.walk_packages(aiokafka.__path__, "aiokafka."):
        name = found.name.removeprefix("aiokafka.")
        if name not in INTERNAL and not name.startswith("record."):  # `record` itself is internal
            importlib.import_module(f"aiokafka08.{name}")


def test_missing_module_is_missing_for_every_importer() -> None:
    """Names that aiokafka doesn't have fail as elsewhere; a tool may look for optional modules."""
    for name in ("aiokafka08.no_such_module", "aiokafka08.protocol.no_such_module"):
        assert importlib.util.find_spec(name) is None
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            importlib.import_module(name)


@pytest.mark.parametrize(("module", "name", "method"), METHODS)
def test_methods_accept_arguments_of_aiokafka(module: str, name: str, method: str) -> None:
    mine = getattr(ours(module, name), method, None)
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
    errors: dict[str, Any] = vars(aiokafka.errors)
    for name, theirs in errors.items():
        if not hasattr(theirs, "errno"):
            continue
        mine = ours(".errors", name)
        assert mine.errno == theirs.errno, name
        assert mine.invalid_metadata == theirs.invalid_metadata, name
        assert mine.retriable >= theirs.retriable, name
        if mine.errno >= 0:
            assert mine.message == theirs.message, name


# --- what can't work ------------------------------------------------------------------------------


REFUSED: dict[str, Callable[[], object]] = {
    "AIOKafkaClient": lambda: aiokafka08.AIOKafkaClient(bootstrap_servers="localhost"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_name_raises_when_it_is_used(name: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=name):
        REFUSED[name]()


PARTITION = aiokafka08.TopicPartition("t", 0)
REFUSED_CALLS: dict[str, Callable[[AIOKafkaAdminClient], Awaitable[object]]] = {
    "delete_records": lambda admin: admin.delete_records({PARTITION: RecordsToDelete(5)}),
    "describe_configs": lambda admin: admin.describe_configs([ConfigResource("topic", "t")]),
    "alter_configs": lambda admin: admin.alter_configs(
        [ConfigResource(ConfigResourceType.BROKER, "1", {"log.retention.ms": "5"})]
    ),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
async def test_refused_call_of_admin_names_itself(name: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=rf"{name}: it needs .* \(brokers from 0.11"):
        await REFUSED_CALLS[name](AIOKafkaAdminClient())


def test_default_of_acks_has_the_name_of_aiokafka() -> None:
    """FastStream passes the default of `acks` by its name."""
    from aiokafka08.producer.producer import _missing

    default = inspect.signature(aiokafka08.AIOKafkaProducer).parameters["acks"].default
    assert _missing == default == 1


def test_partitioner_equals_that_of_aiokafka() -> None:
    theirs = importlib.import_module("aiokafka.partitioner")
    mine = importlib.import_module("aiokafka08.partitioner")
    for number in range(200):
        key = str(number).encode() * (number % 7)
        assert mine.murmur2(key) == theirs.murmur2(key)
        arguments = (key, [0, 1, 2, 3, 4], [0, 2])
        assert mine.DefaultPartitioner()(*arguments) == theirs.DefaultPartitioner()(*arguments)
