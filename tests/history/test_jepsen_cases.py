"""The unit tests of Jepsen's Kafka checker, as data, with the same verdicts.

`jepsen_cases.json` has their histories and verdicts (jepsen-io/jepsen,
`jepsen/test/jepsen/tests/kafka_test.clj`). An invocation and its completion are one operation here,
`info` is `unknown`, the key `:x` is the partition "x/0", G1a is `aborted-read`. Left out are the
tests that need transactions, which brokers of these lines don't have (g0, two of g1c,
precommitted-read), and the test of Jepsen's generator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.testing.history import (
    Message,
    Operation,
    check,
    realtime_lags,
    unseen_over_time,
    worst_lag,
)
from aiokafka08.testing.history.lag import highest_offsets
from aiokafka08.testing.history.logs import History, PartitionLog

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("jepsen_cases.json").read_text())


def operations_of(case: dict[str, Any]) -> list[Operation]:
    return [Operation.from_json(one) for one in case["operations"]]


def cases_with(field: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{case['test']}: {case['case']}") for case in CASES if field in case
    ]


def test_all_cases_that_apply_are_here() -> None:
    assert len(CASES) == 35
    assert len({case["test"] for case in CASES}) == 15


@pytest.mark.parametrize("case", cases_with("verdicts"))
def test_verdict_is_that_of_jepsen(case: dict[str, Any]) -> None:
    found = check(operations_of(case), allow=())
    for name, expected in case["verdicts"].items():
        anomalies = [one for one in found if one.name == name]
        facts = [
            {key: one.facts[key] for key in wanted}
            for one, wanted in zip(anomalies, expected, strict=True)
        ]
        assert facts == expected


@pytest.mark.parametrize("case", cases_with("lags"))
def test_lags_are_those_of_jepsen(case: dict[str, Any]) -> None:
    lags = realtime_lags(operations_of(case))
    shown = [[one.time, one.process, one.partition, one.lag_s] for one in lags]
    assert shown == case["lags"]
    worst = worst_lag(lags)
    assert worst is not None
    assert [worst.time, worst.process, worst.partition, worst.lag_s] == case["worst"]


@pytest.mark.parametrize("case", cases_with("unseen"))
def test_unseen_over_time_is_that_of_jepsen(case: dict[str, Any]) -> None:
    assert [list(one) for one in unseen_over_time(operations_of(case))] == case["unseen"]


# --- the helpers that Jepsen tests too ------------------------------------------------------------


def test_highest_offsets_are_those_of_jepsen() -> None:
    """Its values are nil; here messages need some."""
    operation = Operation(
        process="0",
        call="txn",
        invoked=0,
        ended=1,
        polled=tuple(Message("x/0", offset, offset) for offset in (2, 5, 4)),
        sent=tuple(Message("y/0", offset, offset) for offset in (2, 3)),
    )
    assert highest_offsets(operation) == {"x/0": 5, "y/0": 3}


def test_values_by_last_index_are_those_of_jepsen() -> None:
    assert PartitionLog([]).values_by_last_index() == []
    log = PartitionLog([None, "a", "abc", None, "c", "cd", "d"])
    assert log.values_by_last_index() == [[], ["a", "b"], [], ["c"], ["d"]]


def test_first_indexes_are_those_of_jepsen() -> None:
    log = PartitionLog([None, "a", "abc", None, "c", "cd", "d"])
    assert {value: log.first_index(value) for value in "abcd"} == {"a": 0, "b": 1, "c": 1, "d": 3}


def test_version_order_is_that_of_jepsen() -> None:
    """Of `b` and `c` at offset 1, Jepsen takes either one."""
    [case] = [one for one in CASES if one["case"] == "a write conflicts with a read"]
    log = History(operations_of(case)).logs["x/0"]
    assert log.by_index() == ["a", "b", "b", "d"]
    assert [log.at(offset) for offset in range(5)] == [["a"], ["b", "c"], [], ["b"], ["d"]]
    assert [log.last_index(value) for value in "abcd"] == [0, 2, 1, 3]
