"""Each option of a client is the same in all its forms; its default is in the signature only.

The signature of a public class is written by hand, since editors show it. Its other forms are the
docstring (tests/test_docstrings.py), the functions that check options, the data classes with the
checked values, and the tables of Java's properties. docs/reference/options.md is made from the
docstrings.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.net.config import NETWORK_DEFAULTS, NetConfig, net_config
from aiokafka08._core.properties import CONSUME, NETWORK, PRODUCE, PropertyTable
from aiokafka08._core.ranges.range_reader import read_range
from aiokafka08._tools.cli import settings
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.consumer.config import ConsumerConfig, consumer_config
from aiokafka08.producer.options import ProducerOptions, producer_options
from aiokafka08.spark import properties

CLIENTS: Mapping[type, tuple[tuple[Callable[..., Any], ...], set[str]]] = {
    AIOKafkaProducer: (
        (net_config, producer_options),
        {"loop", "key_serializer", "value_serializer", "partitioner", "headers", "on_event"},
    ),
    AIOKafkaConsumer: (
        (net_config, consumer_config),
        {"topics", "loop", "allow_auto_create_topics", "on_event"},
    ),
    AIOKafkaAdminClient: (
        (net_config,),
        {"loop", "zookeeper_connect", "zookeeper_check", "zookeeper_options", "on_event"},
    ),
}
"""The functions that check a client's options, and the options that the client checks itself."""

OTHER_NAMES = {"batch.size": "max_batch_size", "partitioner.class": "partitioner"}
"""The properties whose argument has another name, which is aiokafka's."""


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def options(client: type) -> set[str]:
    return set(parameters(client))


@pytest.mark.parametrize("client", CLIENTS)
def test_each_option_of_a_client_is_checked_in_one_place(client: type) -> None:
    functions, own = CLIENTS[client]
    names = [*own, *(name for function in functions for name in parameters(function))]
    assert sorted(names) == sorted(parameters(client))


@pytest.mark.parametrize("function", [net_config, producer_options, consumer_config])
def test_function_that_checks_options_has_no_default(function: Callable[..., Any]) -> None:
    """A type checker then finds a client that doesn't pass an option on."""
    defaults = {name: one.default for name, one in parameters(function).items()}
    assert set(defaults.values()) == {inspect.Parameter.empty}, defaults


@pytest.mark.parametrize("config", [NetConfig, ProducerOptions, ConsumerConfig])
def test_field_of_checked_options_has_no_default(config: Any) -> None:
    limits = {"max_frame_bytes", "limits"}  # no options, but limits that tests change
    for field in dataclasses.fields(config):
        assert field.name in limits or field.default is dataclasses.MISSING, field.name
        assert field.default_factory is dataclasses.MISSING, field.name


@pytest.mark.parametrize("client", CLIENTS)
def test_defaults_without_a_client_are_those_of_its_signature(client: type) -> None:
    given = parameters(client)
    assert {name: given[name].default for name in NETWORK_DEFAULTS} == NETWORK_DEFAULTS
    assert parameters(net_config).keys() - NETWORK_DEFAULTS == {"bootstrap_servers", "client_id"}


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (NETWORK, set.intersection(*map(options, CLIENTS))),
        (settings._OF_NETWORK, set.intersection(*map(options, CLIENTS))),
        (PRODUCE, options(AIOKafkaProducer)),
        (settings._OF_PRODUCER, options(AIOKafkaProducer)),
        (CONSUME, options(AIOKafkaConsumer)),
        (settings._OF_CONSUMER, options(AIOKafkaConsumer)),
    ],
)
def test_each_property_is_an_option_of_the_client(table: PropertyTable, known: set[str]) -> None:
    arguments = {name: argument for name, (argument, _) in table.items()}
    assert arguments == {name: OTHER_NAMES.get(name, name.replace(".", "_")) for name in arguments}
    assert set(arguments.values()) <= known


def test_each_property_of_a_spark_task_is_a_setting_of_it() -> None:
    sizes = {"max.partition.fetch.bytes": "max_bytes", "fetch.max.bytes": "limit_bytes"}
    assert set(sizes.values()) <= parameters(read_range).keys()
    assert {name: argument for name, (argument, _) in properties.FETCH.items()} == {
        name: sizes.get(name, CONSUME[name][0]) for name in properties.FETCH
    }
