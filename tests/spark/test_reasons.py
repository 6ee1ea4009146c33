"""Errors that leave the data source: reason first, with their causes."""

from __future__ import annotations

import traceback

import pytest

from aiokafka08.errors import KafkaConnectionError, KafkaError
from aiokafka08.spark.reasons import reason_first

pytestmark = pytest.mark.spark


@reason_first
def fail(error: KafkaError) -> None:
    try:
        raise OSError("no route")
    except OSError as cause:
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


def test_error_that_leaves_again_is_shown_once_more_only() -> None:
    error = KafkaConnectionError("not connected")

    @reason_first
    def refuse() -> None:
        raise error

    for _ in range(3):
        with pytest.raises(KafkaConnectionError):
            refuse()
    assert "".join(traceback.format_exception(error)).count("not connected") == 2
