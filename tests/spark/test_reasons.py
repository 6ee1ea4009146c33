"""Errors that leave the data source: reason first, with their causes."""

from __future__ import annotations

import traceback

import pytest

from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.spark.reasons import reason_first

pytestmark = pytest.mark.spark


@reason_first
def fail(error: KafkaError) -> None:
    try:
        raise OSError("no route")
    except OSError as cause:
        raise error from cause


@reason_first
def raise_from(error: KafkaError, cause: KafkaError) -> None:
    raise error from cause


def test_error_keeps_its_cause_without_frames() -> None:
    with pytest.raises(KafkaConnectionError) as caught:
        fail(KafkaConnectionError("not connected"))
    shown = traceback.format_exception(caught.value)
    assert shown[0] == "OSError: no route\n"
    causes = caught.value.__cause__
    assert str(causes) == str(caught.value)
    assert isinstance(causes, KafkaConnectionError)
    assert isinstance(causes.__cause__, OSError)


def test_one_frame_of_this_package_stands_before_the_reason() -> None:
    with pytest.raises(KafkaConnectionError) as caught:
        fail(KafkaConnectionError("not connected"))
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2  # one is this test's


@pytest.mark.parametrize("kind", [KafkaConnectionError, UnknownTopicOrPartitionError])
def test_traceback_names_the_class_once(kind: type[KafkaError]) -> None:
    with pytest.raises(kind) as caught:
        fail(kind("no"))
    shown = [line for line in traceback.format_exception(caught.value) if kind.__name__ in line]
    assert len(shown) == 2  # of the error and of its cause
    assert all(line.count(kind.__name__) == 1 for line in shown)
    assert all(line.endswith(" no\n") for line in shown)


def test_cause_of_this_package_names_its_class_once() -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        raise_from(OffsetOutOfRangeError("lost"), KafkaConnectionError("not connected"))
    shown = traceback.format_exception(caught.value)
    assert shown[0] == "aiokafka08.errors.KafkaConnectionError: not connected\n"


def test_error_that_leaves_again_is_shown_once_more_only() -> None:
    error = KafkaConnectionError("not connected")

    @reason_first
    def refuse() -> None:
        raise error

    for _ in range(3):
        with pytest.raises(KafkaConnectionError):
            refuse()
    assert "".join(traceback.format_exception(error)).count("not connected") == 2
