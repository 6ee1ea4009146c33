"""Every option of constructors, of a bridge's file and of Spark, and calls of the admin client.

Each is accepted, or refused as documented: see `test_public_arguments`, whose values these tests
draw too.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.properties import CONSUME, NETWORK, PRODUCE
from aiokafka08.admin import (
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
    StoredGroup,
)
from aiokafka08.admin.config_resource import ConfigResource
from aiokafka08.bridge.config import SECTIONS, parse_config
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError
from aiokafka08.spark import options as spark_options
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.simulation import World, simulate
from tests.test_public_arguments import REFUSED, T0, VALUES

pytestmark = [pytest.mark.client]

Make = Callable[..., object]


def check(name: str, value: Any, refused: tuple[type[Exception], ...], call: Make) -> None:
    """Call it with the value; an error of another type than `refused` gets a note and is raised."""
    try:
        call(value)
    except Exception as error:
        if not isinstance(error, refused) or isinstance(error, UnicodeError):
            error.add_note(f"{name}: {value!r:.200}")
            raise


# --- constructors ---------------------------------------------------------------------------------

CONSTRUCTORS: dict[str, Any] = {
    "producer": AIOKafkaProducer,
    "consumer": AIOKafkaConsumer,
    "admin": AIOKafkaAdminClient,
    "cluster": EmbeddedCluster,
    "NewTopic": NewTopic,
    "NewPartitions": NewPartitions,
    "RecordsToDelete": RecordsToDelete,
    "ConfigResource": ConfigResource,
}
OPTIONS = [
    (maker, name)
    for maker, made in CONSTRUCTORS.items()
    for name, parameter in inspect.signature(made).parameters.items()
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    and name != "loop"  # which is only warned of
]
REQUIRED: dict[str, dict[str, Any]] = {
    "NewTopic": {"name": "n", "num_partitions": 1, "replication_factor": 1},
    "NewPartitions": {"total_count": 2},
    "ConfigResource": {"resource_type": "topic", "name": "n"},
    "RecordsToDelete": {"before_offset": 1},
}


async def _construct(given: list[tuple[tuple[str, str], Any]]) -> None:
    for (maker, name), value in given:
        check(
            f"{maker}({name})",
            value,
            REFUSED,
            lambda it, maker=maker, name=name: CONSTRUCTORS[maker](
                **{**REQUIRED.get(maker, {}), name: it}
            ),
        )


CONSTRUCTIONS = st.lists(st.tuples(st.sampled_from(OPTIONS), VALUES), min_size=20, max_size=40)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(CONSTRUCTIONS)
@example([(option, value) for option in OPTIONS for value in (2**63, -1, 10**400, float("nan"))])
@example([(option, value) for option in OPTIONS for value in ("\ud800", "", b"", [], {}, object())])
@example(
    [(option, value) for option in OPTIONS for value in (None, True, [None], {1: 2}, ("a", 1))]
)
def test_each_option_is_accepted_or_refused_as_documented(
    given: list[tuple[tuple[str, str], Any]],
) -> None:
    asyncio.run(_construct(given))


@pytest.mark.full
@pytest.mark.timeout(300)
@settings(max_examples=400, deadline=None)
@given(CONSTRUCTIONS)
def test_many_options_are_accepted_or_refused_as_documented(
    given: list[tuple[tuple[str, str], Any]],
) -> None:
    asyncio.run(_construct(given))


# --- the admin client -----------------------------------------------------------------------------

GROUP = StoredGroup("g", "kafka", "consumer")
Call = Callable[[AIOKafkaAdminClient, Any], Any]
CALLS: dict[str, Call] = {
    "list_offsets": lambda admin, it: admin.list_offsets(it),
    "list_offsets(position)": lambda admin, it: admin.list_offsets({T0: it}),
    "create_topics": lambda admin, it: admin.create_topics(it),
    "create_topics([])": lambda admin, it: admin.create_topics([it]),
    "create_topics(timeout_ms)": lambda admin, it: admin.create_topics([], timeout_ms=it),
    "create_topics(configs)": lambda admin, it: admin.create_topics(
        [NewTopic("n", 1, 1, topic_configs={"retention.ms": it})], validate_only=True
    ),
    "create_partitions": lambda admin, it: admin.create_partitions(it),
    "create_partitions(new)": lambda admin, it: admin.create_partitions({"t": it}),
    "create_partitions(timeout_ms)": lambda admin, it: admin.create_partitions({}, it),
    "delete_topics": lambda admin, it: admin.delete_topics(it),
    "delete_topics([])": lambda admin, it: admin.delete_topics([it]),
    "delete_topics(timeout_ms)": lambda admin, it: admin.delete_topics([], it),
    "list_topic_overrides": lambda admin, it: admin.list_topic_overrides(it),
    "list_topic_overrides([])": lambda admin, it: admin.list_topic_overrides([it]),
    "alter_topic_overrides(topic)": lambda admin, it: admin.alter_topic_overrides(it, {}),
    "alter_topic_overrides": lambda admin, it: admin.alter_topic_overrides("t", it),
    "alter_topic_overrides(value)": lambda admin, it: admin.alter_topic_overrides(
        "t", {"retention.ms": it}
    ),
    "find_coordinator": lambda admin, it: admin.find_coordinator(it),
    "find_coordinator(type)": lambda admin, it: admin.find_coordinator("g", it),
    "list_consumer_groups": lambda admin, it: admin.list_consumer_groups(it),
    "list_consumer_groups([])": lambda admin, it: admin.list_consumer_groups([it]),
    "describe_consumer_groups([])": lambda admin, it: admin.describe_consumer_groups([it]),
    "describe_consumer_groups(node)": lambda admin, it: admin.describe_consumer_groups(["g"], it),
    "list_consumer_group_offsets(node)": lambda admin, it: admin.list_consumer_group_offsets(
        "g", it
    ),
    "list_consumer_group_offsets(tps)": lambda admin, it: admin.list_consumer_group_offsets(
        "g", partitions=it
    ),
    "list_consumer_group_offsets(store)": lambda admin, it: admin.list_consumer_group_offsets(
        "g", offsets_storage=it
    ),
    "list_consumer_group_lag": lambda admin, it: admin.list_consumer_group_lag(it),
    "list_consumer_group_lag(tps)": lambda admin, it: admin.list_consumer_group_lag("g", it),
    "list_groups_of_store": lambda admin, it: admin.list_groups_of_store(it),
    "list_groups_of_stores": lambda admin, it: admin.list_groups_of_stores(it),
    "possible_groups": lambda admin, it: admin.possible_groups(it),
    "possible_groups([])": lambda admin, it: admin.possible_groups([it]),
    "list_stored_offsets": lambda admin, it: admin.list_stored_offsets(it),
    "list_stored_offsets([])": lambda admin, it: admin.list_stored_offsets([it]),
    "list_stored_offsets(group)": lambda admin, it: admin.list_stored_offsets(
        [GROUP._replace(group=it)]
    ),
    "list_stored_offsets(store)": lambda admin, it: admin.list_stored_offsets(
        [GROUP._replace(store=it)]
    ),
    "list_group_lags": lambda admin, it: admin.list_group_lags(it),
    "read_group_lags([])": lambda admin, it: admin.read_group_lags([it]),
    "list_partition_owners": lambda admin, it: admin.list_partition_owners(it),
    "list_partition_owners([])": lambda admin, it: admin.list_partition_owners([it]),
    "describe_stored_groups": lambda admin, it: admin.describe_stored_groups(it),
    "describe_stored_groups([])": lambda admin, it: admin.describe_stored_groups([it]),
    "list_log_bounds": lambda admin, it: admin.list_log_bounds(it),
    "list_log_bounds([])": lambda admin, it: admin.list_log_bounds([it]),
    "reset_consumer_group_offsets(group)": lambda admin, it: admin.reset_consumer_group_offsets(
        it, {T0: 0}
    ),
    "reset_consumer_group_offsets": lambda admin, it: admin.reset_consumer_group_offsets("g", it),
    "reset_consumer_group_offsets(to)": lambda admin, it: admin.reset_consumer_group_offsets(
        "g", {T0: it}
    ),
    "plan_group_reset": lambda admin, it: admin.plan_group_reset(GROUP, it),
    "plan_group_reset(group)": lambda admin, it: admin.plan_group_reset(it, {T0: 0}),
    "plan_group_reset(to)": lambda admin, it: admin.plan_group_reset(GROUP, {T0: it}),
    "check_group_change": lambda admin, it: admin.check_group_change(it),
    "check_group_changes": lambda admin, it: admin.check_group_changes(it),
    "delete_stored_group": lambda admin, it: admin.delete_stored_group(it),
    "delete_stored_groups": lambda admin, it: admin.delete_stored_groups(it),
    "delete_records": lambda admin, it: admin.delete_records(it),
    "describe_configs": lambda admin, it: admin.describe_configs(it),
}
MADE = st.lists(st.tuples(st.sampled_from(list(CALLS)), VALUES), min_size=20, max_size=40)


async def _call(world: World, made: list[tuple[str, Any]]) -> None:
    async with AIOKafkaAdminClient(
        bootstrap_servers=world.cluster.bootstrap_servers,
        zookeeper_connect=world.zookeeper_connect,
        request_timeout_ms=1000,
        retry_backoff_ms=10,
    ) as admin:
        for name, value in made:
            try:
                async with asyncio.timeout(0.5) as limit:
                    await CALLS[name](admin, value)
            except Exception as error:
                is_refused = isinstance(error, REFUSED) and not isinstance(error, UnicodeError)
                # Accepted, if the call waits for the brokers.
                if not is_refused and not (isinstance(error, TimeoutError) and limit.expired()):
                    error.add_note(f"{name}: {value!r:.200}")
                    raise


def call(made: list[tuple[str, Any]], version: str) -> None:
    with simulate(1, brokers=1, version=version, topics={"t": 1}) as world:
        world.run(_call, world, made)


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(made=MADE)
@example(made=[(name, value) for name in CALLS for value in (2**63, -1, 10**400, float("nan"))])
@example(made=[(name, value) for name in CALLS for value in ("\ud800", "", b"", [], {}, object())])
@example(made=[(name, value) for name in CALLS for value in (None, True, [None], {1: 2}, GROUP)])
def test_each_admin_call_is_accepted_or_refused_as_documented(
    version: str, made: list[tuple[str, Any]]
) -> None:
    call(made, version)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
@settings(max_examples=400, deadline=None)
@given(made=MADE)
def test_many_admin_calls_are_accepted_or_refused_as_documented(
    version: str, made: list[tuple[str, Any]]
) -> None:
    call(made, version)


# --- a bridge's file ------------------------------------------------------------------------------

MINIMAL: dict[str, dict[str, Any]] = {
    "": {"name": "x"},
    "source": {"bootstrap": "old1:9092"},
    "target": {"bootstrap": "new1:9092"},
    "topics": {"include": ["orders"]},
}
KEYS = [(section, key) for section, keys in SECTIONS.items() for key in keys]
TOML = st.recursive(
    st.one_of(
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.booleans(),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        st.sampled_from(["a:1", "1s", "20MB/s", "(", "x" * 300, "%", "\\"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text("ab.", min_size=1, max_size=3), inner, max_size=2),
    ),
    max_leaves=4,
)


def toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return json.dumps(value).replace("\x7f", "\\u007F")
        case list():
            return f"[{', '.join(map(toml, value))}]"
    return f"{{{', '.join(f'{toml(key)} = {toml(one)}' for key, one in value.items())}}}"


def document(section: str, key: str, value: Any) -> str:
    sections = {name: dict(keys) for name, keys in MINIMAL.items()}
    sections.setdefault(section, {})[key] = value
    return "\n".join(
        (f"[{name}]\n" if name else "")
        + "\n".join(f"{toml(key)} = {toml(one)}" for key, one in keys.items())
        for name, keys in sorted(sections.items())
    )


BAD_TOML: list[Any] = [2**63, -1, "", [], {}, float("nan")]
MORE_TOML: list[Any] = ["a", ["("], {"a": "b"}, True, 0, 1e308, 10**30, [[]], {"a": {"b": 1}}]
FILES = st.lists(st.tuples(st.sampled_from(KEYS), TOML), min_size=20, max_size=40)


def parse(given: list[tuple[tuple[str, str], Any]]) -> None:
    for (section, key), value in given:
        check(
            f"{section}.{key}",
            value,
            (IllegalArgumentError,),
            lambda it, section=section, key=key: parse_config(document(section, key, it)),
        )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(FILES)
@example([(key, value) for key in KEYS for value in BAD_TOML])
@example([(key, value) for key in KEYS for value in MORE_TOML])
def test_each_key_of_a_bridge_is_accepted_or_refused(
    given: list[tuple[tuple[str, str], Any]],
) -> None:
    parse(given)


@pytest.mark.full
@pytest.mark.timeout(300)
@settings(max_examples=400, deadline=None)
@given(FILES)
def test_many_keys_of_a_bridge_are_accepted_or_refused(
    given: list[tuple[tuple[str, str], Any]],
) -> None:
    parse(given)


# --- Spark ----------------------------------------------------------------------------------------

SPARK_NAMES = [
    *spark_options.READ_OPTIONS,
    *spark_options.WRITE_OPTIONS,
    *(f"kafka.{name}" for name in (*NETWORK, *CONSUME, *PRODUCE)),
]
TEXTS = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    TOML.map(json.dumps),
    st.sampled_from(["earliest", "latest", "1h", "5 weeks", '{"t":{"0":-2}}', "true", "a,b", "("]),
)
SPARK = st.lists(st.tuples(st.sampled_from(SPARK_NAMES), TEXTS), min_size=20, max_size=40)


def read_spark(given: list[tuple[str, str]]) -> None:
    base = {"kafka.bootstrap.servers": "h:1"}
    for name, text in given:
        for streaming in (True, False):
            check(
                name,
                text,
                (IllegalArgumentError, UnsupportedVersionError),
                lambda it, name=name, streaming=streaming: spark_options.read_options(
                    {"subscribe": "t", **base, name: it}, streaming=streaming
                ),
            )
        check(
            name,
            text,
            (IllegalArgumentError, UnsupportedVersionError),
            lambda it, name=name: spark_options.write_options({"topic": "t", **base, name: it}),
        )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SPARK)
@example(
    [(name, text) for name in SPARK_NAMES for text in ("", " ", "-1", "{}", "[]", "\0", "1e5")]
)
@example([(name, text) for name in SPARK_NAMES for text in (str(2**63), "9" * 5000, "²", "\ud800")])
def test_each_spark_option_is_accepted_or_refused(given: list[tuple[str, str]]) -> None:
    read_spark(given)


@pytest.mark.full
@pytest.mark.timeout(300)
@settings(max_examples=400, deadline=None)
@given(SPARK)
def test_many_spark_options_are_accepted_or_refused(given: list[tuple[str, str]]) -> None:
    read_spark(given)
