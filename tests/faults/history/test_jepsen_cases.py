"""The unit tests of Jepsen's Kafka checker, as data, with the same verdicts.

`jepsen_cases.json` has their histories and verdicts (jepsen-io/jepsen,
`jepsen/test/jepsen/tests/kafka_test.clj`). An invocation and its completion are one operation here,
`info` is `unknown`, the key `:x` is the partition "x/0", G1a is `aborted-read`. Left out are the
tests that need transactions, which brokers of these lines don't have (g0, two of g1c,
precommitted-read), and those of Jepsen's generator and of its measures of lag.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.testing.history import Operation, check
from aiokafka08.testing.history.logs import History, ObservedLog

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("jepsen_cases.json").read_text())


def operations_of(case: dict[str, Any]) -> list[Operation]:
    return [Operation.from_json(one) for one in case["operations"]]


def test_all_cases_that_apply_are_here() -> None:
    assert len(CASES) == 33
    assert len({case["test"] for case in CASES}) == 13


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['test']}: {case['case']}")
def test_verdict_is_that_of_jepsen(case: dict[str, Any]) -> None:
    found = check(operations_of(case), allow=())
    for name, expected in case["verdicts"].items():
        anomalies = [one for one in found if one.name == name]
        facts = [
            {key: one.facts[key] for key in wanted}
            for one, wanted in zip(anomalies, expected, strict=True)
        ]
        assert facts == expected


# --- the helpers that Jepsen tests too ------------------------------------------------------------


def test_values_by_last_index_are_those_of_jepsen() -> None:
    assert ObservedLog([]).values_by_last_index() == []
    log = ObservedLog([None, "a", "abc", None, "c", "cd", "d"])
    assert log.values_by_last_index() == [[], ["a", "b"], [], ["c"], ["d"]]


def test_first_indexes_are_those_of_jepsen() -> None:
    log = ObservedLog([None, "a", "abc", None, "c", "cd", "d"])
    assert {value: log.first_index(value) for value in "abcd"} == {"a": 0, "b": 1, "c": 1, "d": 3}


def test_version_order_is_that_of_jepsen() -> None:
    """Of `b` and `c` at offset 1, Jepsen takes either one."""
    [case] = [one for one in CASES if one["case"] == "a write conflicts with a read"]
    log = History(operations_of(case)).logs["x/0"]
    assert [log.at(offset) for offset in range(5)] == [["a"], ["b", "c"], [], ["b"], ["d"]]
