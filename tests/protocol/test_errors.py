"""The table of error codes is consistent and has aiokafka's names."""

from __future__ import annotations

import importlib
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08 import errors
from aiokafka08.errors import BROKER_ERRORS, Action, BrokerResponseError
from aiokafka08.structs import TopicPartition

pytestmark = pytest.mark.fast

aiokafka_errors: Any = importlib.import_module("aiokafka.errors")  # it has no types
THEIRS: dict[int, Any] = aiokafka_errors.kafka_errors

each_code = pytest.mark.parametrize(
    ("code", "cls"), BROKER_ERRORS.items(), ids=lambda it: getattr(it, "__name__", str(it))
)


def all_subclasses(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from all_subclasses(sub)


def test_each_code_has_one_class_and_each_class_its_own_code() -> None:
    classes = [
        cls
        for cls in vars(errors).values()
        if inspect.isclass(cls)
        and issubclass(cls, BrokerResponseError)
        and cls not in (BrokerResponseError, errors.EmbeddedHeadersError, errors.UnsentRequestError)
    ]
    assert set(classes) == set(BROKER_ERRORS.values())
    assert len(BROKER_ERRORS) == len(set(BROKER_ERRORS.values()))
    for code, cls in BROKER_ERRORS.items():
        assert cls.errno == code
        assert "errno" in vars(cls), "inherited"
        assert "description" in vars(cls), "inherited"


def test_codes_of_all_broker_lines_are_known() -> None:
    """0.8: up to 20; 0.9, 0.10: up to 32, and 35; and those of modern brokers to an old client."""
    assert set(BROKER_ERRORS) >= {*range(-1, 33), 35, 42, 76, 81, 87}


@each_code
def test_class_has_aiokafkas_name_for_the_code(code: int, cls: type[BrokerResponseError]) -> None:
    if code in THEIRS:
        assert cls.__name__ == THEIRS[code].__name__


def test_each_aiokafka_name_of_a_code_is_its_class() -> None:
    """Also second names: `InvalidMessageError`, `CoordinatorLoadInProgressError`."""
    codes = {
        name: code
        for name, cls in vars(aiokafka_errors).items()
        if inspect.isclass(cls) and (code := getattr(cls, "errno", None)) in BROKER_ERRORS
    }
    assert len(codes) > 40
    ours = vars(errors)
    assert not [name for name, code in codes.items() if ours.get(name) is not BROKER_ERRORS[code]]


@each_code
def test_errors_retriable_in_aiokafka_are_retriable(
    code: int, cls: type[BrokerResponseError]
) -> None:
    theirs = THEIRS.get(code)
    if theirs is not None:
        assert cls.retriable >= theirs.retriable
        assert cls.invalid_metadata == theirs.invalid_metadata


def test_these_are_retriable_here_beyond_aiokafka() -> None:
    beyond = {
        code
        for code, cls in BROKER_ERRORS.items()
        if code in THEIRS and cls.retriable and not THEIRS[code].retriable
    }
    # -1: retried a few times; 8, 9, 13: a later retry succeeds.
    assert beyond == {-1, 8, 9, 13}


@each_code
def test_action_agrees_with_the_flags(code: int, cls: type[BrokerResponseError]) -> None:
    if cls.invalid_metadata:
        assert cls.action is Action.REFRESH
    if cls.action in {Action.REFRESH, Action.BACK_OFF, Action.NOT_STORED, Action.MAYBE_STORED}:
        assert cls.retriable
    if cls.action in {Action.FINAL, Action.SPLIT}:
        assert not cls.retriable
    assert (cls.action is Action.NONE) == (code in (0, 9))


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (-1, Action.BACK_OFF),
        (0, Action.NONE),
        (2, Action.FINAL),
        (3, Action.REFRESH),
        (5, Action.REFRESH),
        (6, Action.REFRESH),
        (7, Action.MAYBE_STORED),
        (9, Action.NONE),
        (10, Action.SPLIT),
        (14, Action.BACK_OFF),
        (15, Action.COORDINATOR),
        (16, Action.COORDINATOR),
        (17, Action.FINAL),
        (18, Action.SPLIT),
        (19, Action.NOT_STORED),
        (20, Action.MAYBE_STORED),
        (22, Action.REJOIN),
        (25, Action.REJOIN),
        (27, Action.REJOIN),
        (35, Action.FINAL),
        (76, Action.FINAL),
        (87, Action.FINAL),
        (99, Action.BACK_OFF),
    ],
)
def test_code_has_the_expected_action(code: int, action: Action) -> None:
    assert errors.action_for(code) is action


@each_code
def test_known_code_makes_its_class_with_place_and_meaning(
    code: int, cls: type[BrokerResponseError]
) -> None:
    error = errors.broker_error(code, "topic 'logs', partition 3")
    assert type(error) is cls is errors.error_class(code)
    assert error.errno == code
    assert str(error) == (
        f"[Error {code}] {cls.__name__}: topic 'logs', partition 3: {cls.description}"
    )
    assert str(cls()) == f"[Error {code}] {cls.__name__}: {cls.description}"


@pytest.mark.parametrize("code", [-2, 99, 120, 32767, -32768])
def test_unknown_code_keeps_its_number(code: int) -> None:
    error = errors.broker_error(code, "Produce")
    assert type(error) is BrokerResponseError is errors.error_class(code)
    assert error.errno == code
    assert f"[Error {code}]" in str(error)
    assert "Produce" in str(error)
    assert code not in BROKER_ERRORS


def test_all_kafka_errors_derive_from_kafka_error() -> None:
    for cls in all_subclasses(errors.KafkaError):
        assert issubclass(cls, RuntimeError)
    assert issubclass(errors.CorrelationIdError, errors.KafkaProtocolError)
    assert issubclass(errors.IllegalArgumentError, ValueError)


def test_corrupt_record_names_its_offset_and_the_next() -> None:
    plain = errors.broker_error(2)
    assert isinstance(plain, errors.CorruptRecordException)
    assert (plain.partition, plain.offset, plain.next_offset) == (None, None, None)
    assert errors.InvalidMessageError is errors.CorruptRecordException


def test_errors_survive_pickling() -> None:
    """Spark's executors send them to the driver."""
    error = errors.CorruptRecordException(
        "why", partition=TopicPartition("t", 1), offset=5, next_offset=6
    )
    for original in (error, errors.broker_error(99, "Fetch"), errors.broker_error(7)):
        again = pickle.loads(pickle.dumps(original))
        assert type(again) is type(original)
        assert (str(again), vars(again)) == (str(original), vars(original))
